package consumer

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// outage is a provider that can be down: then everything is answered by one handler, and counted.
type outage struct {
	b  *bench
	mu sync.Mutex

	down  http.HandlerFunc // nil: it is up
	calls int              // while it was down, look-ups included
	sends int              // of them
	now   int              // of them under way
	most  int              // at once, since the last reset
}

// failing puts an outage before the bench's provider.
func (b *bench) failing(answer http.HandlerFunc) *outage {
	o := &outage{b: b, down: answer}
	b.pay.mu.Lock()
	defer b.pay.mu.Unlock()
	b.pay.front = func(w http.ResponseWriter, r *http.Request) bool {
		h := o.enter(r)
		if h != nil {
			defer o.leave()
			h(w, r)
		}
		return h != nil
	}
	return o
}

func (o *outage) enter(r *http.Request) http.HandlerFunc {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down != nil {
		o.calls++
		if r.Method == http.MethodPost {
			o.sends++
		}
		o.now++
		o.most = max(o.most, o.now)
	}
	return o.down
}

func (o *outage) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now--
}

// answer changes what is answered; nil ends the outage.
func (o *outage) answer(h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = h
}

// count is how many calls came while it was down.
func (o *outage) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}

// sent is how many of them were sends.
func (o *outage) sent() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sends
}

// alone starts to watch how many calls are under way at once.
func (o *outage) alone() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.most = 0
}

// atOnce is how many there were.
func (o *outage) atOnce() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most
}

// breaker waits until the one breaker of an engine is open, or closed.
func (b *bench) breaker(e *Engine, open bool) BreakerState {
	b.t.Helper()
	if !eventually(b.t, 20*time.Second, func() bool { return e.Breakers()[0].Open == open }) {
		b.t.Fatalf("the breaker never was open=%v: %+v", open, e.Breakers())
	}
	return e.Breakers()[0]
}

// A provider that fails for all is left alone but for one try per interval, and when it is back everything goes on: no
// budget is spent, and each job has its one effect.
func TestBreakerPausesIntake(t *testing.T) {
	t.Parallel()
	const jobs, limit, interval = 120, 3, 100 * time.Millisecond
	for name, answer := range map[string]http.HandlerFunc{
		"unavailable": status(http.StatusServiceUnavailable),
		"hangs up":    noAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.conf.Breaker, b.conf.Policy.BackoffMin = limit, interval
			o := b.failing(answer)
			for i := range jobs {
				b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
			}
			e, _ := b.serve(b.kind)
			opened := b.breaker(e, true)
			if opened.Provider != "test" || len(opened.Kinds) != 1 || opened.Failures < limit || opened.Misconfigured {
				t.Errorf("it is open as %+v", opened)
			}
			if err := e.Ready(); err != nil {
				t.Errorf("not ready: %v", err)
			}
			before, began := o.count(), time.Now()
			if !eventually(t, 20*time.Second, func() bool { return o.count() >= before+b.conf.Slots+1 }) {
				t.Fatalf("%d tries", o.count()-before) // what was under way has ended now
			}
			o.alone()
			if !eventually(t, 20*time.Second, func() bool { return o.count() >= before+b.conf.Slots+4 }) {
				t.Fatalf("%d tries", o.count()-before)
			}
			if n := o.atOnce(); n != 1 {
				t.Errorf("%d tries at once", n)
			}
			if tries := o.count() - before; time.Duration(tries-b.conf.Slots-1)*interval > time.Since(began) {
				t.Errorf("%d tries in %v", tries, time.Since(began))
			}
			o.answer(nil)
			b.breaker(e, false)
			for i := range jobs {
				if task := b.awaitStatus(fmt.Sprintf("pay_%d", i), idemstore.Finished); task.Failures > 2 {
					t.Errorf("job %d had %d failures", i, task.Failures)
				}
			}
			b.awaitSettled()
			if _, effects, _ := b.pay.counts(); effects != jobs {
				t.Errorf("E=%d of %d", effects, jobs)
			}
		})
	}
}

// A wrong token closes the door for all at once, with one send, and a fixed one opens it.
func TestBreakerWithoutARight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Slots, b.conf.Policy.BackoffMax = 1, 500*time.Millisecond
	o := b.failing(status(http.StatusUnauthorized))
	b.publish(`{"order":"1"}`)
	b.publish(`{"order":"2"}`)
	e, _ := b.serve(b.kind)
	if opened := b.breaker(e, true); !opened.Misconfigured || opened.Failures != 1 || o.count() != 1 {
		t.Errorf("it is open as %+v, after %d sends", opened, o.count())
	}
	o.answer(nil)
	for _, key := range []string{"pay_1", "pay_2"} {
		b.awaitStatus(key, idemstore.Finished)
	}
	b.breaker(e, false)
}

// Kinds of one provider stop together; a kind of another one does not notice.
func TestBreakerIsTheProviders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Breaker, b.conf.Slots, b.conf.Policy.BackoffMax = 1, 1, time.Hour // the next try is in 30 s
	o := b.failing(status(http.StatusServiceUnavailable))
	twin := b.pay.kind()
	twin.Name, twin.Provider.KeyPrefix = "test.twin", ""
	b.publish(plainJob)
	e, _ := b.serve(b.kind, twin, b.other())
	b.awaitStatus("pay_1", idemstore.Unknown)
	if breakers := e.Breakers(); len(breakers) != 2 || breakers[0].Provider != "other" || breakers[0].Open || len(breakers[1].Kinds) != 2 || !breakers[1].Open {
		t.Errorf("breakers %+v", breakers)
	}
	if _, err := b.js.Publish(t.Context(), subject("test.twin"), []byte(plainJob)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.Publish(t.Context(), subject("test.other"), []byte(plainJob)); err != nil {
		t.Fatal(err)
	}
	if !eventually(t, 20*time.Second, func() bool {
		task, err := b.store.Find(t.Context(), "test.other", "pay_1")
		return err == nil && task.Status == idemstore.Finished
	}) {
		t.Fatal("the kind of the other provider is not served")
	}
	if _, err := b.store.Find(t.Context(), "test.twin", "pay_1"); err == nil || o.count() != 1 {
		t.Errorf("the twin was served, or tried: %d sends", o.count())
	}
}

// What is under way when the breaker opens is not cut, and its success is as good as any.
func TestBreakerCutsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Breaker, b.conf.Slots, b.conf.Policy.BackoffMax, b.conf.Policy.Deadline = 1, 2, time.Hour, 20*time.Second
	entered, release := b.pay.hold()
	b.pay.then(noAnswer)
	e, _ := b.serve(b.kind)
	b.publish(`{"order":"1"}`)
	await(t, entered, "the first job is sent")
	b.publish(`{"order":"2"}`)
	b.breaker(e, true)
	release()
	if task := b.awaitStatus("pay_1", idemstore.Finished); task.Attempt != 1 {
		t.Errorf("it took %d attempts", task.Attempt)
	}
	b.breaker(e, false)
}

// Off is off: a provider that fails is called as often as the back-offs say.
func TestBreakerOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Breaker = -1
	b.conf.Policy.MaxFailures = 100
	o := b.failing(status(http.StatusServiceUnavailable))
	e, _ := b.serve(b.kind)
	if len(e.Breakers()) != 0 {
		t.Errorf("breakers %+v", e.Breakers())
	}
	for i := range 12 {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	if !eventually(t, 20*time.Second, func() bool { return o.count() >= 12 }) {
		t.Errorf("%d sends", o.count())
	}
}

// A look-up that began before the breaker opened may settle its task, but not send it again: the tries are counted.
func TestBreakerHoldsResends(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Breaker, b.conf.Slots, b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = 1, 2, time.Minute, time.Hour
	b.conf.Policy.Deadline = 20 * time.Second
	b.insert(b.kind, plainJob, oldRow)
	asked, release := make(chan struct{}), make(chan struct{})
	b.pay.onLookup = func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		w.WriteHeader(http.StatusNotFound)
	}
	b.pay.then(status(http.StatusServiceUnavailable))
	e, _ := b.serve(b.kind)
	b.publish(plainJob)
	await(t, asked, "the provider is asked")
	b.publish(`{"order":"2"}`)
	b.breaker(e, true)
	close(release)
	task := b.await("pay_1", "saved", func(task idemstore.Task) bool { return task.LeaseUntil == nil && task.Attempt == 2 })
	events, err := b.store.Events(t.Context(), task.TaskID)
	if err != nil || len(events) != 1 || events[0].Reason != "to be sent again, but not now: "+heldOpen || task.Status != idemstore.Unknown {
		t.Errorf("%s, audit %+v (%v)", task.Status, events, err)
	}
	if w, _, _ := b.pay.counts(); w != 1 || task.Failures != 0 {
		t.Errorf("W=%d, %d failures", w, task.Failures)
	}
}
