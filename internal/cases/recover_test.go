package cases

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// recovering lets the workers that are started from now on take up tasks without their messages.
func (s *stage) recovering() {
	s.settings.Config.NoRecovery, s.settings.Config.RecoverEvery = false, 100*time.Millisecond
}

// purge takes all messages out of the stream.
func (s *stage) purge() {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "JOBS")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := stream.Purge(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// From the first committed claim on the row is the job: its worker dies, its message is deleted, or the whole stream is
// lost, and another worker makes its effect happen, once.
func TestAClaimedJobOutlivesItsMessage(t *testing.T) {
	t.Parallel()
	lose := map[string]func(*stage){
		"purged": (*stage).purge,
		"stream lost": func(s *stage) {
			if err := s.js.DeleteStream(s.t.Context(), "JOBS"); err != nil {
				s.t.Fatal(err)
			}
		},
	}
	for name, lost := range lose {
		for _, c := range []crash{
			{"claimed", at("settle.claim", rig.End), 2, false},
			{"sent", atProvider(provider.Received), 2, false},
			{"effect", atProvider(provider.AfterCommit), 2, false},
			{"saving", at("settle.save", rig.Start), 2, false},
		} {
			for _, j := range []job{charge("1"), report(1)} {
				t.Run(name+"/"+c.name+"/"+j.kind, func(t *testing.T) {
					t.Parallel()
					s := newStage(t)
					c.killFirst(s, j)
					lost(s)
					s.recovering()
					s.settings.Config.Lease = 5 * time.Second
					second := s.startWorker()
					s.awaitStatus(j, idemstore.Finished)
					s.holds(j)
					drained(t, second)
					if w, lookups := s.requests(j); w != 1 || lookups != 1 {
						t.Errorf("W=%d and %d look-ups, want one of each", w, lookups)
					}
					if task, _ := s.find(j); task.Attempt != 2 || task.Failures != 1 || task.Duplicates != 0 {
						t.Errorf("%d attempts, %d failures, %d duplicates", task.Attempt, task.Failures, task.Duplicates)
					}
				})
			}
		}
	}
}

// A recovery can die as well, anywhere. The next one goes on.
func TestARecoveryThatDiesIsRecovered(t *testing.T) {
	t.Parallel()
	for _, span := range []string{"settle.recover", "settle.lookup", "settle.perform", "settle.save"} {
		t.Run(span, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), charge("1")
			crash{aim: at("settle.claim", rig.End)}.killFirst(s, j)
			s.purge()
			s.recovering()
			here := rig.Point{Span: span, Edge: rig.Start, Action: rig.Kill}
			second := s.startWorker(here)
			second.AwaitPoint(here, soon)
			died(t, second)
			s.settings.Config.Lease = 5 * time.Second
			third := s.startWorker()
			s.awaitStatus(j, idemstore.Finished)
			s.holds(j)
			drained(t, third)
			if w, _ := s.requests(j); w != 1 {
				t.Errorf("W=%d, want 1", w)
			}
		})
	}
}

// Frozen right before its send, a recovery finds its gate shut: another one has done it meanwhile.
func TestARecoveryThatFreezesSendsNothing(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), charge("1")
	crash{aim: at("settle.claim", rig.End)}.killFirst(s, j)
	s.purge()
	s.recovering()
	here := rig.Point{Span: "settle.perform", Edge: rig.Start, Action: rig.Stop}
	frozen := s.startWorker(here)
	frozen.AwaitPoint(here, soon)
	frozen.AwaitStopped(soon)
	s.settings.Config.Lease = 5 * time.Second
	third := s.startWorker()
	s.awaitStatus(j, idemstore.Finished)
	row := s.snapshot(j)
	frozen.Thaw()
	awaitLine(t, frozen, "lease lost", "key="+j.key)
	drained(t, frozen)
	drained(t, third)
	s.holds(j)
	if w, _ := s.requests(j); w != 1 {
		t.Errorf("W=%d, want 1", w)
	}
	if now := s.snapshot(j); now != row {
		t.Errorf("the one that woke changed the row:\n%s\nis now\n%s", row, now)
	}
}

// Two workers and their recoveries, beside the messages themselves, after a crash of a worker with many jobs in hand.
func TestRecoveriesBesideLiveMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.recovering()
	var jobs []job
	for i := range 20 {
		jobs = append(jobs, charge(fmt.Sprint("c", i)), report(i))
	}
	first := s.startWorker()
	shot := s.at(provider.AfterCommit, func(context.Context) { kill(first) })
	s.publish(jobs...)
	rig.Await(t, shot, soon, "the first worker dies in the middle of its jobs")
	died(t, first)
	s.settings.Config.Lease = 5 * time.Second
	second, third := s.startWorker(), s.startWorker()
	s.holds(jobs...)
	drained(t, second)
	drained(t, third)
	for _, j := range jobs {
		if w, _ := s.requests(j); w != 1 {
			t.Errorf("%s: W=%d, want 1", j.key, w)
		}
	}
}
