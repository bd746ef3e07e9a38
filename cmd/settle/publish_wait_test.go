package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// waiting is a publish --wait that runs beside the test.
type waiting struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

func startWaiting(t *testing.T, env map[string]string, input string, args ...string) *waiting {
	t.Helper()
	w := &waiting{t: t, cmd: command(t, env, append([]string{"publish", "--kind", "payment.charge"}, args...)...)}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = strings.NewReader(input), &w.out, &w.err
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *waiting) exits(code int) {
	w.t.Helper()
	var exit *exec.ExitError
	if err := w.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	if got := w.cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("exit %d, want %d\n%s%s", got, code, &w.out, &w.err)
	}
}

// says checks what a person reads.
func (w *waiting) says(texts ...string) {
	w.t.Helper()
	for _, s := range texts {
		if !strings.Contains(w.out.String()+w.err.String(), s) {
			w.t.Errorf("%q is not in\n%s%s", s, &w.out, &w.err)
		}
	}
}

// without is an environment that lacks a variable.
func without(env map[string]string, name string) map[string]string {
	env = maps.Clone(env)
	delete(env, name)
	return env
}

// inStream waits until the stream of jobs has so many messages.
func inStream(t *testing.T, url string, n uint64) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		stream, err := js.Stream(t.Context(), "JOBS")
		if err == nil && stream.CachedInfo().State.Msgs == n {
			return
		}
	}
	t.Fatalf("the stream never had %d messages", n)
}

// Each end of a job has its words, its JSON and its exit code, and a repeat is told the same.
func TestPublishWaitsForTheResult(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["SETTLE_BACKOFF_MIN"] = "10ms"
	start(t, env, "work").await(`"msg":"serving"`)
	execute(t, env["DATABASE_URL"], `insert into shop.orders (order_id, customer_id, amount, currency, status) values ('3', 'c_1', 1, 'EUR', 'pending')`)
	put(t, env["SETTLE_PROVIDER_URL"]+"/faults", `[{"key": "order_2", "decline": true}]`)
	other := strings.Replace(charge(1), "12.50", "99.50", 1)
	for _, c := range []struct {
		body, status, result string
		code                 int
		says                 []string
	}{
		{charge(1), "finished", "succeeded", exitDone, []string{"line 1: done: payment.charge/order_1, task ", "1 done, 0 failed, 0 need review, 0 pending, 0 unknown, 0 refused"}},
		{charge(2), "failed", "declined", exitJobFailed, []string{"line 1: failed: payment.charge/order_2, task ", "1 jobs failed for good"}},
		{charge(3), "needs_review", "", exitReview, []string{"line 1: needs review: payment.charge/order_3, task ", "--status needs_review"}},
		{other, "", "", exitFailed, []string{"line 1: refused (conflict)", "1 refused"}},
	} {
		for _, replayed := range []bool{false, true} {
			w := startWaiting(t, without(env, "DATABASE_URL"), c.body, "--wait")
			w.exits(c.code)
			w.says(c.says...)
			if c.status != "" && strings.Contains(w.out.String(), "done before") != replayed {
				t.Errorf("replayed %v: %s", replayed, &w.out)
			}
		}
		w := startWaiting(t, env, c.body, "--wait=20s", "--json")
		w.exits(c.code)
		a := decodeAnswers(t, w.out.String())[0]
		if string(a.Status) != c.status || c.status != "" && (a.Task == 0 || a.Kind != "payment.charge" || !strings.HasPrefix(a.Key, "order_") || a.Replayed == nil || !*a.Replayed) {
			t.Errorf("%s", &w.out)
		}
		if !strings.Contains(string(a.Result), c.result) || c.result == "" && a.Result != nil {
			t.Errorf("result %s, want %s in it", a.Result, c.result)
		}
	}
	both := startWaiting(t, env, charge(2)+"\n"+charge(3)+"\n"+charge(4), "--wait")
	both.exits(exitJobFailed)
	both.says("1 done, 1 failed, 1 need review, 0 pending")
}

// A worker that dies in mid-call costs time, and nothing else: another one settles the job, and the caller hears it.
func TestPublishWaitsThroughTheDeathOfAWorker(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["SETTLE_LEASE"], env["SETTLE_ACK_WAIT"], env["SETTLE_BACKOFF_MIN"] = "1s", "1s", "10ms"
	put(t, env["SETTLE_PROVIDER_URL"]+"/faults", `[{"count": 1, "delay-after": "1m"}]`)
	worker := start(t, env, "work")
	w := startWaiting(t, without(env, "DATABASE_URL"), charge(7), "--wait=100s", "--json")
	awaitRow(t, env["DATABASE_URL"], `provider.charges where order_id = '7'`)
	worker.signal(syscall.SIGKILL)
	_ = worker.exit()
	start(t, env, "work")
	w.exits(exitDone)
	var result struct {
		Charge string `json:"charge_id"`
	}
	a := decodeAnswers(t, w.out.String())[0]
	if err := json.Unmarshal(a.Result, &result); err != nil || a.Status != idemstore.Finished || result.Charge == "" {
		t.Errorf("%s (%v)", &w.out, err)
	}
	awaitRow(t, env["DATABASE_URL"], fmt.Sprintf(`provider.charges where order_id = '7' having count(*) = 1 and min(charge_id) = '%s'`, result.Charge))
}

// Where nobody answers, the table does.
func TestPublishReadsTheTask(t *testing.T) {
	t.Parallel()
	env := servers(t)
	worker := start(t, env, "work")
	startWaiting(t, env, charge(1), "--wait=100s").exits(exitDone)
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Fatalf("work: exit %d", code)
	}
	read := startWaiting(t, env, charge(1), "--wait=20s")
	read.exits(exitDone)
	read.says("line 1: done: payment.charge/order_1, task 1, done before", "succeeded")

	alone := startWaiting(t, without(env, "DATABASE_URL"), charge(1), "--wait=100ms")
	alone.exits(exitPending)
	alone.says("line 1: pending (timeout): payment.charge/order_1 stays in the queue", "0 done, 0 failed, 0 need review, 1 pending")

	ownID := `{"kind":"payment.charge","body":` + charge(2) + `,"headers":{"Nats-Msg-Id":"mine"}}`
	if code, out, errOut := runSettle(t, env, strings.NewReader(ownID), "publish"); code != exitDone {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	code, out, errOut := runSettle(t, without(env, "DATABASE_URL"), strings.NewReader(ownID), "publish", "--wait=100s")
	if code != exitPending || !strings.Contains(out, "line 1: pending (unanswered): payment.charge/order_2 stays") || !strings.Contains(out, "only that one is answered") {
		t.Errorf("a message that the stream drops: exit %d, %s%s", code, out, errOut)
	}
}

// Ctrl-C ends the waiting and loses nothing: it says what goes on, and the same command hears of it later.
func TestPublishStopsToWait(t *testing.T) {
	t.Parallel()
	env := servers(t)
	both := charge(1) + "\n" + charge(2) + "\n"
	w := startWaiting(t, env, both, "--wait=100s")
	inStream(t, env["NATS_URL"], 2)
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	w.exits(exitPending)
	w.says("line 1: pending (stopped): payment.charge/order_1 stays in the queue and goes on", "line 2: pending (stopped): payment.charge/order_2",
		"2 jobs have no result yet", "nothing is lost", "Publish the same lines again with --wait")
	start(t, env, "work")
	again := startWaiting(t, env, both, "--wait=100s")
	again.exits(exitDone)
	again.says("2 done, 0 failed")
}

func TestPublishWaitNeedsADatabaseThatIsThere(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["DATABASE_URL"] = "postgres://app:secret@127.0.0.1:1/x"
	w := startWaiting(t, env, charge(1), "--wait")
	w.exits(exitFailed)
	w.says("connect to Postgres")
	if strings.Contains(w.err.String(), "secret") {
		t.Errorf("shows a password: %s", &w.err)
	}
	startWaiting(t, env, charge(1)).exits(exitDone) // without --wait it is not used
}

// The README's example prints what it shows, and its exit codes are those of the program.
func TestPublishWaitOfTheREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := fmt.Sprintf("exit code is %d if a job failed for good, %d if one needs a person, %d if one has no result yet", exitJobFailed, exitReview, exitPending)
	if !strings.Contains(string(text), codes) {
		t.Errorf("the README does not say: %s", codes)
	}
	env := servers(t)
	start(t, env, "work").await(`"msg":"serving"`)
	shown := regexp.MustCompile(`(?m)^    \$ .* settle publish .*--wait\n(?:    .*\n)+`).FindAllString(string(text), -1)
	if len(shown) != 1 {
		t.Fatalf("%d examples", len(shown))
	}
	runConsole(t, env, strings.ReplaceAll("\n"+shown[0], "\n    ", "\n")[1:])
}
