package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// A pause and its end, as a person sees them: what is done, what was so already, what would be done, and what is kept.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	execute(t, env["DATABASE_URL"], `
		insert into settle.tasks (kind, key, status, token, sending, give_up_at, payload, payload_hash, hash_algorithm)
		values ('other.kind', 'k', 'started', gen_random_uuid(), false, clock_timestamp(), '{}', '\x00', 'test')`)
	for i, step := range []struct {
		args    []string
		code    int
		outcome string
		mode    string
		was     string
		reason  string
	}{
		{[]string{"pause", "payment.charge", "--dry-run"}, exitDone, "dry_run", "paused", "running", ""},
		{[]string{"resume", "payment.charge", "--reason", "nobody paused it"}, exitDone, "unchanged", "running", "running", ""},
		{[]string{"pause", "payment.charge", "--reason", "outage", "--actor", "anna"}, exitDone, "done", "paused", "running", "outage"},
		{[]string{"pause", "payment.charge", "--reason", "again"}, exitDone, "unchanged", "paused", "paused", "outage"},
		{[]string{"pause", "payment.charge", "--keep-asking", "--reason", "look only"}, exitDone, "done", "asking", "paused", "look only"},
		{[]string{"pause", "other.kind", "--reason", "of another program"}, exitDone, "done", "paused", "running", "of another program"},
		{[]string{"pause", "no.such", "--reason", "so"}, exitUsage, "", "", "", ""},
		{[]string{"resume", "--reason", "over", "payment.charge"}, exitDone, "done", "running", "asking", "over"},
	} {
		code, out, errOut := runSettle(t, env, nil, append(step.args, "--json")...)
		var o controlObject
		if code != step.code || code == exitDone && json.Unmarshal([]byte(out), &o) != nil {
			t.Errorf("step %d: exit %d, %s%s", i, code, out, errOut)
		}
		if o.Outcome != step.outcome || o.Mode != step.mode || o.Was != step.was || o.Reason != step.reason {
			t.Errorf("step %d: %s", i, out)
		}
	}
	if got := value(t, env, `select string_agg(format('%s %s by %s', kind, mode, actor = 'anna'), ', ' order by id) from settle.controls`); got !=
		"payment.charge paused by t, payment.charge asking by f, other.kind paused by f, payment.charge running by f" {
		t.Errorf("kept: %s", got)
	}
}

func TestKindsSayWhatIsPaused(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	if code, _, errOut := runSettle(t, env, nil, "pause", "report.create", "--keep-asking", "--reason", "wait for \x1b[31mit", "--actor", "anna"); code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	for args, want := range map[string]string{
		"kinds --kind report.create":         "paused, and goes on asking, since 20",
		"kinds --kind report.create ":        "by anna: wait for \uFFFD[31mit",
		"kinds --kind payment.charge":        "now           running",
		"kinds --kind report.create --json":  `"control":{"mode":"asking","actor":"anna","reason":"wait for`,
		"kinds --kind payment.charge --json": `"control":{"mode":"running"}`,
	} {
		code, out, errOut := runSettle(t, env, nil, strings.Fields(args)...)
		if code != exitDone || !strings.Contains(out, want) || errOut != "" {
			t.Errorf("%s: exit %d, %q is not in\n%s%s", args, code, want, out, errOut)
		}
	}
	away := map[string]string{"DATABASE_URL": "postgres://a:secret@127.0.0.1:1/x"}
	code, out, errOut := runSettle(t, away, nil, "kinds")
	if code != exitDone || strings.Contains(out, "now ") || !strings.Contains(errOut, "not known") || strings.Contains(errOut, "secret") {
		t.Errorf("without a database: exit %d, %s%s", code, out, errOut)
	}
	if code, out, errOut := runSettle(t, nil, nil, "kinds"); code != exitDone || strings.Contains(out, "now ") || errOut != "" {
		t.Errorf("no database named: exit %d, %s%s", code, out, errOut)
	}
}

// A worker obeys, and goes on when it may. Whom it calls are a webhook and a subject, and neither is shown in its log.
func TestAWorkerIsPausedAndCalls(t *testing.T) {
	t.Parallel()
	env := servers(t)
	posted := make(chan string, 9)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		posted <- string(text)
	}))
	t.Cleanup(hook.Close)
	conn, err := nats.Connect(env["NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	published := make(chan *nats.Msg, 9)
	if _, err := conn.ChanSubscribe("events.alerts", published); err != nil {
		t.Fatal(err)
	}
	env["SETTLE_LEASE"], env["SETTLE_ACK_WAIT"] = "1s", "1s"
	env["SETTLE_ALERT_WEBHOOK"], env["SETTLE_ALERT_SUBJECT"] = hook.URL+"/T0/secret", "events.alerts"
	if code, _, errOut := runSettle(t, env, nil, "pause", "payment.charge", "--reason", "not yet"); code != exitDone {
		t.Fatalf("pause: exit %d, %s", code, errOut)
	}
	worker := start(t, env, "work")
	worker.await(`"mode":"paused"`)
	worker.await(`"msg":"serving"`)
	jobs := charge(1) + "\n" + strings.Replace(charge(1), "12.50", "13.50", 1) + "\n"
	if code, out, errOut := runSettle(t, env, strings.NewReader(jobs), "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatalf("publish: exit %d, %s%s", code, out, errOut)
	}
	if code, out, errOut := runSettle(t, env, nil, "resume", "payment.charge", "--reason", "now"); code != exitDone || !strings.Contains(out, "payment.charge is running") {
		t.Fatalf("resume: exit %d, %s%s", code, out, errOut)
	}
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_1", "finished")
	first, second := receive(t, posted), string(receive(t, published).Data)
	if first != second || !strings.Contains(first, `"cause":"conflict payment.charge"`) {
		t.Errorf("posted %s, published %s", first, second)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("work: exit %d", code)
	}
	if log := strings.Join(worker.all, "\n"); strings.Contains(log, "secret") || !strings.Contains(log, hook.URL) {
		t.Errorf("the log: %s", log)
	}

	code, out, errOut := runSettle(t, env, nil, "alerts", "--json")
	var a alertObject
	if err := json.Unmarshal([]byte(out), &a); err != nil || code != exitDone || a.Cause != "conflict payment.charge" || a.Count != 1 || a.Task == 0 || a.ToldAt == nil {
		t.Errorf("alerts: exit %d, %s%s", code, out, errOut)
	}
	if _, out, _ := runSettle(t, env, nil, "alerts"); !strings.Contains(out, "conflict payment.charge  1 ") || !strings.Contains(out, a.Text) {
		t.Errorf("alerts: %s", out)
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("it never came")
	}
	return v
}

func TestNoAlerts(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	if code, out, _ := runSettle(t, env, nil, "alerts"); code != exitDone || !strings.Contains(out, "Nobody was called") {
		t.Errorf("exit %d, %s", code, out)
	}
	if code, out, _ := runSettle(t, env, nil, "alerts", "--json"); code != exitDone || out != "" {
		t.Errorf("exit %d, %s", code, out)
	}
}
