package cases

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// The ack is lost after the commit: the redelivery is answered from the row, and acked.
func TestD01AckLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	s, j := newCalmStage(t), charge("1")
	proxy := s.throughNATS()
	w := s.startWorker()
	lost := proxy.CutBefore(rig.PublicationCut{})
	s.publish(j)
	rig.Await(t, lost.Fired(), soon, "the connection is cut before the ack")
	s.awaitSettled()
	before := s.awaitStatus(j, idemstore.Finished)
	drained(t, w) // also waits for the first delivery, which goes on asking for its confirmation
	s.holds(j)

	task, _ := s.find(j)
	if posts, lookups := s.requests(j); posts != 1 || lookups != 0 || task.Attempt != 1 || task.Duplicates < 1 {
		t.Errorf("W=%d, %d look-ups, %d attempts, %d duplicates", posts, lookups, task.Attempt, task.Duplicates)
	}
	if string(task.Result) != string(before.Result) || task.ExternalID != before.ExternalID {
		t.Errorf("the row changed from %s to %s", before.Result, task.Result)
	}
	did := awaitLine(t, w, "span deliver", "settle.found=inserted")
	repeat := awaitLine(t, w, "span deliver", "settle.duplicate=true", "settle.verb=ack")
	if did := field(did, "trace"); did == "" || field(repeat, "link") != did {
		t.Errorf("the span of the repeat does not link to the trace %q that did the work: %s", did, repeat)
	}
	if strings.Contains(w.Output(), "level=ERROR") {
		t.Error("the worker logged an error")
	}
}

// field is the value of name=value in a line.
func field(line, name string) string {
	for _, f := range strings.Fields(line) {
		if value, ok := strings.CutPrefix(f, name+"="); ok {
			return value
		}
	}
	return ""
}

// AckWait runs from the delivery on: a message that waits behind a busy slot must not be delivered twice.
func TestD03NothingWaitsInTheClient(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if err := s.provider.SetFaults([]provider.Fault{{DelayBefore: 600 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	s.settings.Config.Slots, s.settings.Config.Lease = 1, 5*time.Second
	proxy := s.throughNATS()
	jobs := []job{charge("1"), charge("2"), charge("3"), charge("4")}
	s.publish(jobs...)
	w := s.startWorker()
	s.holds(jobs...)
	drained(t, w)
	for _, j := range jobs {
		task, _ := s.find(j)
		if posts, _ := s.requests(j); posts != 1 || task.Attempt != 1 || task.Duplicates != 0 {
			t.Errorf("%s: W=%d, %d attempts, %d duplicates", j.key, posts, task.Attempt, task.Duplicates)
		}
	}
	for _, p := range proxy.Settling() {
		if delivered(p) != "1" {
			t.Errorf("a message was delivered again: %s", p.Subject)
		}
	}
}

// Fifty claims of one new key at once: one winner, and the others go back free of charge.
func TestD20OneWinner(t *testing.T) {
	t.Parallel()
	const copies = 50
	s, j := newStage(t), charge("1")
	if err := s.provider.SetFaults([]provider.Fault{{DelayBefore: 2 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	lease := 4 * time.Second
	s.settings.Config.Lease, s.settings.Config.Slots = lease, 16
	s.settings.Config.Policy.BackoffMax = lease
	proxy := s.throughNATS()
	var workers []*rig.Worker
	for range 4 {
		workers = append(workers, s.startWorker())
	}
	for _, w := range workers {
		awaitLine(t, w, "msg=serving")
	}
	for range copies {
		s.publish(j)
	}
	s.holds(j)
	for _, w := range workers {
		drained(t, w)
		if strings.Contains(w.Output(), "level=ERROR") {
			t.Error("a worker logged an error")
		}
	}
	task, _ := s.find(j)
	if posts, _ := s.requests(j); posts != 1 || task.Attempt != 1 || task.Failures != 0 || task.Duplicates < copies-1 {
		t.Errorf("W=%d, %d attempts, %d failures, %d duplicates", posts, task.Attempt, task.Failures, task.Duplicates)
	}
	s.naksFit(proxy, lease)
}

// naksFit checks that those who lost wait for about the rest of the lease, and no longer than what the winner's
// heartbeat may have made of it.
func (s *stage) naksFit(proxy *rig.NATSProxy, lease time.Duration) {
	s.t.Helper()
	long := 0
	for _, p := range proxy.Settling() {
		if !p.IsNak() {
			continue
		}
		var body struct{ Delay time.Duration }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(p.Body, "-NAK ")), &body); err != nil {
			s.t.Errorf("nak %q: %v", p.Body, err)
		}
		if body.Delay <= 0 || body.Delay > lease+100*time.Millisecond {
			s.t.Errorf("a nak for %s, with a lease of %s", body.Delay, lease)
		}
		if body.Delay > lease/2 {
			long++
		}
	}
	if long == 0 {
		s.t.Error("nobody was told to wait for the rest of the lease")
	}
}

// A worker dies after its bytes have left: before it sent them the row said so, and that is why the next one asks
// first. Without that mark nobody has to be asked.
func TestD37ExpiredLeaseIsNoPermission(t *testing.T) {
	t.Parallel()
	t.Run("marked", func(t *testing.T) {
		t.Parallel()
		s, j := newStage(t), charge("1")
		atProvider, release := s.hold(provider.Received)
		first := s.startWorker()
		s.publish(j)
		rig.Await(t, atProvider, soon, "the request is at the provider")
		if task, ok := s.find(j); !ok || !task.Sending || task.Attempt != 1 || task.FirstSentAt == nil {
			t.Errorf("while the request is out the row is %s", fmt.Sprintf("sending=%v attempt=%d", task.Sending, task.Attempt))
		}
		kill(first)
		release()
		second := s.startWorker()
		s.holds(j)
		drained(t, second)
		if calls := s.calls(j); fmt.Sprint(calls) != "[POST GET]" {
			t.Errorf("the provider saw %q; the next attempt has to ask and to adopt", calls)
		}
	})
	t.Run("not marked", func(t *testing.T) {
		t.Parallel()
		s, j := newStage(t), charge("1")
		before := rig.Point{Span: "settle.claim", Edge: rig.Start, Action: rig.Kill}
		first := s.startWorker(before)
		s.publish(j)
		first.AwaitPoint(before, soon)
		died(t, first)
		second := s.startWorker()
		s.holds(j)
		drained(t, second)
		if calls := s.calls(j); fmt.Sprint(calls) != "[POST]" {
			t.Errorf("the provider saw %q; nothing had to be asked", calls)
		}
	})
}

// calls are the methods of the requests with a job's key, in the order in which they came.
func (s *stage) calls(j job) []string {
	s.t.Helper()
	return query[string](s, `select method from provider.requests where key = $1 order by id`, j.key)
}
