package cases

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// bindsWithin is how long a worker may take to find out that its consumer is another one.
const bindsWithin = 10 * time.Second

// remade deletes the consumer of reports and makes it again, as its worker would.
func (s *stage) remade() {
	s.t.Helper()
	if err := s.js.DeleteConsumer(s.t.Context(), "JOBS", consumerOf(reportKind)); err != nil {
		s.t.Fatal(err)
	}
	s.madeBefore(jetstream.ConsumerConfig{AckWait: s.settings.Config.AckWait, MaxDeliver: -1, MaxAckPending: 100})
}

// The durable goes, and comes again, while its worker is in a provider call. The worker serves the new one without a
// restart. It finds the message there once more, as if for the first time, and knows from the row what to do.
func TestD06ConsumerMadeAnew(t *testing.T) {
	t.Parallel()
	s, held, next := newStage(t), report(1), report(2)
	s.settings.Config.Lease = 5 * time.Second
	proxy := s.throughNATS()
	atProvider, release := s.hold(provider.Received)
	w := s.startWorker()
	s.publish(held)
	rig.Await(t, atProvider, soon, "the job is in its provider call")
	s.remade()
	s.publish(next)
	rig.Eventually(t, bindsWithin, "the worker serves the new consumer", func() bool {
		task, ok := s.find(next)
		return ok && task.Status == idemstore.Finished
	})
	awaitLine(t, w, "span deliver", "found=busy", "key="+held.key)
	release()
	s.holds(held, next)
	repeat := awaitLine(t, w, "span deliver", "settle.duplicate=true", "settle.verb=ack")
	drained(t, w)
	if got := field(repeat, "settle.key"); got != held.key {
		t.Errorf("the repeat is of %s: %s", got, repeat)
	}
	for _, j := range []job{held, next} {
		s.sent(j, 1, 1) // attempts are counted in the row: two deliveries each said that they were the first
		if task, _ := s.find(j); task.Failures != 0 || task.LastError != "" {
			t.Errorf("%s: %d failures, error %q", j.key, task.Failures, task.LastError)
		}
	}
	firsts := map[string]int{}
	for _, p := range proxy.Settling() {
		if p.IsNak() && delivered(p) == "1" {
			firsts[held.key]++
		}
	}
	if firsts[held.key] != 1 {
		t.Errorf("the new consumer delivered %d times for the first time while the job was held, want 1", firsts[held.key])
	}
}

// With every slot taken no pull is open that would notice. The job that has the slot ends well all the same.
func TestD06ConsumerMadeAnewBehindABusyWorker(t *testing.T) {
	t.Parallel()
	s, held, next := newStage(t), report(1), report(2)
	s.settings.Config.Slots, s.settings.Config.Lease = 1, 5*time.Second
	atProvider, release := s.hold(provider.Received)
	w := s.startWorker()
	s.publish(held)
	rig.Await(t, atProvider, soon, "the job is in its provider call")
	s.remade()
	s.publish(next)
	release()
	s.holds(held, next)
	drained(t, w)
	s.sent(held, 1, 1)
	s.sent(next, 1, 1)
}

// In a stream that was made anew another job has the sequence of the one in hand. What is said about the old one must not
// take that other job away, though no pull was open that could have noticed.
func TestD06StreamMadeAnewBehindABusyWorker(t *testing.T) {
	t.Parallel()
	s, held, next := newStage(t), report(1), report(2)
	s.settings.Config.Slots, s.settings.Config.Lease = 1, 5*time.Second
	s.faults(provider.Fault{DelayBefore: 2 * time.Second, Count: 1}) // what it knows of the consumer is older than that then
	atProvider, release := s.hold(provider.Received)
	first := s.startWorker()
	s.publish(held)
	rig.Await(t, atProvider, soon, "the job is in its provider call")
	if err := s.js.DeleteStream(t.Context(), "JOBS"); err != nil {
		t.Fatal(err)
	}
	if err := consumer.EnsureStreams(t.Context(), s.js, s.settings.Config); err != nil {
		t.Fatal(err)
	}
	s.madeBefore(jetstream.ConsumerConfig{AckWait: s.settings.Config.AckWait, MaxDeliver: -1, MaxAckPending: 100})
	claiming := rig.Point{Span: "settle.claim", Edge: rig.Start, Action: rig.Block}
	second := s.startWorker(claiming)
	if at := s.publish(next); at != 1 {
		t.Fatalf("the other job has sequence %d", at)
	}
	second.AwaitPoint(claiming, soon)
	release()
	awaitLine(t, first, "span deliver", "key="+held.key)
	kill(second) // nothing but the stream knows of the job that it had
	s.holds(held, next)
	drained(t, first)
	s.sent(held, 1, 1)
	s.sent(next, 1, 1)
}
