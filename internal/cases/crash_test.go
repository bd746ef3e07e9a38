package cases

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// crash is one place at which the first worker is killed, and what that costs. W and E are 1 at every one of them.
type crash struct {
	name string
	aim  aim
	// What the row says in the end.
	attempts int
	replayed bool // the message came again and was answered from the row
}

// aim arms a kill of the worker. It returns the worker's own points, if it kills itself, or else how to shoot it.
type aim struct {
	point rig.Point
	shoot func(front, func()) (hit <-chan struct{})
}

// front is what stands between a worker and the world.
type front struct {
	*stage
	postgres *rig.PostgresProxy
	nats     *rig.NATSProxy
	only     func() int // the process that is aimed at; nil: there is one
}

func at(span string, edge rig.Edge) aim {
	return aim{point: rig.Point{Span: span, Edge: edge, Action: rig.Kill}}
}

func atProvider(p provider.Point) aim {
	return aim{shoot: func(f front, kill func()) <-chan struct{} {
		return f.atBy(f.only, p, func(context.Context) { kill() })
	}}
}

// onCommit kills around a COMMIT on the wire: right before it, or between it and its answer.
func onCommit(statement string, arm func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot) aim {
	return aim{shoot: func(f front, kill func()) <-chan struct{} {
		return arm(f.postgres, rig.CommitCut{Containing: statement, Do: kill}).Fired()
	}}
}

// onAck kills around an ack on the wire.
func onAck(arm func(*rig.NATSProxy, rig.PublicationCut) *rig.Shot) aim {
	return aim{shoot: func(f front, kill func()) <-chan struct{} {
		return arm(f.nats, rig.PublicationCut{Do: kill}).Fired()
	}}
}

// crashes are the arrows of receive → claim → send → effect → save → ack, in their order.
var crashes = []crash{
	{"received", at("settle.deliver", rig.Start), 1, false},
	{"claiming", at("settle.claim", rig.Start), 1, false},
	{"claim sent", onCommit("settle:claim", (*rig.PostgresProxy).CutBeforeCommit), 1, false},
	{"claim committed and unanswered", onCommit("settle:claim", (*rig.PostgresProxy).DropCommitAnswer), 2, false},
	{"claimed", at("settle.claim", rig.End), 2, false},
	{"about to send", at("settle.perform", rig.Start), 2, false},
	{"sent", atProvider(provider.Received), 2, false},
	{"effect under way", atProvider(provider.BeforeCommit), 2, false},
	{"effect", atProvider(provider.AfterCommit), 2, false},
	{"answer read", at("HTTP POST", rig.End), 2, false},
	{"saving", at("settle.save", rig.Start), 2, false},
	{"save sent", onCommit("settle:save", (*rig.PostgresProxy).CutBeforeCommit), 2, false},
	{"save committed and unanswered", onCommit("settle:save", (*rig.PostgresProxy).DropCommitAnswer), 1, true},
	{"saved", at("settle.save", rig.End), 1, true},
	{"acking", at("settle.settle", rig.Start), 1, true},
	{"ack sent", onAck((*rig.NATSProxy).CutBefore), 1, true},
	{"ack handled and unconfirmed", onAck((*rig.NATSProxy).DropReply), 1, false},
	{"acked", at("settle.settle", rig.End), 1, false},
}

func TestCrash(t *testing.T) {
	t.Parallel()
	for _, c := range crashes {
		for name, policy := range policies {
			for _, j := range []job{charge("1"), report(1)} {
				t.Run(c.name+"/"+name+"/"+j.kind, func(t *testing.T) {
					t.Parallel()
					c.run(t, policy, j)
				})
			}
		}
	}
}

func (c crash) run(t *testing.T, policy consumer.LeasePolicy, j job) {
	s := newStage(t)
	s.settings.Config.Policy.Lease = policy
	c.killFirst(s, j)
	// The second worker has time: that a slow machine, or one whose clock is set, makes it lose its lease is another test's matter.
	s.settings.Config.Lease = time.Minute
	second := s.startWorker()
	s.awaitStatus(j, idemstore.Finished)
	s.holds(j)
	drained(t, second)

	asked := 0
	if c.attempts > 1 {
		asked = 1
	}
	if w, lookups := s.requests(j); w != 1 || lookups != asked {
		t.Errorf("W=%d and %d look-ups, want 1 and %d", w, lookups, asked)
	}
	task, _ := s.find(j)
	if task.Attempt != c.attempts || task.Failures != c.attempts-1 || (task.Duplicates > 0) != c.replayed {
		t.Errorf("%d attempts, %d failures, %d duplicates; want %d, %d, replayed %v", task.Attempt, task.Failures,
			task.Duplicates, c.attempts, c.attempts-1, c.replayed)
	}
	s.cell(j)
}

// cell writes down what a cell of the crash matrix came to: a process has died at its point, and these are the requests,
// effects and attempts of all its jobs. make matrix shows it.
func (s *stage) cell(jobs ...job) {
	s.t.Helper()
	var e, w, asked, attempts, failures, repeats int
	for _, j := range jobs {
		task, _ := s.find(j)
		posts, lookups := s.requests(j)
		e, w, asked = e+len(s.effects(j)), w+posts, asked+lookups
		attempts, failures, repeats = attempts+task.Attempt, failures+task.Failures, repeats+task.Duplicates
	}
	s.t.Logf("cell: %-80s jobs=%d E=%d W=%d look-ups=%d attempts=%d failures=%d repeats=%d",
		s.t.Name(), len(jobs), e, w, asked, attempts, failures, repeats)
}

// killFirst runs a worker to its death.
func (c crash) killFirst(s *stage, j job) {
	s.t.Helper()
	if c.aim.shoot == nil {
		w := s.startWorker(c.aim.point)
		s.publish(j)
		w.AwaitPoint(c.aim.point, soon)
		died(s.t, w)
		return
	}
	direct := s.settings
	f := front{stage: s, postgres: s.throughPostgres(), nats: s.throughNATS()}
	w := s.startWorker()
	hit := c.aim.shoot(f, func() { kill(w) })
	s.publish(j)
	rig.Await(s.t, hit, soon, c.name)
	died(s.t, w)
	s.settings = direct
}

// kill ends a worker without a word and waits until it is gone. Any goroutine may call it.
func kill(w *rig.Worker) {
	w.Signal(syscall.SIGKILL)
	<-w.Exited()
}

func died(t *testing.T, w *rig.Worker) {
	t.Helper()
	if e := w.Wait(soon); !e.Killed() {
		t.Fatalf("the first worker ended with %s, want SIGKILL", e)
	}
}
