package cases

import "testing"

// Without any fault: one attempt, one request, one effect, nothing in the audit.
func TestNothingBreaks(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	jobs := []job{charge("1"), report(1)}
	s.publish(jobs...)
	w := s.startWorker()
	s.holds(jobs...)
	drained(t, w)
	for _, j := range jobs {
		task, _ := s.find(j)
		if w, lookups := s.requests(j); w != 1 || lookups != 0 || task.Attempt != 1 || task.Duplicates != 0 {
			t.Errorf("%s: W=%d, %d look-ups, %d attempts, %d duplicates", j.key, w, lookups, task.Attempt, task.Duplicates)
		}
	}
}
