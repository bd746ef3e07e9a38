package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// archive goes through all rows once and returns how many it slimmed.
func (s *stage) archive() (n int) {
	s.t.Helper()
	for slice := (idemstore.Slice{}); ; {
		got, err := s.store.Archive(s.t.Context(), slice)
		if err != nil {
			s.t.Error(err)
			return n
		}
		n, slice.After = n+got.Tasks, got.Through
		if got.Done {
			return n
		}
	}
}

// expire ends the retention of all final tasks. Nobody relays events here, and a task with events would wait for that.
func (s *stage) expire() {
	s.t.Helper()
	for _, sql := range []string{`delete from settle.outbox`,
		`update settle.tasks set expires_at = clock_timestamp() - interval '1 second' where expires_at is not null`} {
		if _, err := s.pool.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A key whose task was archived long ago still stops a duplicate, and its message is acked.
func TestD39DuplicateOfAnArchivedTask(t *testing.T) {
	t.Parallel()
	s, j := newCalmStage(t), charge("1")
	w := s.startWorker()
	s.publish(j)
	s.holds(j)
	s.expire()
	if n := s.archive(); n != 1 {
		t.Fatalf("%d tasks archived", n)
	}
	s.publish(j, j)
	s.awaitSettled()
	task := s.await(j, "replayed", func(task idemstore.Task) bool { return task.Duplicates == 2 })
	if w, lookups := s.requests(j); w != 1 || lookups != 0 || len(s.effects(j)) != 1 || task.Attempt != 1 {
		t.Errorf("W=%d, %d look-ups, effects %q, %d attempts", w, lookups, s.effects(j), task.Attempt)
	}
	if task.ArchivedAt == nil || len(task.Result) == 0 || task.Status != idemstore.Finished {
		t.Errorf("the task became %+v", task)
	}
	drained(t, w)
}

// Rows are archived the moment they are final, under the hands of workers who get each job three times.
func TestD22ArchiveBesideBusyWorkers(t *testing.T) {
	t.Parallel()
	const keys = 60
	s := newCalmStage(t)
	s.settings.Config.Policy.Retention, s.settings.Config.Slots = time.Millisecond, 16
	workers := []*rig.Worker{s.startWorker(), s.startWorker()}
	var jobs []job
	for i := range keys {
		jobs = append(jobs, report(i), report(i), report(i))
	}
	s.publish(jobs...)
	archived := 0
	rig.Eventually(t, soon, "all is done, and archived", func() bool {
		archived += s.archive()
		return archived >= keys
	})
	s.publish(jobs...)
	for range keys {
		s.archive()
	}
	s.holds(jobs...)
	for _, w := range workers {
		drained(t, w)
	}
	if n := query[string](s, `select key from settle.tasks where archived_at is null or payload <> ''`); archived != keys || len(n) > 0 {
		t.Errorf("%d archived, not so %q", archived, n)
	}
	if n := query[string](s, `select key || ' ' || duplicates from settle.tasks where duplicates <> 5`); len(n) > 0 {
		t.Errorf("each key was repeated five times, and the rows say %q", n)
	}
}
