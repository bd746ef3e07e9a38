package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// oldTasks is oneOfEach, with the retention of the final ones over for days, and another three hundred of them.
func oldTasks(t *testing.T) (env map[string]string) {
	t.Helper()
	env = oneOfEach(t)
	execute(t, env["DATABASE_URL"], `
		insert into settle.tasks (kind, key, status, token, sending, give_up_at, finished_at, payload, payload_hash, hash_algorithm, result)
		select 'payment.charge', 'old_' || i, 'finished', gen_random_uuid(), false, now(), now(), '{}', '\x00', 'test', '{"charge_id":"ch"}'
		from generate_series(1, 300) i;
		update settle.tasks set finished_at = case when finished_at is not null then now() - interval '40 days' end, expires_at = now() - interval '9 days'`)
	return env
}

func archiveRun(t *testing.T, env map[string]string, args ...string) (r archiveReport) {
	t.Helper()
	code, out, errOut := runSettle(t, env, nil, append([]string{"archive", "--json"}, args...)...)
	if code != exitDone {
		t.Fatalf("%v: exit %d: %s", args, code, errOut)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r
}

func TestArchiveCommand(t *testing.T) {
	t.Parallel()
	env := oldTasks(t)
	if r := archiveRun(t, env, "--dry-run"); !r.DryRun || r.Archived != 302 || r.Bytes == 0 {
		t.Errorf("a dry run says %+v", r)
	}
	if r := archiveRun(t, env, "--limit", "140"); r.DryRun || r.Archived != 140 {
		t.Errorf("with a limit: %+v", r)
	}
	if code, out, errOut := runSettle(t, env, nil, "archive"); code != exitDone || !strings.Contains(out, "162 tasks archived") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if r := archiveRun(t, env); r != (archiveReport{}) {
		t.Errorf("once more: %+v", r)
	}
	code, out, errOut := runSettle(t, env, nil, "tasks", "show", "3", "--content")
	if code != exitDone || !strings.Contains(out, "archived  ") || !strings.Contains(out, `{"charge_id":"ch_3"}`) || !strings.Contains(out, `"private"`) {
		t.Errorf("exit %d: the story of an archived task lacks its parts: %s%s", code, out, errOut)
	}
}

func TestArchiveRestoreCommand(t *testing.T) {
	t.Parallel()
	env := oldTasks(t)
	archiveRun(t, env)
	for name, args := range map[string][]string{
		"no reason": {"3"}, "blank reason": {"3", "--reason", " "}, "no task": {"--reason", "refund"},
		"no time": {"3", "--reason", "refund", "--keep-for", "0s"}, "no such name": {"order_3", "--reason", "refund"},
	} {
		if code, out, errOut := runSettle(t, env, nil, append([]string{"archive", "restore"}, args...)...); code != exitUsage || out != "" || errOut == "" {
			t.Errorf("%s: exit %d: %s%s", name, code, out, errOut)
		}
	}
	code, out, errOut := runSettle(t, env, nil, "archive", "restore", "--json", "--reason", "refund", "payment.charge/order_3", "--actor", "anna", "4")
	if code != exitDone || strings.Count(out, `"outcome":"done"`) != 2 {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	code, out, errOut = runSettle(t, env, nil, "archive", "restore", "--reason", "refund", "3", "6", "99999")
	if code != exitFailed || strings.Count(errOut, "not archived") != 1 || strings.Count(errOut, "no task 99999") != 1 || strings.Count(out, "are back") != 1 {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "3"); !strings.Contains(out, "anna") || !strings.Contains(out, "refund") || strings.Contains(out, "archived  ") {
		t.Errorf("the story: %s", out)
	}
	if r := archiveRun(t, env); r.Archived != 0 {
		t.Errorf("archived again at once: %+v", r)
	}
}

func TestArchiveForgetsOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	env := oldTasks(t)
	if r := archiveRun(t, env); r.Forgotten != 0 {
		t.Errorf("forgot without being asked: %+v", r)
	}
	env["SETTLE_PROOF_RETENTION"] = "720h" // thirty days
	if code, out, errOut := runSettle(t, env, nil, "archive"); code != exitUsage || out != "" || !strings.Contains(errOut, "NATS_URL") {
		t.Errorf("without the stream: exit %d: %s%s", code, out, errOut)
	}
	url, js := devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	env["NATS_URL"] = url
	// D-39: no shorter than for what a worker would start.
	if code, out, errOut := runSettle(t, env, nil, "archive", "--replay-horizon", "719h30m"); code != exitUsage || out != "" ||
		!strings.Contains(errOut, "SETTLE_PROOF_RETENTION") || !strings.Contains(errOut, "719h30m0s for replays") {
		t.Errorf("too short: exit %d: %s%s", code, out, errOut)
	}
	execute(t, env["DATABASE_URL"], `
		insert into settle.task_refs (name, value, task_id) select 'customer', 'c_1', id from settle.tasks;
		update settle.tasks set last_duplicate_at = now() where key = 'order_3'`)
	if r := archiveRun(t, env, "--dry-run"); r.Forgotten != 301 {
		t.Errorf("a dry run says %+v", r)
	}
	if r := archiveRun(t, env); r.Forgotten != 301 || r.Swept != 301 {
		t.Errorf("forgot %+v", r)
	}
	if code, out, _ := runSettle(t, env, nil, "tasks", "list"); code != exitDone || strings.Count(out, "\n") != 5 || !strings.Contains(out, "order_3") {
		t.Errorf("left is: %s", out)
	}
}

func TestArchiveWrongUse(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	for _, args := range [][]string{{"--limit", "0"}, {"--proof-retention", "-1s"}, {"--proof-retention", "soon"}, {"5"}} {
		if code, out, errOut := runSettle(t, env, nil, append([]string{"archive"}, args...)...); code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errOut)
		}
	}
	if r := archiveRun(t, env); r != (archiveReport{}) {
		t.Errorf("of nothing: %+v", r)
	}
}
