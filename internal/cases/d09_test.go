package cases

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// SIGTERM in the middle of a backlog, and a new process at once: what was done is acked, what was not begun goes back, and
// the new process has neither to wait for an AckWait nor to go through repeats.
func TestD09RestartInABacklog(t *testing.T) {
	t.Parallel()
	const backlog, slots, before = 1000, 16, 300
	s := newStage(t)
	s.settings.Config.Slots, s.settings.Config.AckWait = slots, 30*time.Second
	s.settings.Config.Lease = 30 * time.Second
	s.faults(provider.Fault{DelayBefore: 50 * time.Millisecond})
	for i := range backlog {
		s.publish(charge(fmt.Sprint(i)))
	}
	first := s.throughNATS()
	w := s.startWorker()
	rig.Eventually(t, soon, "300 are done", func() bool { return s.allEffects() >= before })
	w.Signal(syscall.SIGTERM)
	second := s.throughNATS()
	next := s.startWorker()
	if e := w.Wait(s.settings.Config.DrainTimeout); e != (rig.Exit{}) {
		t.Errorf("the worker ended with %s, want exit code 0", e)
	}
	acks, naks := tally(first.Settling())
	done := s.finished()
	if acks > done || acks < before {
		t.Errorf("%d tasks are finished when the first one has ended, and it had acked %d", done, acks)
	}
	awaitLine(t, next, "msg=serving")
	rig.Eventually(t, s.settings.Config.AckWait/5, "the new one settles a message", func() bool { n, _ := tally(second.Settling()); return n > 0 })
	s.awaitSettled()
	if e, all := s.allEffects(), s.finished(); e != backlog || all != backlog {
		t.Errorf("E=%d, %d finished, of %d jobs", e, all, backlog)
	}
	if n := redelivered(second.Settling()); n > naks {
		t.Errorf("%d messages came again, and %d had been given back", n, naks)
	}
	drained(t, next)
}

// finished counts the tasks that are.
func (s *stage) finished() (n int) {
	s.t.Helper()
	s.scan(`select count(*) from settle.tasks where status = $1`, []any{idemstore.Finished}, &n)
	return n
}

func tally(settling []rig.Publication) (acks, naks int) {
	for _, p := range settling {
		switch {
		case p.IsAck():
			acks++
		case p.IsNak():
			naks++
		}
	}
	return acks, naks
}

// redelivered counts the acks of messages that had been delivered before: the fifth token of an ack's subject counts the
// deliveries where the server has no domain, $JS.ACK.<stream>.<consumer>.<delivered>.
func redelivered(settling []rig.Publication) (n int) {
	for _, p := range settling {
		if tokens := strings.Split(p.Subject, "."); p.IsAck() && len(tokens) > 4 && tokens[4] != "1" {
			n++
		}
	}
	return n
}
