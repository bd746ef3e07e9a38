//go:build night

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// An operator's night, with the program alone: 500 jobs are queued, the provider is away for two minutes, effects of 50
// of them hide behind timeouts, a worker is killed, a message is purged, and of five reports, whose kind has an age
// limit of three minutes, the provider forgets the keys and answers no look-up. In the morning exactly those five wait
// for a person, everything else happened once, and the person ends the five with commands.
const (
	nightJobs    = 500
	nightHidden  = 50 // charges whose effect happened behind a timeout
	nightLost    = 5  // reports that nobody can tell about
	nightOutage  = 2 * time.Minute
	nightAge     = "3m"
	nightLimit   = 3 * time.Minute // from the provider's return to the last finished job
	nightLookups = 3               // per task, outside the five
)

func TestNight(t *testing.T) {
	processLimit = 20 * time.Minute
	n := newNight(t)
	n.startProvider(n.faults())
	n.publish("payment.charge", nightHidden, 1, charge)
	n.publish("report.create", nightLost, 1, nightReport)
	victim, reports := n.work("", "payment.charge", "receipt.send"), n.work("SETTLE_MAX_AGE="+nightAge, "report.create")
	n.count("effects behind timeouts", nightHidden, `provider.charges`)
	n.count("reports that will be forgotten", nightLost, `provider.reports`)

	n.stopProvider()
	began := time.Now()
	n.publish("payment.charge", nightJobs-nightHidden-nightLost, nightHidden+1, charge)
	second := n.work("", "payment.charge", "receipt.send")
	n.count("tasks of the outage", 1, `settle.tasks where status = 'started' and lease_until is null`)
	victim.end(syscall.SIGKILL)
	n.purgeOne()
	<-time.After(nightOutage - time.Since(began))
	n.startProvider(n.faults())

	back := time.Now()
	n.countBy(back.Add(nightLimit), "finished charges", nightJobs-nightLost, `settle.tasks where kind = 'payment.charge' and status = 'finished'`)
	t.Logf("all charges finished %v after the provider's return", time.Since(back).Round(time.Second))
	n.countBy(back.Add(2*nightLimit), "parked reports", nightLost, `settle.tasks where status = 'needs_review'`)
	n.morning()
	n.resolveAll()
	for _, w := range []*nightWorker{second, reports} {
		if code := w.end(syscall.SIGTERM); code != exitDone {
			t.Errorf("work: exit %d", code)
		}
	}
}

func nightReport(i int) string { return fmt.Sprintf(`{"task_id":%d,"report_type":"monthly"}`, i) }

// night is the stage of the story.
type night struct {
	t        *testing.T
	env      map[string]string
	pool     *pgxpool.Pool
	js       jetstream.JetStream
	provider *service

	mu     sync.Mutex
	alerts map[string]int
}

func newNight(t *testing.T) *night {
	broker, js := devtest.JetStream(t)
	n := &night{t: t, js: js, alerts: map[string]int{}}
	hook := httptest.NewServer(http.HandlerFunc(n.alert))
	t.Cleanup(hook.Close)
	address := freeAddress(t)
	n.env = map[string]string{
		"DATABASE_URL": devtest.Database(t), "NATS_URL": broker,
		"SETTLE_HTTP_ADDR": "127.0.0.1:0", "SETTLE_CREATE_ORDERS": "true", "SETTLE_PROVIDER_TIMEOUT": "2s",
		"SETTLE_PROVIDER_ADDR": address, "SETTLE_PROVIDER_URL": "http://" + address, "SETTLE_ALERT_WEBHOOK": hook.URL,
	}
	pool, err := pgxpool.New(t.Context(), n.env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	n.pool = pool
	return n
}

// freeAddress is one that no outgoing connection takes while the provider is away.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

// alert receives what the notifier tells.
func (n *night) alert(_ http.ResponseWriter, r *http.Request) {
	var told struct {
		Cause string `json:"cause"`
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err != nil || told.Cause == "" {
		n.t.Errorf("an alert without a cause: %s (%v)", text, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.alerts[told.Cause]++
}

// faults are those of the night: the effects of the first charges hide behind a timeout, and of the reports the provider
// forgets the keys and answers no look-up.
func (n *night) faults() string {
	var rules []string
	for i := 1; i <= nightHidden; i++ {
		rules = append(rules, fmt.Sprintf(`{"key": "order_%d", "count": 1, "delay-after": "1m"}`, i))
	}
	for i := 1; i <= nightLost; i++ {
		rules = append(rules, fmt.Sprintf(`{"key": "report-task-%d", "forget-after": "1ms", "delay-after": "1m"}`, i),
			fmt.Sprintf(`{"key": "report-task-%d", "method": "GET", "status": 503}`, i))
	}
	return "[" + strings.Join(rules, ",") + "]"
}

func (n *night) startProvider(faults string) {
	n.provider = start(n.t, n.env, "provider")
	n.provider.await("the stand-in provider listens")
	put(n.t, n.env["SETTLE_PROVIDER_URL"]+"/faults", faults)
}

func (n *night) stopProvider() {
	n.provider.signal(syscall.SIGKILL)
	_ = n.provider.cmd.Wait()
}

// nightWorker is a worker whose log nobody follows.
type nightWorker struct {
	*service
	read chan struct{} // closed at the end of the log
}

// end sends a signal, waits for the end and returns the exit code.
func (w *nightWorker) end(sig syscall.Signal) int {
	w.t.Helper()
	w.signal(sig)
	<-w.read
	_ = w.cmd.Wait()
	return w.cmd.ProcessState.ExitCode()
}

func (n *night) work(setting string, kinds ...string) *nightWorker {
	env, args := maps.Clone(n.env), []string{"work"}
	if name, value, ok := strings.Cut(setting, "="); ok {
		env[name] = value
	}
	for _, k := range kinds {
		args = append(args, "--kind", k)
	}
	w := &nightWorker{start(n.t, env, args...), make(chan struct{})}
	w.await(`"msg":"serving"`)
	go func() { // its log must not fill the pipe
		defer close(w.read)
		for w.log.Scan() {
			if strings.Contains(w.log.Text(), `"level":"ERROR"`) {
				n.t.Log(w.log.Text())
			}
		}
	}()
	return w
}

func (n *night) publish(kind string, count, from int, body func(int) string) {
	var jobs bytes.Buffer
	for i := range count {
		fmt.Fprintln(&jobs, body(from+i))
	}
	if code, _, errOut := runSettle(n.t, n.env, &jobs, "publish", "--kind", kind); code != exitDone {
		n.t.Fatalf("publish: exit %d, %s", code, errOut)
	}
}

// count waits until a query from a table counts want rows.
func (n *night) count(what string, want int, from string) {
	n.t.Helper()
	n.countBy(time.Now().Add(time.Minute), what, want, from)
}

func (n *night) countBy(end time.Time, what string, want int, from string) {
	n.t.Helper()
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		got := n.number(`select count(*) from ` + from)
		if got >= want {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("%s: %d, want %d; open:\n%s", what, got, want, n.open())
		}
	}
}

// open is what the unsettled tasks look like.
func (n *night) open() string {
	rows, err := n.pool.Query(n.t.Context(), `select to_jsonb(t) - 'payload' - 'payload_hash' from settle.tasks t where status <> 'finished' order by id limit 10`)
	if err != nil {
		return err.Error()
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	return strings.Join(found, "\n")
}

func (n *night) number(query string, args ...any) (out int) {
	n.t.Helper()
	if err := n.pool.QueryRow(n.t.Context(), query, args...).Scan(&out); err != nil {
		n.t.Fatalf("%s: %v", query, err)
	}
	return out
}

// purgeOne takes the message of an uncertain charge out of the stream.
func (n *night) purgeOne() {
	n.t.Helper()
	sequence := n.number(`select stream_sequence from settle.tasks where kind = 'payment.charge' and status = 'unknown' order by id limit 1`)
	stream, err := n.js.Stream(n.t.Context(), "JOBS")
	if err == nil {
		err = stream.DeleteMsg(n.t.Context(), uint64(sequence))
	}
	if err != nil {
		n.t.Fatalf("purge message %d: %v", sequence, err)
	}
}

// morning is what an operator sees, and what the provider's own tables say.
func (n *night) morning() {
	t := n.t
	parked := n.list("tasks", "list", "--status", "needs_review")
	for _, task := range parked {
		if task.Kind != "report.create" {
			t.Errorf("%s/%s waits for a person", task.Kind, task.Key)
		}
	}
	if len(parked) != nightLost {
		t.Errorf("%d tasks wait for a person, want %d", len(parked), nightLost)
	}
	if open := n.list("tasks", "list", "--status", "unknown"); len(open) != 0 {
		t.Errorf("%d tasks are unknown", len(open))
	}
	if twice := n.number(`select count(*) from (select order_id from provider.charges group by 1 having count(*) <> 1) x`); twice != 0 {
		t.Errorf("%d orders were not charged exactly once", twice)
	}
	if all := n.number(`select count(*) from provider.charges`); all != nightJobs-nightLost {
		t.Errorf("%d charges, want %d", all, nightJobs-nightLost)
	}
	if worst := n.number(`select coalesce(max(n), 0) from (select count(*) n from provider.requests
		where method = 'GET' and key like 'order_%' group by key) x`); worst > nightLookups {
		t.Errorf("%d look-ups for one order, want at most %d", worst, nightLookups)
	}
	n.count("receipts", nightJobs-nightLost, `shop.receipts`)
	if made := n.number(`select max(n) from (select count(*) n from provider.reports group by task_id) x`); made != 1 {
		t.Errorf("%d reports for one task although nobody could tell", made)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("alerts: %v", n.alerts)
	for cause, told := range n.alerts {
		if told > 1 {
			t.Errorf("%d alerts of %q", told, cause)
		}
	}
	if n.alerts["needs_review report.create age"] != 1 {
		t.Errorf("nobody was told of the parked reports: %v", n.alerts)
	}
}

// resolveAll ends the five: the person has the report ids from the provider by telephone.
func (n *night) resolveAll() {
	t := n.t
	for i := 1; i <= nightLost; i++ {
		var id string
		if err := n.pool.QueryRow(t.Context(), `select report_id from provider.reports where task_id = $1`, i).Scan(&id); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "result.json")
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"report_id":%q,"status":"ready"}`, id), 0o600); err != nil {
			t.Fatal(err)
		}
		task := fmt.Sprintf("report.create/report-task-%d", i)
		if code, out, errOut := runSettle(t, n.env, nil, "tasks", "resolve", task, "--as", "finished", "--result", file,
			"--actor", "olga", "--reason", "the provider's support confirmed it by telephone"); code != exitDone {
			t.Errorf("resolve %s: exit %d, %s%s", task, code, out, errOut)
		}
		code, out, _ := runSettle(t, n.env, nil, "tasks", "show", task)
		if code != exitDone || !strings.Contains(out, "done") || !strings.Contains(out, "olga") || !strings.Contains(out, id) {
			t.Errorf("show %s: exit %d, %s", task, code, out)
		}
	}
	if left := n.list("tasks", "list", "--status", "needs_review"); len(left) != 0 {
		t.Errorf("%d tasks still wait for a person", len(left))
	}
	if code, out, errOut := runSettle(t, n.env, nil, "drift"); code != exitDone {
		t.Errorf("drift: exit %d, %s%s", code, out, errOut)
	}
	if left := n.number(`select count(*) from settle.outbox`); left != 0 {
		t.Errorf("%d events were not published", left)
	}
}

func (n *night) list(args ...string) (tasks []taskObject) {
	n.t.Helper()
	code, out, errOut := runSettle(n.t, n.env, nil, append(args, "--json", "--limit", "1000")...)
	if code != exitDone {
		n.t.Fatalf("%v: exit %d, %s", args, code, errOut)
	}
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		var task taskObject
		if err := json.Unmarshal(lines.Bytes(), &task); err != nil {
			n.t.Fatalf("%s: %v", lines.Text(), err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}
