package idemstore_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func TestRestore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.oldFinal(t, "order_1")
	if err := b.Restore(t.Context(), id, week, by("no")); !errors.Is(err, idemstore.ErrNotArchived) {
		t.Errorf("not archived: %v", err)
	}
	if err := b.Restore(t.Context(), id+1, week, by("no")); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("not there: %v", err)
	}
	before := b.task(t, id)
	b.archiveAll(t, idemstore.Slice{})
	if err := b.Restore(t.Context(), id, week, by("refund\x00")); err != nil {
		t.Fatal(err)
	}
	after := b.task(t, id)
	if b.archived(t, id) || !bytes.Equal(after.Payload, before.Payload) || !bytes.Equal(after.Result, before.Result) || after.Answer != before.Answer {
		t.Errorf("restored as %+v, was %+v", after, before)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks_archive`); n != 0 {
		t.Errorf("%d rows are left in the archive", n)
	}
	events, err := b.Events(t.Context(), id)
	if err != nil || len(events) != 1 || events[0].Actor != "anna" || !strings.Contains(events[0].Reason, "refund") || events[0].NewStatus != idemstore.Finished || events[0].TraceID != trace[3:35] {
		t.Errorf("the audit says %+v (%v)", events, err)
	}
	if got, _ := b.archiveAll(t, idemstore.Slice{}); got.Tasks != 0 {
		t.Error("archived again at once")
	}
	b.expect(t, idemstore.Final, claimOf("order_1"))
}

// Restoring waits for a row that is being archived, and then sees the archive as it is by then.
func TestRestoreOfWhatIsBeingArchived(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.oldFinal(t, "order_1")
	commit := hold(t, b.pool, `with a as (insert into settle.tasks_archive (task_id, payload, result) select id, payload, result from settle.tasks)
		update settle.tasks set archived_at = clock_timestamp(), payload_digest = sha256(payload), payload = '', result = null`)
	restoring := async(func() (bool, error) { return true, b.Restore(t.Context(), id, week, by("refund")) })
	b.awaitWaiting(t, 1)
	commit()
	if r := <-restoring; r.err != nil {
		t.Fatal(r.err)
	}
	if task := b.task(t, id); b.archived(t, id) || string(task.Result) != `{"id":"ch_1"}` || len(task.Payload) == 0 {
		t.Errorf("restored as %+v", task)
	}
}

// D-39: key rows go only when nobody has heard of them for long, and what belongs to them goes too.
func TestD39Forget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const proof = 20 * 24 * time.Hour // the old ones are a month old
	gone := b.oldFinal(t, "gone")
	b.archiveAll(t, idemstore.Slice{})
	archivedLater := b.oldFinal(t, "never archived")
	b.exec(t, `insert into settle.task_refs (name, value, task_id) values ('customer', 'c_1', $1)`, gone)
	b.exec(t, `insert into settle.task_events (task_id, actor, attempt, reason) values ($1, 'worker', 1, 'x')`, gone)
	b.exec(t, `insert into settle.steps (task_id, idx, total, outcome) values ($1, 0, 1, 'imported')`, gone)
	r := refusalOf("{")
	r.TaskID = gone
	if err := b.Refuse(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	kept := map[string]int64{"young": b.performing(t, "young").TaskID, "started": b.performing(t, "started").TaskID}
	b.save(t, finished(b.task(t, kept["young"]).Fence))
	kept["unknown"] = b.performing(t, "unknown").TaskID
	b.save(t, unknown(b.task(t, kept["unknown"]).Fence))
	review := unknown(b.performing(t, "needs_review"))
	review.Status = idemstore.NeedsReview
	b.save(t, review)
	kept["needs_review"] = review.TaskID
	for _, name := range []string{"started", "unknown", "needs_review"} {
		b.set(t, kept[name], `created_at = created_at - interval '2 years', expires_at = clock_timestamp() - interval '1 year'`)
	}
	for name, change := range map[string]string{
		"repeated yesterday": `last_duplicate_at = clock_timestamp() - interval '1 day'`,
		"in its retention":   `expires_at = clock_timestamp() + interval '1 day'`,
		"with an event":      `answer = answer`,
	} {
		kept[name] = b.oldFinal(t, name)
		b.set(t, kept[name], change)
	}
	b.exec(t, `insert into settle.outbox (task_id, name, subject, key, payload) values ($1, 'n', 's', 'k', '{}')`, kept["with an event"])

	if _, err := b.Forget(t.Context(), idemstore.Slice{}, 0); err == nil {
		t.Error("0 is for ever")
	}
	if dry, err := b.Forget(t.Context(), idemstore.Slice{Dry: true}, proof); err != nil || dry.Tasks != 2 || !dry.Done {
		t.Errorf("a dry run says %+v (%v)", dry, err)
	}
	first, err := b.Forget(t.Context(), idemstore.Slice{Limit: 1}, proof)
	if err != nil || first.Tasks != 1 || first.Done {
		t.Fatalf("forgot %+v (%v), want one and more to come", first, err)
	}
	if last, err := b.Forget(t.Context(), idemstore.Slice{After: first.Through}, proof); err != nil || last.Tasks != 1 || !last.Done {
		t.Errorf("forgot %+v (%v)", last, err)
	}
	for _, id := range []int64{gone, archivedLater} {
		if _, err := b.FindByID(t.Context(), id); !errors.Is(err, idemstore.ErrNotFound) {
			t.Errorf("task %d: %v", id, err)
		}
	}
	for name, id := range kept {
		if _, err := b.FindByID(t.Context(), id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := query[string](t, b.pool, `select concat_ws(' ', (select count(*) from settle.task_events where task_id = 1),
		(select count(*) from settle.tasks_archive), (select count(*) from settle.refusals where task_id is null))`); left != "0 0 1" {
		t.Errorf("events, archive, refusals without a task: %s", left)
	}
	again := claimOf("gone")
	again.Payload, again.Hash = []byte(`{}`), []byte("other") // nobody remembers what it was
	b.expect(t, idemstore.Inserted, again)
}

// Search terms of forgotten tasks are swept page by page, and those of others stay.
func TestSweepRefs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.performing(t, "order_1").TaskID
	b.exec(t, `insert into settle.task_refs (name, value, task_id)
		select 'customer', 'c_' || i % 10, case when i % 100 = 0 then $1 else 1000000 + i end from generate_series(1, 12000) i
		on conflict do nothing`, id)
	total, calls := 0, 0
	for from, done := (idemstore.RefPlace{}), false; !done; calls++ {
		n, next, over, err := b.SweepRefs(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		total, from, done = total+n, next, over
	}
	if left := query[int](t, b.pool, `select count(*) from settle.task_refs`); total != 11880 || left != 1 || calls < 3 {
		t.Errorf("swept %d in %d calls, %d are left", total, calls, left)
	}
}
