package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/provider"
)

// madeBefore makes the consumer of reports, as somebody may have before the first worker came.
func (s *stage) madeBefore(c jetstream.ConsumerConfig) jetstream.Consumer {
	s.t.Helper()
	c.Durable, c.FilterSubject, c.AckPolicy = consumerOf(reportKind), "jobs."+reportKind, jetstream.AckExplicitPolicy
	made, err := s.js.CreateConsumer(s.t.Context(), "JOBS", c)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// deliveries is how many the consumer of a kind has made, redeliveries included.
func (s *stage) deliveries(kind string) uint64 {
	s.t.Helper()
	c, err := s.js.Consumer(s.t.Context(), "JOBS", consumerOf(kind))
	if err != nil {
		s.t.Fatal(err)
	}
	return c.CachedInfo().Delivered.Consumer
}

// A consumer with BackOff has another AckWait than it was asked for. The worker reads back what is in force and does not
// start; it names both settings and takes nothing. Without BackOff it does the job, which lasts three of the AckWaits that
// it would have had.
func TestD04BackOffReplacesAckWait(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), report(1)
	s.settings.Config.AckWait, s.settings.Config.Lease = time.Minute, 30*time.Second
	made := s.madeBefore(jetstream.ConsumerConfig{AckWait: time.Minute, BackOff: []time.Duration{time.Second, 5 * time.Second}})
	if got := made.CachedInfo().Config.AckWait; got != time.Second {
		t.Fatalf("the broker's AckWait is %s: the fault is not there", got)
	}
	s.faults(provider.Fault{DelayBefore: 3 * time.Second})
	s.publish(j)
	w := s.startWorker()
	if e := w.Wait(soon); e.Code <= 0 {
		t.Errorf("the worker ended with %s", e)
	}
	for _, text := range []string{consumerOf(reportKind), "BackOff [1s 5s]", "AckWait (asked 1m0s, effective 1s)"} {
		if !strings.Contains(w.Output(), text) {
			t.Errorf("the worker does not say %q", text)
		}
	}
	if n := s.deliveries(reportKind); n != 0 {
		t.Errorf("it took %d messages before it ended", n)
	}
	if err := s.js.DeleteConsumer(t.Context(), "JOBS", consumerOf(reportKind)); err != nil {
		t.Fatal(err)
	}
	s.deliveredOnce(j)
}

// A consumer of somebody else's making keeps its AckWait: the heartbeat follows that, and not the worker's own setting.
func TestD04HeartbeatFollowsTheConsumer(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), report(1)
	s.settings.Config.AckWait, s.settings.Config.Lease = time.Minute, time.Minute
	s.settings.Config.Policy.Deadline, s.settings.Timeout = 30*time.Second, 30*time.Second
	s.madeBefore(jetstream.ConsumerConfig{AckWait: patientAckWait, MaxDeliver: -1})
	s.faults(provider.Fault{DelayBefore: 3 * patientAckWait})
	s.publish(j)
	s.deliveredOnce(j)
}

// deliveredOnce runs a worker until a job is done, which takes one delivery, one attempt and one request.
func (s *stage) deliveredOnce(j job) {
	s.t.Helper()
	w := s.startWorker()
	s.holds(j)
	if n := s.deliveries(j.kind); n != 1 {
		s.t.Errorf("%d deliveries", n)
	}
	s.sent(j, 1, 1)
	drained(s.t, w)
}
