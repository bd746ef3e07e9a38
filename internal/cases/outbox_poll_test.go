package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// accepting is a stage whose provider accepts a charge with 202 and ends it later, and whose first worker has died with
// that: its id is stored, or is still to be learnt.
func accepting(t *testing.T, f provider.Fault, died rig.Point) *stage {
	t.Helper()
	s := newChain(t, 0)
	s.faults(f)
	first := s.start(rig.WorkerOptions{Name: "chain", Points: []rig.Point{died}})
	s.publish(charge("1"))
	first.AwaitPoint(died, soon)
	if e := first.Wait(soon); !e.Killed() {
		t.Fatalf("the first worker ended with %s", e)
	}
	if left, events := s.waiting(), s.emitted(); len(left) != 0 || len(events) != 0 {
		t.Errorf("the outbox holds %q, and %d events are out: the charge is pending", left, len(events))
	}
	s.settings.Config.Lease = 5 * time.Second
	return s
}

// deaths are the two sides of storing the id that came with the 202.
var deaths = map[string]rig.Point{
	"id stored":     {Span: "settle.save", Edge: rig.End, Action: rig.Kill},
	"id not stored": {Span: "HTTP POST", Edge: rig.End, Action: rig.Kill},
}

// A charge that is accepted and ends later is asked about and not sent again; what follows it goes out when it is final,
// once, though the process that sent it is dead, and so is its message.
func TestD33ChainFollowsAPoll(t *testing.T) {
	t.Parallel()
	each(t, deaths, func(t *testing.T, died rig.Point) {
		s := accepting(t, provider.Fault{Pending: 3 * time.Second}, died)
		s.purge()
		s.recovering()
		w := s.startChain()
		s.chained(1, "1")
		s.inOrder("1")
		drained(t, w)
		if sent, _ := s.requests(charge("1")); sent != 1 {
			t.Errorf("W=%d, want 1", sent)
		}
		var early bool
		s.scan(`select finished_at < ready_at from settle.tasks, provider.charges where kind = 'payment.charge'`, nil, &early)
		if early {
			t.Error("the charge was final before it was ready")
		}
	})
}

// A charge that is declined in the end has no event and no receipt.
func TestD33NothingFollowsADecline(t *testing.T) {
	t.Parallel()
	each(t, deaths, func(t *testing.T, died rig.Point) {
		s := accepting(t, provider.Fault{Pending: 3 * time.Second, PendingFails: true}, died)
		w := s.startChain()
		s.awaitStatus(charge("1"), idemstore.Failed)
		s.awaitSettled()
		drained(t, w)
		if left, events := s.waiting(), s.emitted(); len(left) != 0 || len(events) != 0 {
			t.Errorf("the outbox holds %q, and %d events are out", left, len(events))
		}
		if sent, _ := s.requests(charge("1")); sent != 1 || len(s.effects(charge("1"))) != 0 {
			t.Errorf("W=%d, effects %q", sent, s.effects(charge("1")))
		}
		if _, ok := s.find(receipt("1")); ok {
			t.Error("a declined charge has a receipt")
		}
	})
}
