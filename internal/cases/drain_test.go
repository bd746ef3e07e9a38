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

// terminated runs a worker that gets SIGTERM when the effect has happened. The provider answers a second later.
func terminated(t *testing.T, j job, grace time.Duration) *stage {
	t.Helper()
	s := newStage(t)
	if err := s.provider.SetFaults([]provider.Fault{{DelayAfter: time.Second}}); err != nil {
		t.Fatal(err)
	}
	s.settings.Config.DrainTimeout, s.settings.Config.Lease = grace, 5*time.Second
	w := s.startWorker()
	stopped := s.at(provider.AfterCommit, func(context.Context) { w.Signal(syscall.SIGTERM) })
	s.publish(j)
	rig.Await(t, stopped, soon, "the effect has happened")
	if e := w.Wait(soon); e != (rig.Exit{}) {
		t.Errorf("the worker ended with %s, want exit code 0", e)
	}
	if task, ok := s.find(j); !ok || strings.Contains(task.LastError+task.Answer, "context canceled") {
		t.Errorf("the row's failure reason is %q", task.LastError)
	}
	return s
}

// SIGTERM while the provider is at work: within the grace time its answer is awaited, saved and acked.
func TestD25StopWithinTheGraceTime(t *testing.T) {
	t.Parallel()
	j := charge("1")
	s := terminated(t, j, 5*time.Second)
	if task, _ := s.find(j); task.Status != idemstore.Finished || task.Attempt != 1 || task.LastError != "" {
		t.Errorf("the row is %s after %d attempts: %s", task.Status, task.Attempt, task.LastError)
	}
	s.holds(j)
}

// SIGTERM with too little time: the outcome is unknown, and the next process asks.
func TestD25StopBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	j := charge("1")
	s := terminated(t, j, 200*time.Millisecond)
	if task, _ := s.find(j); task.Status != idemstore.Unknown || !task.Unsure || task.Failures != 0 {
		t.Errorf("the row is %s, %d failures: %s", task.Status, task.Failures, task.LastError)
	}
	if left := rig.StreamMessages(t, s.js, "JOBS"); left != 1 {
		t.Errorf("%d messages in the stream, want 1", left)
	}
	next := s.startWorker()
	s.holds(j)
	drained(t, next)
	if calls := s.calls(j); fmt.Sprint(calls) != "[POST GET]" {
		t.Errorf("the provider saw %q; the next process has to ask first", calls)
	}
}
