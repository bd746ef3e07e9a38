package idemstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func (b bench) raise(t *testing.T, alerts ...idemstore.Raising) {
	t.Helper()
	if err := b.Raise(t.Context(), time.Hour, alerts...); err != nil {
		t.Fatal(err)
	}
}

// take takes what is due and returns the causes.
func (b bench) take(t *testing.T, keep time.Duration) string {
	t.Helper()
	taken, err := b.TakeAlerts(t.Context(), 10, keep)
	if err != nil {
		t.Fatal(err)
	}
	var causes []string
	for _, a := range taken {
		causes = append(causes, fmt.Sprintf("%s %d", a.Cause, a.Count))
	}
	slices.Sort(causes)
	return strings.Join(causes, ", ")
}

// An alert is told when it is new, and again once an hour has passed; what comes in between is counted.
func TestAlertIsToldOnceAnHour(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	told := func(cause string) {
		t.Helper()
		if err := b.Told(t.Context(), cause); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	b.raise(t, idemstore.Raising{Cause: "a", Kind: "k", Text: "first", TaskID: 1, Count: 2}, idemstore.Raising{Cause: "b", Text: "other", Count: 1})
	expect("new", b.take(t, time.Hour), "a 2, b 1")
	expect("somebody is at it", b.take(t, time.Hour), "")
	told("a")
	b.raise(t, idemstore.Raising{Cause: "a", Kind: "k", Text: "second", TaskID: 7, Count: 3}, idemstore.Raising{Cause: "b", Text: "other", Count: 1})
	expect("told a moment ago", b.take(t, time.Hour), "")
	b.exec(t, `update settle.alerts set telling_until = clock_timestamp()`)
	expect("not told, and nobody is at it any more", b.take(t, time.Microsecond), "b 2")
	told("b")
	b.exec(t, `update settle.alerts set told_at = told_at - interval '61 minutes'`)
	expect("an hour has passed, and nothing happened", b.take(t, time.Hour), "")
	b.raise(t, idemstore.Raising{Cause: "a", Kind: "k", Text: "third", Count: 1})
	expect("an hour has passed", b.take(t, time.Hour), "a 6")
	told("a")

	all, err := b.Alerts(t.Context(), 0)
	if err != nil || len(all) != 2 || all[0].Cause != "a" || all[0].Text != "third" || all[0].TaskID != 7 || all[0].Kind != "k" || all[0].ToldAt == nil {
		t.Errorf("alerts %+v (%v)", all, err)
	}
	if one, err := b.Alerts(t.Context(), 1); err != nil || len(one) != 1 {
		t.Errorf("alerts %+v (%v)", one, err)
	}
}

// A number of things that are there is not added up, and after a quiet day all begins anew.
func TestAlertCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	count := func() int { return query[int](t, b.pool, `select count::int from settle.alerts`) }
	for _, n := range []int{5, 9, 2} {
		b.raise(t, idemstore.Raising{Cause: "stuck\x00", Text: "t\x00", Count: n, Absolute: true})
		if got := count(); got != n {
			t.Errorf("%d are stuck, and it says %d", n, got)
		}
	}
	b.raise(t, idemstore.Raising{Cause: "stuck\x00", Text: "t", Count: 1})
	if got := count(); got != 3 {
		t.Errorf("count %d", got)
	}
	b.exec(t, `update settle.alerts set first_at = first_at - interval '3 days', last_at = last_at - interval '25 hours'`)
	b.raise(t, idemstore.Raising{Cause: "stuck\x00", Text: "t", Count: 1})
	if got := count(); got != 1 || !query[bool](t, b.pool, `select first_at > clock_timestamp() - interval '1 hour' from settle.alerts`) {
		t.Errorf("count %d after a quiet day", got)
	}
}

// Of many workers one tells.
func TestAlertIsTakenOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const causes = 8
	var taken sync.Map
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range causes {
				b.raise(t, idemstore.Raising{Cause: fmt.Sprint("cause ", i), Text: "t", Count: 1})
				list, err := b.TakeAlerts(t.Context(), 3, time.Hour)
				if err != nil {
					t.Error(err)
				}
				for _, a := range list {
					if _, twice := taken.LoadOrStore(a.Cause, true); twice {
						t.Errorf("%s was taken twice", a.Cause)
					}
				}
			}
		})
	}
	workers.Wait()
	for b.take(t, time.Hour) != "" {
	}
	if n := query[int](t, b.pool, `select sum(count)::int from settle.alerts`); n != 4*causes {
		t.Errorf("%d were counted of %d", n, 4*causes)
	}
}

// Of what is parked, those count of whom no alert has told since, and whoever parked them has had time for one.
func TestUnheard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var kind string
	for _, key := range []string{"first", "second", "fresh"} {
		f := b.performing(t, key)
		b.save(t, idemstore.Save{Fence: f, Status: idemstore.NeedsReview, Cause: idemstore.CauseAbsent, MayBeApplied: true})
		kind = b.task(t, f.TaskID).Kind
		if key != "fresh" {
			b.set(t, f.TaskID, `updated_at = updated_at - interval '1 hour'`)
		}
	}
	unheard := func() string {
		found, err := b.Unheard(t.Context(), time.Minute, kind, "no.such")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(found)
	}
	want := fmt.Sprintf("[{%s absent 2 %d}]", kind, query[int64](t, b.pool, `select id from settle.tasks where key = 'second'`))
	b.raise(t, idemstore.Raising{Cause: "needs_review " + kind + " budget", Kind: kind, Count: 1})
	if got := unheard(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.raise(t, idemstore.Raising{Cause: "needs_review " + kind + " absent", Kind: kind, Count: 1})
	if got := unheard(); got != "[]" {
		t.Errorf("%s after an alert", got)
	}
	b.exec(t, `update settle.alerts set last_at = last_at - interval '1 day'`)
	if got := unheard(); got != want {
		t.Errorf("%s after an alert of the day before, want %s", got, want)
	}
}

func TestStuck(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old, fresh, over := b.performing(t, "old"), b.performing(t, "fresh"), b.performing(t, "over")
	second := b.asking(t, "second")
	b.save(t, finished(over))
	b.set(t, second.TaskID, `created_at = created_at - interval '2 hours'`)
	b.set(t, old.TaskID, `created_at = created_at - interval '1 hour'`)
	b.set(t, over.TaskID, `created_at = created_at - interval '1 hour'`)
	kind := b.task(t, fresh.TaskID).Kind
	found, err := b.Stuck(t.Context(), 15*time.Minute, kind, "no.such")
	if err != nil || len(found) != 1 || found[0] != (idemstore.StuckKind{Kind: kind, Count: 2, TaskID: min(old.TaskID, second.TaskID)}) {
		t.Errorf("stuck %+v (%v)", found, err)
	}
}
