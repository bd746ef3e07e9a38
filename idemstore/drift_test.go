package idemstore_test

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func TestStandings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := prepareFor(t, b, idemstore.Final)
	b.set(t, id, `finished_at = finished_at - interval '1 hour'`)
	open := b.performing(t, "open").TaskID
	other := claimOf("other")
	other.Kind = "other.kind"
	b.expect(t, idemstore.Inserted, other)
	got, err := b.Standings(t.Context(), kind, "order_final", "open", "other", "none")
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v (%v)", got, err)
	}
	final := got["order_final"]
	if final.TaskID != id || final.Status != idemstore.Finished || final.FinalFor < time.Hour || final.FinalFor > time.Hour+time.Minute {
		t.Errorf("final: %+v", final)
	}
	if s := got["open"]; s.TaskID != open || s.Status != idemstore.Started || s.FinalFor != 0 {
		t.Errorf("open: %+v", s)
	}
}

// How long a task has been due while nobody held it: a live lease holds it, one that has run out did until then, and one
// that is absurd never did.
func TestOpenTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	due := map[string]string{
		"live":    `lease_until = clock_timestamp() + interval '1 minute'`,
		"expired": `lease_until = clock_timestamp() - interval '5 minutes'`,
		"unknown": `status = 'unknown', unsure = true, lease_until = null, next_attempt_at = clock_timestamp() - interval '7 minutes'`,
		"waiting": `status = 'unknown', unsure = true, lease_until = null, next_attempt_at = clock_timestamp() + interval '7 minutes'`,
	}
	want := map[string]time.Duration{"live": -time.Minute, "expired": 5 * time.Minute, "unknown": 7 * time.Minute, "waiting": -7 * time.Minute}
	names := map[int64]string{}
	for name, change := range due {
		id := b.performing(t, name).TaskID
		names[id] = name
		b.set(t, id, `created_at = clock_timestamp() - interval '1 hour', next_attempt_at = clock_timestamp() - interval '1 hour'`)
		b.set(t, id, change)
	}
	b.performing(t, "young")
	prepareFor(t, b, idemstore.Final)
	prepareFor(t, b, idemstore.Parked)
	b.exec(t, `update settle.tasks set created_at = clock_timestamp() - interval '1 hour' where key like 'order%'`)
	open, err := b.OpenTasks(t.Context(), time.Minute, 100)
	if err != nil || len(open) != len(due) {
		t.Fatalf("%+v (%v)", open, err)
	}
	for _, o := range open {
		name := names[o.TaskID]
		if diff := (o.Overdue - want[name]).Abs(); diff > 30*time.Second || o.Age < time.Hour || o.Kind != kind || o.Origin.Sequence != 7 {
			t.Errorf("%s: %+v, want to be due for %s", name, o, want[name])
		}
	}
	if some, err := b.OpenTasks(t.Context(), 0, 2); err != nil || len(some) != 2 {
		t.Errorf("%d tasks (%v), want 2", len(some), err)
	}
	at, err := b.KindsAtWork(t.Context())
	if err != nil || len(at) != 1 || !at[kind] {
		t.Errorf("at work: %v (%v)", at, err)
	}
	b.exec(t, `update settle.tasks set lease_until = clock_timestamp() - interval '1 second' where status = 'started'`)
	if at, err := b.KindsAtWork(t.Context()); err != nil || len(at) != 0 {
		t.Errorf("at work: %v (%v)", at, err)
	}
}
