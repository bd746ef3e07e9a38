package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// A worker whose clock is ten minutes off neither takes a live lease nor waits for a dead one.
func TestD24WrongClock(t *testing.T) {
	t.Parallel()
	binary := rig.BuildShifted(t, ".")
	t.Run("shifted", func(t *testing.T) { // waits for both, so that the program is there for them
		for name, shift := range map[string]time.Duration{"ahead": 10 * time.Minute, "behind": -10 * time.Minute} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				wrongClock(t, rig.WorkerOptions{Name: "worker", Binary: binary, ClockShift: shift})
			})
		}
	})
}

func wrongClock(t *testing.T, shifted rig.WorkerOptions) {
	s, j := newStage(t), charge("1")
	s.settings.Config.Slots, s.settings.Config.Lease = 1, 2*time.Second
	atProvider, release := s.hold(provider.Received)
	fair := s.startWorker()
	s.publish(j)
	rig.Await(t, atProvider, soon, "the fair worker is in its provider call")
	wrong := s.start(shifted)
	s.publish(j) // a second message, so that the other worker has something to claim; the fair one's slot is taken
	rig.Eventually(t, soon, "the other worker finds a live lease, for longer than one lease lasts", func() bool {
		return strings.Count(wrong.Output(), "found=busy") >= 20
	})
	held, _ := s.find(j)
	if w, _ := s.requests(j); held.Attempt != 1 || w != 1 {
		t.Fatalf("%d attempts and W=%d while the lease was live", held.Attempt, w)
	}
	kill(fair)
	left, _ := s.find(j) // nobody renews it any more
	release()
	s.holds(j)
	drained(t, wrong)
	task, _ := s.find(j)
	taken := s.events(task)[0]
	if wait := taken.At.Sub(*left.LeaseUntil); !strings.HasPrefix(taken.Reason, "taken over") || wait < 0 || wait > 5*time.Second {
		t.Errorf("%q, %s after the end of the last lease", taken.Reason, wait)
	}
	if w, _ := s.requests(j); w != 1 || task.Attempt != 2 {
		t.Errorf("W=%d, %d attempts", w, task.Attempt)
	}
}
