package cases

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

var policies = map[string]consumer.LeasePolicy{"strict": consumer.Strict, "lenient": consumer.Lenient}

// frozen is a worker that stands still past its lease and its AckWait, with the only message in its hands.
type frozen struct {
	*rig.Worker
	nats *rig.NATSProxy // only this worker's
}

// freeze publishes a job and stops the worker that takes it at a point. The stage's next workers have long leases
// and a broker connection of their own.
func freeze(s *stage, j job, p rig.Point) frozen {
	s.t.Helper()
	s.settings.Config.AckWait = 2 * time.Second // so that the redelivery finds no pull of the frozen worker open
	f := frozen{nats: s.throughNATS()}
	p.Action = rig.Stop
	f.Worker = s.startWorker(p)
	s.publish(j)
	f.AwaitPoint(p, soon)
	f.AwaitStopped(soon)
	s.settings.NATSURL, s.settings.Config.Lease = s.natsURL, 5*time.Second
	return f
}

// said is what the worker told the broker about the delivery that it was frozen with: the message's first.
func (f frozen) said() []rig.Publication {
	return slices.DeleteFunc(f.nats.Settling(), func(p rig.Publication) bool { return delivered(p) != "1" })
}

// delivered is how often the message had been delivered that a publication settles.
func delivered(p rig.Publication) string {
	tokens := strings.Split(p.Subject, ".")
	for i, token := range tokens {
		if token == consumerOf(chargeKind) || token == consumerOf(reportKind) {
			return tokens[i+1]
		}
	}
	return ""
}

// awaitLine waits until a worker has written a line with all of these texts in it.
func awaitLine(t *testing.T, w *rig.Worker, texts ...string) (line string) {
	t.Helper()
	rig.Eventually(t, soon, "the worker writes "+strings.Join(texts, ", "), func() bool {
		for l := range strings.Lines(w.Output()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(l, text) }) {
				line = l
				return true
			}
		}
		return false
	})
	return line
}

// Frozen right before the send: another worker takes over and finishes, and the one that wakes sends nothing, says
// nothing and changes nothing.
func TestFrozenBeforeTheSend(t *testing.T) {
	t.Parallel()
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), charge("1")
			s.settings.Config.Policy.Lease = policy
			first := freeze(s, j, rig.Point{Span: "settle.perform", Edge: rig.Start})
			second := s.startWorker()
			s.awaitStatus(j, idemstore.Finished)
			s.awaitSettled()
			first.wakesSilent(s, j, "lease lost")
			drained(t, second)
			s.holds(j)
			if task, _ := s.find(j); task.Attempt != 2 || task.EvidenceID != "" {
				t.Errorf("%d attempts, evidence %q; want 2 and none", task.Attempt, task.EvidenceID)
			}
			if w, _ := s.requests(j); w != 1 {
				t.Errorf("W=%d, want 1", w)
			}
		})
	}
}

// wakesSilent lets a frozen worker go on to its end: it writes the line, and nobody else notices anything.
func (f frozen) wakesSilent(s *stage, j job, line string) {
	s.t.Helper()
	said, row := f.said(), s.snapshot(j)
	w, lookups := s.requests(j)
	f.Thaw()
	awaitLine(s.t, f.Worker, line, "key="+j.key)
	drained(s.t, f.Worker)
	if now := f.said(); !slices.Equal(now, said) {
		s.t.Errorf("the worker that woke told the broker %+v", now[len(said):])
	}
	if w2, lookups2 := s.requests(j); w2 != w || lookups2 != lookups {
		s.t.Errorf("the worker that woke sent %d POSTs and %d look-ups", w2-w, lookups2-lookups)
	}
	if now := s.snapshot(j); now != row {
		s.t.Errorf("the worker that woke changed the row:\n%s\nis now\n%s", row, now)
	}
}

// snapshot is everything that the database knows of a task.
func (s *stage) snapshot(j job) (row string) {
	s.t.Helper()
	s.scan(`select to_jsonb(t)::text || coalesce((select jsonb_agg(e order by id)::text from settle.task_events e where e.task_id = t.id), '')
		from settle.tasks t where kind = $1 and key = $2`, []any{j.kind, j.key}, &row)
	return row
}

// Frozen with the answer in hand: whoever took over has asked the provider and booked its answer. The save of the
// one that wakes is refused.
func TestFrozenAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), charge("1")
			s.settings.Config.Policy.Lease = policy
			first := freeze(s, j, rig.Point{Span: "HTTP POST", Edge: rig.End})
			second := s.startWorker()
			s.awaitStatus(j, idemstore.Finished)
			s.awaitSettled()
			first.wakesSilent(s, j, "not saved; staying silent")
			drained(t, second)
			s.holds(j)
		})
	}
}

// Frozen with the answer in hand, while the provider's look-ups lag behind: the next attempt would send again. The
// proof that the first one leaves when it wakes stops that, and the id is asked about instead.
func TestFrozenWithProof(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), charge("1")
	if err := s.provider.SetFaults([]provider.Fault{{Hide: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	first := freeze(s, j, rig.Point{Span: "HTTP POST", Edge: rig.End})
	arming := rig.Point{Span: "settle.arm", Edge: rig.Start, Action: rig.Block}
	second := s.startWorker(arming)
	second.AwaitPoint(arming, soon)
	said := first.said()
	first.Thaw()
	proof := s.await(j, "proven by the first worker", func(t idemstore.Task) bool { return t.EvidenceID != "" })
	awaitLine(t, first.Worker, "external id left as evidence")
	if proof.Attempt != 2 || proof.Status != idemstore.Started || proof.ExternalID != "" {
		t.Errorf("beside the proof the row is %s, attempt %d, id %q", proof.Status, proof.Attempt, proof.ExternalID)
	}
	if now := first.said(); !slices.Equal(now, said) {
		t.Errorf("the worker that woke told the broker %+v", now[len(said):])
	}
	second.Release(arming)
	task := s.awaitStatus(j, idemstore.Finished)
	s.holds(j)
	drained(t, first.Worker)
	drained(t, second)
	if w, _ := s.requests(j); w != 1 || task.Attempt < 3 || task.ExternalID != proof.EvidenceID {
		t.Errorf("W=%d, %d attempts, id %q, proof %q", w, task.Attempt, task.ExternalID, proof.EvidenceID)
	}
}

// A worker that lost its lease must not settle the delivery of the one that has the task now: if that one dies,
// the message has to come again.
func TestD02StaleWorkerLeavesTheMessageAlone(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), charge("1")
	stale := freeze(s, j, rig.Point{Span: "settle.claim", Edge: rig.End})
	s.settings.Config.Lease = 2 * time.Second
	atProvider, release := s.hold(provider.Received)
	second := s.startWorker()
	rig.Await(t, atProvider, soon, "the second worker is in its provider call")
	said := stale.said()
	stale.Thaw()
	awaitLine(t, stale.Worker, "lease lost", "key="+j.key, "attempt=1")
	kill(second)
	release()
	if left := rig.StreamMessages(t, s.js, "JOBS"); left != 1 {
		t.Errorf("%d messages in the stream after the second worker's death, want 1", left)
	}
	task := s.awaitStatus(j, idemstore.Finished) // by the worker that was frozen: it lives, and gets the redelivery
	s.holds(j)
	drained(t, stale.Worker)
	if now := stale.said(); !slices.Equal(now, said) {
		t.Errorf("about its stale delivery the worker told the broker %+v", now[len(said):])
	}
	if w, _ := s.requests(j); w != 1 || task.Attempt < 3 {
		t.Errorf("W=%d, %d attempts; want 1 and at least 3", w, task.Attempt)
	}
}
