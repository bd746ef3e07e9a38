package consumer

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// What holds messages back holds recovery back as well.

// insertTasks writes tasks without messages, with orders from 0 on.
func (b *bench) insertTasks(n int, row map[string]string) {
	b.t.Helper()
	for i := range n {
		b.insert(b.kind, fmt.Sprintf(`{"order":"%d"}`, i), row)
	}
}

// attempts are those of all tasks of the bench's kind, by id.
func (b *bench) attempts() (out []int) {
	b.t.Helper()
	all, err := b.store.List(b.t.Context(), idemstore.Filter{Kind: b.kind.Name})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, task := range all {
		out = append(out, task.Attempt)
	}
	return out
}

// passes waits until recovery has looked for due tasks of an engine's first kind so many times more.
func (b *bench) passes(e *Engine, n int) {
	b.t.Helper()
	for range n {
		last := e.kinds[0].looked.Load()
		if !eventually(b.t, 20*time.Second, func() bool { return e.kinds[0].looked.Load() > last }) {
			b.t.Fatal("recovery does not look for tasks")
		}
	}
}

// A provider's cap holds for tasks without messages too, and nothing of it is lost to them.
func TestRecoveryKeepsToTheCap(t *testing.T) {
	t.Parallel()
	const tasks, limit = 12, 2
	b := newBench(t).recovering()
	b.kind.Provider.MaxInFlight = limit
	x := b.watch(30 * time.Millisecond)
	b.insertTasks(tasks, released)
	b.run()
	for i := range tasks {
		b.awaitStatus(fmt.Sprintf("pay_%d", i), idemstore.Finished)
	}
	b.publish(`{"order":"later"}`)
	b.awaitStatus("pay_later", idemstore.Finished)
	if most, calls, _ := x.seen(); most > limit || calls != tasks+1 {
		t.Errorf("%d calls, %d at once", calls, most)
	}
}

// While a kind only asks, what the provider knows is settled, and nothing is sent or even claimed in order to be sent.
func TestRecoveryWhileAsking(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.control(idemstore.ModeAsking)
	b.insert(b.kind, `{"order":"known"}`, oldRow)
	b.insert(b.kind, `{"order":"absent"}`, oldRow)
	b.insert(b.kind, `{"order":"new"}`, released)
	b.pay.effect("pay_known")
	e, _ := b.serve(b.kind)
	b.awaitStatus("pay_known", idemstore.Finished)
	b.await("pay_absent", "asked about", func(task idemstore.Task) bool { return task.Attempt > 1 && task.Status == idemstore.Unknown })
	b.passes(e, 2)
	if task := b.awaitStatus("pay_new", idemstore.Started); task.Attempt != 1 {
		t.Errorf("a task that is to be sent was taken up %d times", task.Attempt-1)
	}
	if w, _, _ := b.pay.counts(); w != 0 {
		t.Errorf("W=%d", w)
	}
	b.control(idemstore.ModeRunning)
	b.awaitStatus("pay_absent", idemstore.Finished)
	b.awaitStatus("pay_new", idemstore.Finished)
	if _, effects, _ := b.pay.counts(); effects != 3 {
		t.Errorf("E=%d", effects)
	}
}

// A kind that is paused is left alone altogether, also by a recovery that a person starts.
func TestRecoveryWhilePaused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.control(idemstore.ModePaused)
	b.insert(b.kind, `{"order":"unknown"}`, oldRow)
	b.insert(b.kind, `{"order":"new"}`, released)
	for _, dry := range []bool{true, false} {
		e := b.engine(b.kind)
		var told []Recovered
		err := e.Recover(t.Context(), RecoverOptions{NewerThan: time.Hour, Limit: 10, Actor: "ann", Reason: "so", DryRun: dry},
			func(r Recovered) { told = append(told, r) })
		if err != nil || len(told) != 2 {
			t.Fatalf("dry run %v: %+v (%v)", dry, told, err)
		}
		for _, r := range told {
			if r.Outcome != RecoverSkipped || r.Message != heldPaused {
				t.Errorf("dry run %v: %s, %s", dry, r.Outcome, r.Message)
			}
		}
	}
	if got := b.attempts(); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("attempts %v", got)
	}
	if w, _, lookups := b.pay.counts(); w != 0 || lookups != 0 {
		t.Errorf("W=%d, %d look-ups", w, lookups)
	}
}

// While the breaker is open look-ups go on, and tasks that would be sent are left where they are, but for the tries.
func TestRecoveryWhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Breaker, b.conf.Policy.BackoffMax = 1, time.Hour       // the next try is in 30 s
	o := b.failing(func(w http.ResponseWriter, r *http.Request) { // it can be asked
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	e, _ := b.serve(b.kind)
	began := time.Now()
	b.publish(`{"order":"opens"}`)
	b.breaker(e, true)
	b.insertTasks(3, released)
	b.insert(b.kind, `{"order":"unknown"}`, oldRow)
	before := o.count()
	b.await("pay_unknown", "asked about", func(task idemstore.Task) bool { return task.Attempt > 1 })
	b.passes(e, 2)
	if o.count() == before {
		t.Error("nobody was asked")
	}
	taken := 0
	for i := range 3 {
		taken += b.await(fmt.Sprintf("pay_%d", i), "there", func(idemstore.Task) bool { return true }).Attempt - 1
	}
	if tries := int(time.Since(began) / longestTry); taken > tries || o.sent() > 1+tries {
		t.Errorf("%d tasks were taken up, %d sends", taken, o.sent())
	}
}

// While the provider answers nothing at all, tasks that only recovery can settle are not asked about again and again: their
// waits would grow far beyond the outage.
func TestRecoveryWhileTheProviderIsSilent(t *testing.T) {
	t.Parallel()
	const tasks = 5
	b := newBench(t).recovering()
	b.conf.Breaker, b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = 1, 10*time.Millisecond, 300*time.Millisecond // a try
	o := b.failing(status(http.StatusServiceUnavailable))
	e, _ := b.serve(b.kind)
	b.publish(`{"order":"opens"}`)
	b.breaker(e, true)
	for i := range tasks {
		b.pay.effect(fmt.Sprintf("pay_%d", i))
		b.insert(b.kind, fmt.Sprintf(`{"order":"%d"}`, i), oldRow)
	}
	if !eventually(t, 20*time.Second, func() bool { return e.kinds[0].remote.breaker.silent() }) {
		t.Fatal("nobody was asked about")
	}
	b.passes(e, 2) // what had begun by then is over
	before, began := o.count(), time.Now()
	b.passes(e, 10)
	if asked, tries := o.count()-before, int(time.Since(began)/(300*time.Millisecond)); asked > tries+1 {
		t.Errorf("%d calls where %d tries are due", asked, tries)
	}
	o.answer(nil)
	for i := range tasks {
		b.awaitStatus(fmt.Sprintf("pay_%d", i), idemstore.Finished)
	}
}

// A recovery that a person starts counts what it parks, and leaves the telling to workers: they know whom to tell.
func TestRecoverCountsAlerts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.calling()
	b.insert(b.kind, plainJob, and(oldRow, "failures", "5"))
	err := b.engine(b.kind).Recover(t.Context(), RecoverOptions{NewerThan: time.Hour, Limit: 10, Actor: "ann", Reason: "so"}, func(Recovered) {})
	if err != nil {
		t.Fatal(err)
	}
	const cause = "needs_review test.pay budget"
	if a := b.alertOf(cause); a.Count != 1 || a.ToldAt != nil || len(p.causes()) != 0 {
		t.Errorf("after the recovery: %+v, told %q", a, p.causes())
	}
	b.run()
	b.told(p, cause)
}
