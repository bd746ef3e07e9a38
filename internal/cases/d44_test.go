package cases

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// mixed are jobs in every state that a replay can meet.
type mixed struct{ finished, failed, unknown, parked, busy []job }

func (m mixed) all() (out []job) {
	for _, jobs := range [][]job{m.finished, m.failed, m.unknown, m.parked, m.busy} {
		out = append(out, jobs...)
	}
	return out
}

// declined is a charge that the provider declines.
func declined(order string) job {
	j := charge(order)
	j.body = fmt.Sprintf(`{"order_id":%q,"customer_id":"c_declined","amount":1200,"currency":"EUR"}`, order)
	return j
}

// A replay of messages, whoever presses it and however often, goes the way of every message: what is over is answered
// from its row, what is under way is left alone, what is unknown is asked about, and what waits for a person goes on
// waiting. (A retry of one task is an operator's act, which has tests of its own.)
func TestD44ReplayOfAThousandMessages(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.settings.Config.Slots = 32
	// Three messages of each unknown task come back in the meantime, and before new ones: not so often that a slow machine
	// does nothing else.
	s.settings.Config.Policy.BackoffMin, s.settings.Config.Policy.BackoffMax = time.Second, 15*time.Second
	s.settings.Config.Breaker = -1 // 200 lost answers in a row would pause the intake, which is another story
	var m mixed
	for i := range 1000 {
		switch name := fmt.Sprint(i); i % 10 {
		case 0:
			m.failed = append(m.failed, declined("failed-"+name))
		case 1, 2:
			m.unknown = append(m.unknown, charge("unknown-"+name))
		case 3:
			m.parked = append(m.parked, charge("parked-"+name))
		default:
			m.finished = append(m.finished, charge("finished-"+name))
		}
	}
	m.busy = []job{charge("busy")}
	lost := provider.Fault{Key: "order_unknown-*", Close: provider.After}
	blind := provider.Fault{Key: "order_unknown-*", Method: "GET", Status: 500}
	s.faults(lost, blind, provider.Fault{Key: "order_parked-*", Status: 409, Body: []byte(`{"error":"idempotency_conflict"}`)})
	s.serve(referenceKinds)
	s.publish(append(append(append(m.finished[:len(m.finished):len(m.finished)], m.failed...), m.unknown...), m.parked...)...)
	count := func(where string) (n int) {
		s.scan(`select count(*) from settle.tasks where `+where, nil, &n)
		return n
	}
	rig.Eventually(t, soon, "all have come to rest or are unknown", func() bool {
		return count(`status in ('finished', 'failed', 'needs_review')`) == 800 && count(`key like 'order_unknown-%' and unsure`) == 200
	})
	atProvider, release := s.hold(provider.AfterCommit)
	s.publish(m.busy...)
	rig.Await(t, atProvider, soon, "one is at the provider")
	sent := s.sentBy(m)

	var presses sync.WaitGroup // twice at the same time
	for range 2 {
		presses.Go(func() { s.publish(m.all()...) })
	}
	presses.Wait()
	rig.Eventually(t, soon, "the replays of what is over are answered", func() bool {
		return count(`status in ('finished', 'failed', 'needs_review') and duplicates >= 2`) >= 800
	})
	if now := s.sentBy(m); now != sent {
		t.Errorf("requests before and after the replay: %v, %v", sent, now)
	}
	release()
	s.faults() // look-ups of the unknown ones answer from now on
	s.awaitSettled()
	for status, n := range map[idemstore.Status]int{idemstore.Finished: len(m.finished) + len(m.unknown) + len(m.busy),
		idemstore.Failed: len(m.failed), idemstore.NeedsReview: len(m.parked)} {
		if got := count(`failures <= 1 and status = '` + string(status) + `'`); got != n {
			t.Errorf("%d tasks are %s, want %d", got, status, n)
		}
	}
	if now := s.sentBy(m); now != sent {
		t.Errorf("requests before and in the end: %v, %v", sent, now)
	}
	if e := s.allEffects(); e != len(m.finished)+len(m.unknown)+len(m.busy) {
		t.Errorf("E=%d", e)
	}
}

// sentBy counts the requests for an effect of each group.
func (s *stage) sentBy(m mixed) (w [5]int) {
	s.t.Helper()
	for i, jobs := range [][]job{m.finished, m.failed, m.unknown, m.parked, m.busy} {
		keys := make([]string, len(jobs))
		for k, j := range jobs {
			keys[k] = j.key
		}
		s.scan(`select count(*) from provider.requests where method = 'POST' and key = any($1)`, []any{keys}, &w[i])
	}
	return w
}
