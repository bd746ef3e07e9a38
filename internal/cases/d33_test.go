package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// 202 is neither done nor failed: the id is stored at once, and from then on that id is polled. A worker that dies
// right after it leaves nothing for its successor to create.
func TestD33AcceptedThenReady(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.faults(provider.Fault{Pending: 8 * time.Second})
	saved := rig.Point{Span: "settle.save", Edge: rig.End, Action: rig.Kill}
	first := s.startWorker(saved)
	j := report(1)
	s.publish(j)
	first.AwaitPoint(saved, soon)
	if e := first.Wait(soon); !e.Killed() {
		t.Fatalf("the first worker ended with %s", e)
	}
	made := query[string](s, `select report_id from provider.reports`)
	task, _ := s.find(j)
	if len(made) != 1 || task.ExternalID != made[0] || task.Status != idemstore.Unknown {
		t.Errorf("%s with id %q; the provider accepted %q", task.Status, task.ExternalID, made)
	}

	second := s.startWorker()
	var readyIn time.Duration
	task = s.await(j, "finished", func(t idemstore.Task) bool {
		if t.Status == idemstore.Finished {
			s.scan(`select (extract(epoch from $1 - ready_at) * 1e9)::bigint from provider.reports`, []any{t.FinishedAt}, &readyIn)
		}
		return t.Status == idemstore.Finished
	})
	s.holds(j)
	drained(t, second)
	w, _ := s.requests(j)
	polls := query[int](s, `select count(*)::int from provider.requests where method = 'GET' and path = '/reports/' || $1`, task.ExternalID)
	if w != 1 || polls[0] < 2 || readyIn < 0 {
		t.Errorf("W=%d, %d polls of the id, finished %s after it was ready", w, polls[0], readyIn)
	}
	if task.Failures != 0 {
		t.Errorf("waiting cost %d failures", task.Failures)
	}
}

// Killed with the 202 in hand and not stored: the id is learnt from the look-up by key, and polled like any other.
func TestD33KilledBeforeTheIDIsStored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.faults(provider.Fault{Pending: 3 * time.Second})
	accepted := rig.Point{Span: "HTTP POST", Edge: rig.End, Action: rig.Kill}
	first := s.startWorker(accepted)
	j := report(1)
	s.publish(j)
	first.AwaitPoint(accepted, soon)
	if e := first.Wait(soon); !e.Killed() {
		t.Fatalf("the first worker ended with %s", e)
	}
	if task, _ := s.find(j); task.Status != idemstore.Started || task.ExternalID != "" {
		t.Errorf("%s with id %q; nothing was stored", task.Status, task.ExternalID)
	}
	second := s.startWorker()
	task := s.awaitStatus(j, idemstore.Finished)
	s.holds(j)
	drained(t, second)
	w, byKey := s.requests(j)
	polls := query[int](s, `select count(*)::int from provider.requests where method = 'GET' and path = '/reports/' || $1`, task.ExternalID)
	if w != 1 || byKey != 1 || polls[0] < 1 {
		t.Errorf("W=%d, %d look-ups by key, %d by id; want 1, 1 and some", w, byKey, polls[0])
	}
}

// What was accepted can still end in an error. The id stays on the row.
func TestD33AcceptedThenFailed(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.faults(provider.Fault{Pending: 500 * time.Millisecond, PendingFails: true})
	s.serve(referenceKinds)
	j := report(1)
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Failed)
	s.awaitSettled()
	if made := query[string](s, `select report_id from provider.reports`); len(made) != 1 || task.ExternalID != made[0] {
		t.Errorf("id %q, the provider accepted %q", task.ExternalID, made)
	}
	if w, _ := s.requests(j); w != 1 || len(s.effects(j)) != 0 {
		t.Errorf("W=%d, effects %q", w, s.effects(j))
	}
}
