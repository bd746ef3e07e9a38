package cases

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// The crash matrix: each point of a delivery, for each reference kind, with one worker (TestCrash) and with two
// (TestCrashBesideAnother), under both lease policies. A cell counts only if the process was seen to die there. Left out are, with
// their reasons:
//
//	contact.sync at claim committed, send, effect, answer   it has no provider, and its claim commits with its result
//	report.create and payment.charge at external id saved   only where the provider answers 202: TestCrashAtAnAcceptedID
//	receipt.send, contacts.import                           the points between commit and publish, and between records, have
//	                                                        matrices of their own: TestChainCrash, TestImportCrash…
//
// The points of a drain need a SIGTERM first: TestCrashWhileDraining.
//
// make matrix runs all of it alone, and shows what each cell came to.

// A worker dies at each point with up to four jobs in hand, beside another one that goes on. Both have the same work before
// them; only the one that dies is aimed at.
func TestCrashBesideAnother(t *testing.T) {
	t.Parallel()
	for _, c := range crashes {
		for name, policy := range policies {
			for _, kind := range []string{chargeKind, reportKind} {
				t.Run(c.name+"/"+name+"/"+kind, func(t *testing.T) {
					t.Parallel()
					s := newStage(t)
					s.settings.Config.Policy.Lease = policy
					c.besideAnother(s, kind)
				})
			}
		}
	}
}

func (c crash) besideAnother(s *stage, kind string) {
	const many = 12
	var jobs []job
	for i := range many {
		if kind == reportKind {
			jobs = append(jobs, report(i+1))
		} else {
			jobs = append(jobs, charge(fmt.Sprint(i)))
		}
	}
	other := s.startWorker()
	awaitLine(s.t, other, "msg=serving")
	direct := s.settings
	victim := c.arm(s)
	s.settings = direct
	awaitLine(s.t, victim.worker, "msg=serving")
	s.publish(jobs...)
	if victim.hit != nil {
		rig.Await(s.t, victim.hit, soon, c.name)
	} else {
		victim.worker.AwaitPoint(c.aim.point, soon)
	}
	died(s.t, victim.worker)
	s.holds(jobs...)
	drained(s.t, other)
	s.cell(jobs...)
}

// armed is a worker that dies at a point.
type armed struct {
	worker *rig.Worker
	hit    <-chan struct{} // nil: it kills itself
}

func (c crash) arm(s *stage) armed {
	if c.aim.shoot == nil {
		return armed{worker: s.startWorker(c.aim.point)}
	}
	var w *rig.Worker
	started := make(chan struct{})
	f := front{stage: s, postgres: s.throughPostgres(), nats: s.throughNATS(), only: func() int { <-started; return w.PID() }}
	hit := c.aim.shoot(f, func() { <-started; kill(w) })
	w = s.startWorker()
	close(started)
	return armed{w, hit}
}

// Killed at the edges of the commit that stores the id of an accepted effect: the id is polled, nothing is created again.
func TestCrashAtAnAcceptedID(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]aim{
		"id sent":                     onCommit("settle:save", (*rig.PostgresProxy).CutBeforeCommit),
		"id committed and unanswered": onCommit("settle:save", (*rig.PostgresProxy).DropCommitAnswer),
		"id saved":                    at("settle.save", rig.End),
	} {
		for policyName, policy := range policies {
			t.Run(name+"/"+policyName, func(t *testing.T) {
				t.Parallel()
				s, j := newStage(t), report(1)
				s.settings.Config.Policy.Lease = policy
				s.faults(provider.Fault{Pending: 2 * time.Second})
				crash{name: name, aim: a}.killFirst(s, j)
				s.settings.Config.Lease = 5 * time.Second
				second := s.startWorker()
				s.awaitStatus(j, idemstore.Finished)
				s.holds(j)
				drained(t, second)
				if w, _ := s.requests(j); w != 1 {
					t.Errorf("W=%d", w)
				}
				s.cell(j)
			})
		}
	}
}

// A drain that is cut short by a kill loses nothing: with the provider's answer outstanding, and with all of it done.
func TestCrashWhileDraining(t *testing.T) {
	t.Parallel()
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), charge("1")
			s.settings.Config.Policy.Lease = policy
			s.faults(provider.Fault{DelayAfter: 5 * time.Second, Count: 1})
			w := s.startWorker()
			there := s.at(provider.AfterCommit, func(context.Context) { w.Signal(syscall.SIGTERM) })
			s.publish(j)
			rig.Await(t, there, soon, "the effect has happened")
			awaitLine(t, w, "msg=draining")
			kill(w)
			died(t, w)
			s.settings.Config.Lease = 5 * time.Second
			second := s.startWorker()
			s.awaitStatus(j, idemstore.Finished)
			s.holds(j)
			drained(t, second)
			if calls := fmt.Sprint(s.calls(j)); calls != "[POST GET]" {
				t.Errorf("the provider saw %s", calls)
			}
			s.cell(j)
		})
	}
}

// localCrashes are the points of a job without a provider: its claim, its rows and its result are one commit.
var localCrashes = []struct {
	name     string
	aim      aim
	replayed bool
}{
	{"received", at("settle.deliver", rig.Start), false},
	{"claim and result sent", onCommit("settle:save", (*rig.PostgresProxy).CutBeforeCommit), false},
	{"committed and unanswered", onCommit("settle:save", (*rig.PostgresProxy).DropCommitAnswer), true},
	{"acking", at("settle.settle", rig.Start), true},
	{"ack sent", onAck((*rig.NATSProxy).CutBefore), true},
	{"ack handled and unconfirmed", onAck((*rig.NATSProxy).DropReply), false},
	{"acked", at("settle.settle", rig.End), false},
}

func TestLocalCrash(t *testing.T) {
	t.Parallel()
	for _, c := range localCrashes {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), contact(1)
			s.name = "importing"
			crash{name: c.name, aim: c.aim}.killFirst(s, j)
			second := s.startWorker()
			s.awaitStatus(j, idemstore.Finished)
			s.awaitSettled()
			drained(t, second)
			task, _ := s.find(j)
			var contacts, events int
			s.scan(`select (select count(*) from shop.contacts), (select count(*) from shop.import_events)`, nil, &contacts, &events)
			if contacts != 1 || events != 1 || (task.Duplicates > 0) != c.replayed {
				t.Errorf("%d contacts, %d events, %d repeats answered", contacts, events, task.Duplicates)
			}
			t.Logf("cell: %-80s jobs=1 contacts=%d events=%d attempts=%d repeats=%d", t.Name(), contacts, events, task.Attempt, task.Duplicates)
		})
	}
}
