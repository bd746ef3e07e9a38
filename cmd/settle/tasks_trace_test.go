package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// publishOne sends one charge.
func publishOne(t *testing.T, env map[string]string, body string) {
	t.Helper()
	if code, out, errOut := runSettle(t, env, strings.NewReader(body+"\n"), "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatalf("publish: exit %d, %s%s", code, out, errOut)
	}
}

// A real story, with all that leaves a line: no answer, the budget used up, a message with other content, a note, days of
// nothing, a retry, a look-up, a repeat.
func TestTraceDrawsARealStory(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["SETTLE_MAX_FAILURES"], env["SETTLE_PROVIDER_TIMEOUT"] = "1", "500ms"
	put(t, env["SETTLE_PROVIDER_URL"]+"/faults", `[{"count": 1, "delay-after": "1m"}]`)
	work := func(every string) (stop func()) {
		env["SETTLE_RECOVER_EVERY"] = every
		worker := start(t, env, "work")
		worker.await(`"msg":"serving"`)
		return func() {
			worker.signal(os.Interrupt)
			if code := worker.exit(); code != exitDone {
				t.Errorf("work: exit %d", code)
			}
		}
	}
	stop := work("1h") // or it asks by itself what became of a charge whose budget is used up
	publishOne(t, env, charge(18452))
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_18452", "needs_review")
	publishOne(t, env, strings.Replace(charge(18452), "12.50", "13.50", 1))
	awaitRow(t, env["DATABASE_URL"], `settle.refusals where reason = 'conflict'`)
	stop()
	by := []string{"--actor", "anna", "payment.charge/order_18452", "--reason"}
	act := func(verb, reason string) {
		t.Helper()
		if code, out, errOut := runSettle(t, env, nil, append(append([]string{"tasks", verb}, by...), reason)...); code != exitDone {
			t.Fatalf("%s: exit %d, %s%s", verb, code, out, errOut)
		}
	}
	act("note", "the customer says that the money has left the account, and asks for a receipt before the end of the week")
	execute(t, env["DATABASE_URL"], `
		update settle.tasks set created_at = created_at - interval '76 hours', stored_at = stored_at - interval '76 hours',
			first_sent_at = first_sent_at - interval '76 hours';
		update settle.refusals set at = at - interval '76 hours';
		update settle.task_events set at = at - interval '76 hours'`)
	act("retry", "the provider is well again")
	stop = work("100ms")
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_18452", "finished")
	stop()

	code, out, errOut := runSettle(t, env, nil, "tasks", "trace", "1")
	if code != exitDone || errOut != "" {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	golden(t, "trace.txt", steady(out))
}

var unsteady = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "2026-11-29"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d`), "10:00:00"},
	{regexp.MustCompile(`00\.\d{3}`), "00.000"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), strings.Repeat("0af76519", 4)},
	{regexp.MustCompile(`\bch_[0-9A-Z]{26}\b`), "ch_" + strings.Repeat("X", 26)},
}

// steady replaces what differs from run to run, by as many characters.
func steady(out string) string {
	for _, u := range unsteady {
		out = u.pattern.ReplaceAllString(out, u.with)
	}
	return out
}

// golden compares with a file of testdata. SETTLE_TEST_UPDATE=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("SETTLE_TEST_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("drawn:\n%s\nwant:\n%s", got, want)
	}
}

func TestTraceFitsTheTerminalWhateverHappened(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	execute(t, env["DATABASE_URL"], `
		insert into settle.task_events (task_id, at, actor, attempt, old_status, new_status, reason, external_id, trace_id)
		select 2, clock_timestamp() + n * interval '9 days', 'worker', n, 'started', 'unknown', 'no outcome is known: ' || n, null, md5(n::text)
		from generate_series(1, 400) as n;
		insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason)
		select id, E'anna\x1b[31m', 1, status, status, repeat('x', 2000) || E'\n\x1b[2J ' || repeat('wörter ', 90) from settle.tasks`)
	for _, task := range []string{"1", "2", "3", "4", "5"} {
		code, out, errOut := runSettle(t, env, nil, "tasks", "trace", task)
		if code != exitDone || errOut != "" {
			t.Fatalf("%s: exit %d: %s", task, code, errOut)
		}
		lines := strings.Split(out, "\n")
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 100 || strings.TrimRight(line, " ") != line {
				t.Errorf("%s: %d columns: %q", task, n, line)
			}
		}
		if len(lines) > 300 || strings.ContainsRune(out, '\x1b') || strings.Contains(out, "private") {
			t.Errorf("%s: %d lines, a control character or the payload:\n%s", task, len(lines), out)
		}
	}
	if _, out, _ := runSettle(t, env, nil, "tasks", "trace", "2"); !strings.Contains(out, "moments are left out") || !strings.Contains(out, "no outcome is known: 400") {
		t.Errorf("a long story:\n%s", out)
	}
	if code, _, errOut := runSettle(t, env, nil, "tasks", "trace", "99"); code != exitFailed || errOut == "" {
		t.Errorf("a task that is not there: exit %d: %s", code, errOut)
	}
}

func TestTraceAsJSON(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	code, out, errOut := runSettle(t, env, nil, "tasks", "trace", "--json", "payment.charge/order_2")
	if code != exitDone || errOut != "" {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var o tracedObject
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		t.Fatal(err)
	}
	if o.Task != 2 || o.Status != "unknown" || len(o.Timeline) != 2 {
		t.Fatalf("%s", out)
	}
	last := o.Timeline[1]
	if last.What != story.Saved || last.Attempt != 2 || last.Status != "unknown" || last.Settle != "nak" || last.At.IsZero() {
		t.Errorf("%+v", last)
	}
}

func TestWhatIsSaidAgainAndAgainIsSaidTwice(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	var events []idemstore.Event
	for n := range 200 {
		events = append(events, idemstore.Event{At: at.Add(time.Duration(n+1) * time.Hour), Actor: story.Worker, Attempt: n + 1,
			OldStatus: idemstore.Started, NewStatus: idemstore.Unknown, Reason: "no outcome is known"})
	}
	line := story.Timeline(idemstore.Task{CreatedAt: at, Status: idemstore.Unknown}, events, nil)
	if len(line) != 3 || line[2].Times != 199 || line[2].Attempt != 200 {
		t.Errorf("%+v", line)
	}
}

func TestAWaitIsToldInItsTwoLargestUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		90 * time.Second: "1 min 30 s", time.Hour: "1 h", 76*time.Hour + 20*time.Minute: "3 d 4 h", 25*time.Hour - time.Second: "1 d",
		61 * time.Minute: "1 h 1 min", time.Minute: "1 min",
	} {
		if got := story.Wait(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
