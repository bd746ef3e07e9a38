package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// oneOfEach puts a task of every status into a fresh database.
func oneOfEach(t *testing.T) (env map[string]string) {
	t.Helper()
	url := devtest.Database(t)
	execute(t, url, `
		insert into settle.tasks (kind, key, status, attempts, failures, duplicates, token, sending, unsure, lease_until,
			give_up_at, finished_at, external_id, last_error, payload, payload_hash, hash_algorithm, result, review_cause)
		select 'payment.charge', key, status, attempts, failures, duplicates, gen_random_uuid(), sending, unsure, lease,
			clock_timestamp() + interval '1 day', finished, external_id, last_error, '{"order_id":"private"}', '\x00', 'test', result,
			case when status = 'needs_review' then 'budget' end
		from (values
			('order_1', 'started', 1, 0, 0, true, false, clock_timestamp() + interval '1 hour', null::timestamptz, null, null, null),
			('order_2', 'unknown', 2, 1, 0, true, true, null, null, null, 'timeout', null),
			('order_3', 'finished', 2, 1, 3, true, true, null, clock_timestamp(), 'ch_3', null, '{"charge_id":"ch_3"}'),
			('order_4', 'failed', 1, 0, 0, true, false, null, clock_timestamp(), 'ch_4', 'card declined', null),
			('order/5', 'needs_review', 5, 5, 0, true, true, null, null, null, E'five timeouts\x1b[31m', null)
		) as t(key, status, attempts, failures, duplicates, sending, unsure, lease, finished, external_id, last_error, result);
		insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason)
		select id, 'worker', 2, 'started', 'unknown', 'no answer in time' from settle.tasks where key = 'order_2'`)
	return map[string]string{"DATABASE_URL": url}
}

// What a list says of a status can be asked for, in the list's words and in the table's.
func TestListByStatusInItsOwnWords(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	for given, want := range map[string]string{"started": "order_1", "pending": "order_1", "done": "order_3", "finished": "order_3", "needs review": "order/5"} {
		code, out, errOut := runSettle(t, env, nil, "tasks", "list", "--status", given)
		if code != exitDone || !strings.Contains(out, want) || strings.Count(out, "payment.charge") != 1 {
			t.Errorf("%s: exit %d, %s%s", given, code, out, errOut)
		}
	}
	if code, _, errOut := runSettle(t, env, nil, "tasks", "list", "--status", "lost"); code != exitUsage || !strings.Contains(errOut, "needs_review") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

func TestListUsesPlainWords(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	code, out, errOut := runSettle(t, env, nil, "tasks", "list")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	for key, words := range map[string]string{
		"order_1": "pending ", "order_2": "pending – being checked with the provider", "order_3": "done",
		"order_4": "failed", "order/5": "needs review",
	} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.Contains(line, key) && strings.Contains(line, "  "+words)
		}
		if !found {
			t.Errorf("no line with %s and %q:\n%s", key, words, out)
		}
	}
	if strings.Contains(out, "private") {
		t.Errorf("the list shows payloads:\n%s", out)
	}
}

func TestListSelects(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	for name, c := range map[string]struct {
		args []string
		keys []string
	}{
		"by status": {[]string{"--status", "finished"}, []string{"order_3"}},
		"by kind":   {[]string{"--kind", "report.create"}, nil},
		"a page":    {[]string{"--limit", "2", "--after", "1"}, []string{"order_2", "order_3"}},
	} {
		code, out, errOut := runSettle(t, env, nil, append([]string{"tasks", "list", "--json"}, c.args...)...)
		if code != exitDone {
			t.Errorf("%s: exit %d: %s", name, code, errOut)
		}
		var keys []string
		for line := range strings.Lines(out) {
			var o taskObject
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatalf("%s: %v in %s", name, err, line)
			}
			keys = append(keys, o.Key)
		}
		if strings.Join(keys, " ") != strings.Join(c.keys, " ") {
			t.Errorf("%s: %v, want %v", name, keys, c.keys)
		}
	}
}

func TestShowTellsTheStory(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	for task, says := range map[string][]string{
		"payment.charge/order_1": {"is pending: attempt 1 is at work"},
		"2":                      {"is being checked with the provider", "History", "no answer in time", "2, of which 1 failed", "timeout"},
		"payment.charge/order_3": {"is done: attempt 2 finished it", "as ch_3", "3 answered", "Nothing out of the ordinary"},
		"payment.charge/order_4": {"failed for good", "as ch_4", "card declined"},
		"payment.charge/order/5": {"needs review", "a person decides", "five timeouts", "asked again  ", "about once an hour"},
	} {
		code, out, errOut := runSettle(t, env, nil, "tasks", "show", task)
		if code != exitDone {
			t.Errorf("%s: exit %d: %s", task, code, errOut)
		}
		for _, s := range says {
			if !strings.Contains(out, s) {
				t.Errorf("%s: %q is not in\n%s", task, s, out)
			}
		}
		if strings.ContainsRune(out, '\x1b') || strings.Contains(out, "private") {
			t.Errorf("%s: shows control characters or the payload: %q", task, out)
		}
	}
}

func TestShowAsJSON(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	code, out, errOut := runSettle(t, env, nil, "tasks", "show", "payment.charge/order_3", "--json", "--content")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for name, want := range map[string]any{
		"task": 3.0, "kind": "payment.charge", "key": "order_3", "status": "finished", "attempts": 2.0,
		"external_id": "ch_3", "outcome": "shown", "duplicates": 3.0, "job": `{"order_id":"private"}`,
	} {
		if o[name] != want {
			t.Errorf("%s = %v, want %v", name, o[name], want)
		}
	}
	if o["message"] == "" || o["result"].(map[string]any)["charge_id"] != "ch_3" {
		t.Errorf("message %v, result %v", o["message"], o["result"])
	}
}

func TestATaskThatIsNotThere(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	for task, want := range map[string]int{"99": exitFailed, "payment.charge/order_99": exitFailed, "order_99": exitUsage} {
		if code, out, errOut := runSettle(t, env, nil, "tasks", "show", task); code != want || out != "" || errOut == "" {
			t.Errorf("%s: exit %d, want %d; stdout %q, stderr %q", task, code, want, out, errOut)
		}
	}
}
