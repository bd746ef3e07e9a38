package cases

import (
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// A handler that panics costs its own job an attempt, and nobody else anything.
func TestD41Panics(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.settings.Config.Policy.MaxFailures = 3
	before := []job{chargeFor("11", "c_panic"), chargeFor("12", "c_panic_nil")}
	after := []job{chargeFor("21", "c_panic_after"), chargeFor("22", "c_panic_decoding")}
	others := []job{charge("1"), report(1), charge("2")}
	w := s.start(rig.WorkerOptions{Name: "misbehaving"})
	for _, jobs := range [][]job{before, after, others} {
		s.publish(jobs...)
	}
	for _, j := range before {
		task := s.awaitStatus(j, idemstore.NeedsReview)
		if w, _ := s.requests(j); w != 0 || task.Failures != 3 || task.Attempt != 3 || task.ErrorClass != "panic" {
			t.Errorf("%s: W=%d, %d failures in %d attempts, class %s", j.key, w, task.Failures, task.Attempt, task.ErrorClass)
		}
	}
	s.holds(append(after, others...)...)
	for _, j := range after {
		task, _ := s.find(j)
		if w, lookups := s.requests(j); w != 1 || lookups != 1 || task.Attempt != 2 || task.Failures != 1 {
			t.Errorf("%s: W=%d, %d look-ups, %d attempts, %d failures", j.key, w, lookups, task.Attempt, task.Failures)
		}
	}
	drained(t, w) // it lives
	s.panicsAreTraced(w)
}

// panicsAreTraced checks the spans of the handler: in error, with a stack; the value of the panic is nowhere.
func (s *stage) panicsAreTraced(w *rig.Worker) {
	s.t.Helper()
	traced := 0
	for line := range strings.Lines(w.Output()) {
		if strings.Contains(line, "span perform") && strings.Contains(line, "handler panicked") {
			traced++
			if !strings.Contains(line, "exception.stacktrace") {
				s.t.Errorf("no stack: %s", line)
			}
		}
	}
	if traced != 8 {
		s.t.Errorf("%d spans of panics, want 8", traced)
	}
	stored := strings.Join(query[string](s, `select to_jsonb(t)::text from settle.tasks t`), "")
	if strings.Contains(w.Output(), secret) || strings.Contains(stored, secret) {
		s.t.Error("the value of a panic was logged, traced or stored")
	}
}
