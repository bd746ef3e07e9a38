package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestDriftFindsNothing(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NATS_URL": url, "DATABASE_URL": devtest.Database(t)}
	if code, out, errOut := runSettle(t, env, nil, "drift"); code != exitDone || !strings.Contains(out, "agree") || errOut != "" {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if code, out, errOut := runSettle(t, env, nil, "drift", "--json"); code != exitDone || out != "" || errOut != "" {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
}

func TestDriftNeedsAPerson(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	url, js := withStrays(t)
	env["NATS_URL"] = url
	execute(t, env["DATABASE_URL"], `update settle.tasks set created_at = created_at - interval '1 hour'`)
	code, out, errOut := runSettle(t, env, nil, "drift", "--json")
	if code != exitNotHeld || !strings.Contains(errOut, "3 of 4 findings need a person") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	sorts := map[string]int{}
	for line := range strings.Lines(out) {
		var o driftObject
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		sorts[o.Finding] += int(o.Count)
		if o.What == "" || o.Do == "" || o.NeedsPerson != (o.Finding == "unrouted") {
			t.Errorf("%s", line)
		}
	}
	// Tasks 1 and 2 are open, and never had a message here.
	if sorts["unrouted"] != 5 || sorts["message_gone"] != 2 || len(sorts) != 2 {
		t.Errorf("found %v", sorts)
	}
	before := len(stored(t, js))
	code, out, _ = runSettle(t, env, nil, "drift")
	if code != exitNotHeld || strings.Count(out, "a person has to: ") != 3 || strings.ContainsRune(out, '\x1b') ||
		!strings.Contains(out, "payment.charge: 2 open tasks have no message any more; the oldest is 1h") {
		t.Errorf("exit %d: %s", code, out)
	}
	if n := len(stored(t, js)); n != before {
		t.Errorf("%d messages, were %d", n, before)
	}
	execute(t, env["DATABASE_URL"], `update settle.tasks set next_attempt_at = now() - interval '20 minutes', lease_until = case when lease_until is not null then now() - interval '18 minutes' end`)
	if _, _, errOut := runSettle(t, env, nil, "drift"); !strings.Contains(errOut, "4 of 4 findings") {
		t.Errorf("tasks that nobody takes up: %s", errOut)
	}
}

func TestDriftWrongUse(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1"}
	for args, want := range map[string]int{"": exitFailed, "--grace 0s": exitUsage, "--limit 0": exitUsage, "--recover-after 1ms": exitUsage, "more": exitUsage} {
		if code, out, errOut := runSettle(t, env, nil, append([]string{"drift"}, strings.Fields(args)...)...); code != want || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q: exit %d, want %d: %s%s", args, code, want, out, errOut)
		}
	}
}
