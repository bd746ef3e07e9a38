package cases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// blocked is a stage for jobs that last four AckWaits, with proxies before the broker and the database of its first worker.
type blocked struct {
	*stage
	nats     *rig.NATSProxy
	postgres *rig.PostgresProxy
	direct   settings // around the proxies
}

const (
	beatenAckWait  = 3 * time.Second
	patientAckWait = 5 * time.Second // where not one heartbeat may come late, on a machine that is busy with other tests
)

func newBlocked(t *testing.T) blocked {
	t.Helper()
	s := newStage(t)
	s.settings.Config.AckWait, s.settings.Config.Lease = beatenAckWait, 30*time.Second
	s.settings.Config.Policy.Deadline, s.settings.Timeout = 30*time.Second, 30*time.Second
	s.faults(provider.Fault{DelayBefore: 4 * beatenAckWait})
	b := blocked{stage: s, direct: s.settings}
	b.nats, b.postgres = s.throughNATS(), s.throughPostgres()
	return b
}

// lostHeartbeat waits until a worker has said that the broker does not hear it.
func lostHeartbeat(t *testing.T, w *rig.Worker, j job) {
	t.Helper()
	awaitLine(t, w, "heartbeat did not reach the broker", "key="+j.key)
}

// goesOn checks that the heartbeat works again: the broker hears it about a further long job.
func (b blocked) goesOn(w *rig.Worker, j job) {
	b.t.Helper()
	heard := settled(b.nats, rig.Publication.IsInProgress)
	b.publish(j)
	b.holds(j)
	b.sent(j, 1, 1)
	drained(b.t, w)
	if now := settled(b.nats, rig.Publication.IsInProgress); now == heard {
		b.t.Error("nothing was heard of the heartbeat after the network had come back")
	}
}

// (a) Nothing is blocked: one delivery.
func TestD07LongJob(t *testing.T) {
	t.Parallel()
	b, j := newBlocked(t), report(1)
	b.settings.Config.AckWait = patientAckWait
	b.faults(provider.Fault{DelayBefore: 4 * patientAckWait})
	b.publish(j)
	b.deliveredOnce(j)
}

// (b) Nothing that the worker says reaches the broker once its provider call has begun. The broker gives the message to
// another one, which finds the lease alive. The job ends where it is, and the other one acks the message as a duplicate.
func TestD07BrokerDeafDuringTheCall(t *testing.T) {
	t.Parallel()
	b, j := newBlocked(t), report(1)
	deaf := b.at(provider.Received, func(context.Context) { b.nats.PauseClientToServer() })
	w := b.startWorker()
	b.publish(j)
	rig.Await(t, deaf, soon, "the broker is deaf")
	b.settings = b.direct
	other := b.startWorker()
	awaitLine(t, other, "span deliver", "found=busy")
	lostHeartbeat(t, w, j)
	b.holds(j)
	awaitLine(t, other, "span deliver", "settle.duplicate=true", "settle.verb=ack")
	drained(t, other)
	b.sent(j, 1, 1)
	b.nats.Resume()
	awaitLine(t, w, "span deliver", "event=settle.heartbeat_lost")
	b.goesOn(w, report(2))
}

// (c) The broker is deaf before the call. The lease is confirmed in the database all the same, and the provider is called.
func TestD07BrokerDeafBeforeTheCall(t *testing.T) {
	t.Parallel()
	b, j := newBlocked(t), report(1)
	about := rig.Point{Span: "settle.perform", Edge: rig.Start, Action: rig.Block}
	w := b.startWorker(about)
	b.publish(j)
	w.AwaitPoint(about, soon)
	b.nats.PauseClientToServer()
	lostHeartbeat(t, w, j)
	w.Release(about)
	b.awaitStatus(j, idemstore.Finished)
	b.nats.Resume()
	b.holds(j)
	b.sent(j, 1, 1)
	b.goesOn(w, report(2))
}

// (c) The database is away as well: nobody confirms the lease, and so nothing is sent. The next attempt asks first.
func TestD07BothAwayBeforeTheCall(t *testing.T) {
	t.Parallel()
	b, j := newBlocked(t), report(1)
	b.settings.Config.Lease = 5 * time.Second
	about := rig.Point{Span: "settle.perform", Edge: rig.Start, Action: rig.Block}
	w := b.startWorker(about)
	b.publish(j)
	w.AwaitPoint(about, soon)
	b.nats.PauseClientToServer()
	b.postgres.Pause()
	awaitLine(t, w, "lease lost", "key="+j.key)
	w.Release(about)
	ended := awaitLine(t, w, "span deliver", "key="+j.key, "settle.verb=silent")
	if !strings.Contains(ended, "event=settle.heartbeat_lost") {
		t.Errorf("the span does not show that the heartbeat was lost: %s", ended)
	}
	if posts, _ := b.requests(j); posts != 0 {
		t.Errorf("W=%d while nobody could confirm the lease", posts)
	}
	b.postgres.Resume()
	b.nats.Resume()
	b.holds(j)
	drained(t, w)
	if calls := b.calls(j); len(calls) < 2 || calls[0] != "GET" || calls[1] != "POST" {
		t.Errorf("the provider saw %s", calls)
	}
}
