package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// What stands beside a task is told with it: that its kind is paused, which messages its key has refused, and which of them it
// could take the content of.
func TestShowSaysWhatStandsBeside(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	execute(t, env["DATABASE_URL"], `
		insert into settle.refusals (kind, key, reason, stream, sequence, subject, body, body_size, digest, task_id, republished_at, republished_as)
		select 'payment.charge', 'order_5', 'conflict', 'JOBS', n, 'jobs.payment.charge', '{}', 2, int4send(n), id,
			case when n = 1 then clock_timestamp() end, case when n = 1 then 77 end
		from generate_series(1, 2) n, settle.tasks where key = 'order_5'`)
	if code, _, errOut := runSettle(t, env, nil, "pause", "payment.charge", "--reason", "the bank moves", "--actor", "anna"); code != exitDone {
		t.Fatalf("pause: exit %d, %s", code, errOut)
	}
	for key, says := range map[string][]string{
		"order_5": {"its kind is   paused, since ", " by anna: the bank moves", "refusal 2  ", "refusal 1  ", "published again, as message 77",
			"settle tasks supersede 5 --refusal 2 --reason TEXT --if-attempts 3"},
		"order_8": {"its kind is   paused, since "},
	} {
		if code, out, _ := runSettle(t, env, nil, "tasks", "show", "payment.charge/"+key); code != exitDone || !containsAll(out, says...) {
			t.Errorf("%s: exit %d, %q is not all in\n%s", key, code, says, out)
		}
	}
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "3"); strings.Contains(out, "its kind is") || strings.Contains(out, "refusal") {
		t.Errorf("of what is done: %s", out)
	}
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "5", "--json"); !containsAll(out, `"kind_mode":"paused"`, `"refusals":[2,1]`) {
		t.Errorf("as JSON: %s", out)
	}
	execute(t, env["DATABASE_URL"], `update settle.tasks set resend_once = true where key = 'order_2'`)
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "2"); !strings.Contains(out, "one more request  is permitted") || strings.Contains(out, "send-again") {
		t.Errorf("of what may be sent once more: %s", out)
	}
	execute(t, env["DATABASE_URL"], `update settle.tasks set kind = 'no.such' where key = 'order_1'`)
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "1"); !strings.Contains(out, "does not know the kind") {
		t.Errorf("of a kind that is not of this build: %s", out)
	}
}

// A task that ended otherwise than an attempt proves does not look as if all were well.
func TestShowOfABeliedTask(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	execute(t, env["DATABASE_URL"], `update settle.tasks set evidence_id = 'ch_late' where key in ('order_3', 'order_4')`)
	for _, key := range []string{"order_3", "order_4"} {
		if _, out, _ := runSettle(t, env, nil, "tasks", "show", "payment.charge/"+key); !strings.Contains(strings.Split(out, "\n")[0], "another effect, ch_late") {
			t.Errorf("%s: %s", key, out)
		}
	}
	execute(t, env["DATABASE_URL"], `update settle.tasks set evidence_id = external_id`)
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "payment.charge/order_3"); strings.Contains(out, "another effect") {
		t.Errorf("proof of the same effect: %s", out)
	}
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// What was said again and again is said once more and counted, and of a long history the middle is left out.
func TestShowOfALongHistory(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	history := func(key, reason string, n int) (lines []string, json string) {
		execute(t, env["DATABASE_URL"], fmt.Sprintf(`
			insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, trace_id)
			select id, 'worker', n, 'started', 'unknown', %s, n::text from generate_series(1, %d) n, settle.tasks where key = '%s'`, reason, n, key))
		_, out, _ := runSettle(t, env, nil, "tasks", "show", "payment.charge/"+key)
		_, json, _ = runSettle(t, env, nil, "tasks", "show", "--json", "payment.charge/"+key)
		_, out, _ = strings.Cut(out, "History\n")
		out, _, _ = strings.Cut(out, "\n\n")
		return strings.Split(out, "\n"), json
	}
	same, json := history("order_1", `'cannot tell'`, 300)
	if len(same) != 2 || !strings.Contains(same[0], "attempt 1 ") || !containsAll(same[1], "attempt 300", "the same, 300 times in all") || strings.Count(json, "cannot tell") != 300 {
		t.Errorf("%q", same)
	}
	if twice, _ := history("order_5", `'cannot tell'`, 2); len(twice) != 2 || !strings.Contains(twice[1], "cannot tell") {
		t.Errorf("%q", twice)
	}
	long, json := history("order_2", `'reason ' || n`, 300)
	if len(long) != historyHead+1+historyTail || !strings.Contains(long[historyHead], "250 lines are left out") ||
		!strings.Contains(long[0], "reason 1 ") || !strings.Contains(long[len(long)-1], "reason 300") || strings.Count(json, "reason ") < 300 {
		t.Errorf("%q", long)
	}
}

// A kind that nobody has is a mistake; one of which there is nothing is not.
func TestListsOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	execute(t, env["DATABASE_URL"], `
		insert into settle.refusals (kind, reason, stream, sequence, subject, body, body_size, digest)
		values ('no.worker', 'unknown_kind', 'JOBS', 1, 'jobs.no.worker', '{}', 2, '\x01')`)
	for args, want := range map[string]int{
		"tasks list --kind no.such": exitUsage, "tasks find 1 --kind no.such": exitUsage, "refusals list --kind no.such": exitUsage,
		"tasks list --kind no.worker":      exitUsage,
		"tasks list --kind payment.charge": exitDone, "tasks find 1 --kind payment.charge": exitFailed, "refusals list --kind payment.charge": exitDone,
		"refusals list --kind no.worker --reason conflict": exitDone,
	} {
		code, out, errOut := runSettle(t, env, nil, strings.Fields(args)...)
		if code != want || code == exitUsage && (out != "" || !strings.Contains(errOut, "knows no kind")) {
			t.Errorf("%s: exit %d, want %d: %s%s", args, code, want, out, errOut)
		}
	}
}
