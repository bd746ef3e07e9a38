package cases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/rig"
)

// broken is one place of emit → commit → publish → confirm → delete at which the only worker is killed.
type broken struct {
	name string
	aim  aim
	// What the crash leaves behind: the outbox, in its order, and the messages of the stream of events.
	waiting []string
	events  int
	// What was published and is still in the outbox: it is published again.
	again string
}

var (
	both   = []string{chargedEvent, receiptJob}
	second = []string{receiptJob}
)

// breaks are the arrows of the chain in their order, first for the event of a charge and then for the job after it.
var breaks = []broken{
	{"save sent", onCommit("settle:save", (*rig.PostgresProxy).CutBeforeCommit), nil, 0, ""},
	{"save committed and unanswered", onCommit("settle:save", (*rig.PostgresProxy).DropCommitAnswer), both, 0, ""},
	{"event about to be published", onPublish(chargedEvent, (*rig.NATSProxy).CutBefore), both, 0, ""},
	{"event stored and unconfirmed", onPublish(chargedEvent, (*rig.NATSProxy).DropReply), both, 1, chargedEvent},
	{"event confirmed and its row there", onDelete(1, (*rig.PostgresProxy).CutBeforeCommit), both, 1, chargedEvent},
	{"row of the event gone and unanswered", onDelete(1, (*rig.PostgresProxy).DropCommitAnswer), second, 1, ""},
	{"job about to be published", onPublish(receiptJob, (*rig.NATSProxy).CutBefore), second, 1, ""},
	{"job stored and unconfirmed", onPublish(receiptJob, (*rig.NATSProxy).DropReply), second, 1, receiptJob},
	{"job confirmed and its row there", onDelete(2, (*rig.PostgresProxy).CutBeforeCommit), second, 1, receiptJob},
	{"row of the job gone and unanswered", onDelete(2, (*rig.PostgresProxy).DropCommitAnswer), nil, 1, ""},
}

// Wherever a process dies between a charge and its receipt, each link happens once.
func TestChainCrash(t *testing.T) {
	t.Parallel()
	for _, b := range breaks {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := newChain(t, 0)
			b.run(s, 1)
			s.receiptPublished(1)
		})
	}
}

// After the duplicates window the stream takes what is published again for something new. It has the id of the first,
// and the job's key makes it harmless.
func TestChainCrashAfterTheWindow(t *testing.T) {
	t.Parallel()
	for _, b := range breaks {
		if b.again == "" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := newChain(t, time.Second)
			copies, jobs := 1, 1
			if b.again == chargedEvent {
				copies++
			} else {
				jobs++
			}
			b.run(s, copies)
			s.receiptPublished(jobs)
			if task, _ := s.find(receipt("1")); task.Duplicates < jobs-1 || task.Attempt != 1 {
				t.Errorf("the job of the receipt was repeated %d times, and had %d attempts; want %d and one", task.Duplicates, task.Attempt, jobs-1)
			}
		})
	}
}

// receiptPublished checks how many messages the stream has taken beside that of the charge. How often they were delivered
// is another matter: the process that dies may have done the receipt already, and not said so.
func (s *stage) receiptPublished(want int) {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "JOBS")
	if err != nil {
		s.t.Fatal(err)
	}
	if all := stream.CachedInfo().State.LastSeq; all != uint64(want)+1 {
		s.t.Errorf("the stream has taken %d messages, want the charge and %d of its receipt", all, want)
	}
}

// run kills a worker and lets another one go on.
func (b broken) run(s *stage, copies int) {
	s.t.Helper()
	direct := s.settings
	f := front{stage: s, postgres: s.throughPostgres(), nats: s.throughNATS()}
	first := s.startChain()
	hit := b.aim.shoot(f, func() { kill(first) })
	s.publish(charge("1"))
	rig.Await(s.t, hit, soon, b.name)
	died(s.t, first)
	if left, events := s.waiting(), s.emitted(); !slices.Equal(left, b.waiting) || len(events) != b.events {
		s.t.Errorf("the crash left %q in the outbox and %d events; want %q and %d", left, len(events), b.waiting, b.events)
	}

	s.settings = direct
	s.settings.Config.Lease = 5 * time.Second
	next := s.startChain()
	s.chained(copies, "1")
	s.inOrder("1")
	drained(s.t, next)
	if w, _ := s.requests(charge("1")); w != 1 {
		s.t.Errorf("W=%d, want 1", w)
	}
}

// A process that loses an answer and lives goes on by itself: nothing waits for another one, or is published twice.
func TestChainOutlivesALostAnswer(t *testing.T) {
	t.Parallel()
	lose := map[string]func(front) *rig.Shot{}
	for _, subject := range both {
		lose[subject+" not published"] = func(f front) *rig.Shot { return f.nats.CutBefore(rig.PublicationCut{Match: publishing(subject)}) }
		lose[subject+" stored and unconfirmed"] = func(f front) *rig.Shot { return f.nats.DropReply(rig.PublicationCut{Match: publishing(subject)}) }
	}
	for n := range both {
		cut := rig.CommitCut{Containing: "settle:delete-outbox", Skip: n}
		lose[fmt.Sprintf("delete %d not committed", n+1)] = func(f front) *rig.Shot { return f.postgres.CutBeforeCommit(cut) }
		lose[fmt.Sprintf("delete %d committed and unanswered", n+1)] = func(f front) *rig.Shot { return f.postgres.DropCommitAnswer(cut) }
	}
	each(t, lose, func(t *testing.T, arm func(front) *rig.Shot) {
		s := newChain(t, 0)
		s.settings.Config.Lease = 5 * time.Second
		f := front{stage: s, postgres: s.throughPostgres(), nats: s.throughNATS()}
		w := s.startChain()
		shot := arm(f)
		s.publish(charge("1"))
		rig.Await(t, shot.Fired(), soon, "the answer is lost")
		s.chained(1, "1")
		s.inOrder("1")
		drained(t, w)
	})
}
