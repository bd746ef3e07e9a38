package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// wrongClocks are by how much a worker's clock is wrong.
var wrongClocks = map[string]time.Duration{"ahead": 10 * time.Minute, "behind": -10 * time.Minute}

// A worker whose clock is ten minutes off neither takes a live lease nor waits for a dead one; and nobody takes its own
// while it lives, or waits for that for long once it is dead.
func TestD24WrongClock(t *testing.T) {
	t.Parallel()
	binary := rig.BuildShifted(t, ".")
	fair := rig.WorkerOptions{Name: "worker"}
	t.Run("shifted", func(t *testing.T) { // waits for all, so that the program is there for them
		for name, shift := range wrongClocks {
			wrong := rig.WorkerOptions{Name: "worker", Binary: binary, ClockShift: shift}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				takesOver(t, fair, wrong)
			})
			t.Run("holder "+name, func(t *testing.T) {
				t.Parallel()
				takesOver(t, wrong, fair)
			})
		}
		t.Run("under load", func(t *testing.T) {
			t.Parallel()
			clocksApart(t, binary)
		})
	})
}

// takesOver lets one worker hold a task for longer than a lease lasts, and then die. The other one takes it after that.
func takesOver(t *testing.T, holder, other rig.WorkerOptions) {
	s, j := newStage(t), charge("1")
	s.settings.Config.Slots, s.settings.Config.Lease = 1, 2*time.Second
	atProvider, release := s.hold(provider.Received)
	first := s.start(holder)
	s.publish(j)
	rig.Await(t, atProvider, soon, "the first worker is in its provider call")
	second := s.start(other)
	s.publish(j) // a second message, so that the other worker has something to claim; the first one's slot is taken
	rig.Eventually(t, soon, "the other worker finds a live lease, for longer than one lease lasts", func() bool {
		return strings.Count(second.Output(), "found=busy") >= 20
	})
	held, _ := s.find(j)
	if w, _ := s.requests(j); held.Attempt != 1 || w != 1 {
		t.Fatalf("%d attempts and W=%d while the lease was live", held.Attempt, w)
	}
	kill(first)
	left, _ := s.find(j) // nobody renews it any more
	release()
	s.holds(j)
	drained(t, second)
	task, _ := s.find(j)
	taken := s.events(task)[0]
	if wait := taken.At.Sub(*left.LeaseUntil); !strings.HasPrefix(taken.Reason, "taken over") || wait < 0 || wait > time.Minute {
		t.Errorf("%q, %s after the end of the last lease", taken.Reason, wait)
	}
	if w, _ := s.requests(j); w != 1 || task.Attempt != 2 {
		t.Errorf("W=%d, %d attempts", w, task.Attempt)
	}
}

// clocksApart serves one stream by clocks that are twenty minutes apart. Each of the workers dies under load and is replaced
// by one of its sort: the others take its tasks over, whatever time it was to it, and no age or due time is judged by it.
func clocksApart(t *testing.T, binary string) {
	const some = 30
	s := newStage(t)
	s.settings.Config.Lease, s.settings.Quiet = 2*time.Second, true
	s.settings.Config.NoRecovery, s.settings.Config.RecoverEvery = false, time.Second
	s.settings.Config.Policy.MaxAge = 5 * time.Minute  // over, by the one clock; far off, by the other
	s.faults(provider.Fault{DelayBefore: time.Second}) // at fifty a second, every worker has calls open when it is killed
	crew := map[string]*rig.Worker{}
	options := map[string]rig.WorkerOptions{"fair": {Name: "worker"}}
	for name, shift := range wrongClocks {
		options[name] = rig.WorkerOptions{Name: "worker", Binary: binary, ClockShift: shift}
	}
	for name, o := range options {
		crew[name] = s.start(o)
	}
	end := s.publishSteadily()
	for name, o := range options {
		s.awaitEffects(s.allEffects() + some)
		kill(crew[name])
		crew[name] = s.start(o)
	}
	many := end()
	s.awaitEffects(many)
	s.allOnce(many)
	for _, w := range crew {
		ended(t, w)
	}
	early := query[string](s, `select key from settle.task_events e join settle.tasks t on t.id = e.task_id
		where reason like 'taken over%' and e.at < t.first_sent_at + interval '2 seconds'`)
	if len(early) > 0 {
		t.Errorf("taken over within the first lease: %q", early)
	}
	if n := query[int](s, `select count(*)::int from settle.task_events where reason like 'taken over%'`)[0]; n == 0 {
		t.Error("nothing was taken over: the kills missed the work")
	}
}
