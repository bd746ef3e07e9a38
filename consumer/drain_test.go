package consumer

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// launch starts an engine whose end the test sees for itself.
func (b *bench) launch() (e *Engine, drain context.CancelFunc, ended <-chan error) {
	b.t.Helper()
	e, err := New(b.pool, b.js, b.conf, b.kind)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	b.t.Cleanup(cancel)
	return e, cancel, done
}

// isDraining reports whether the engine has stopped letting attempts begin.
func (e *Engine) isDraining() bool {
	e.held.mu.Lock()
	defer e.held.mu.Unlock()
	return e.held.draining
}

// awaitDraining returns once nothing may begin any more.
func awaitDraining(e *Engine) {
	for tick := time.NewTicker(time.Millisecond); !e.isDraining(); <-tick.C {
	}
}

// endsWell waits for Run to return nil.
func endsWell(t *testing.T, ended <-chan error) {
	t.Helper()
	if err := await(t, ended, "Run returns"); err != nil {
		t.Errorf("run: %v", err)
	}
}

// givenBack checks a task that the drain gave back at no cost.
func (b *bench) givenBack(status idemstore.Status) {
	b.t.Helper()
	task, err := b.store.Find(b.t.Context(), b.kind.Name, "pay_1")
	if err != nil {
		b.t.Fatal(err)
	}
	if task.Status != status || task.LeaseUntil != nil || task.Failures != 0 || task.Unsure != (status == idemstore.Unknown) {
		b.t.Errorf("after the drain: %s, lease %v, failures %d, unsure %v", task.Status, task.LeaseUntil, task.Failures, task.Unsure)
	}
	if strings.Contains(task.LastError, "context canceled") {
		b.t.Errorf("D-25: the row says %q", task.LastError)
	}
	if n := b.messages(); n != 1 {
		b.t.Errorf("%d messages in the stream after the drain", n)
	}
}

// takenUp starts the next process, which finishes the task; AckWait is too long to have helped.
func (b *bench) takenUp(attempt, requests int) {
	b.t.Helper()
	b.run()
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if task.Attempt != attempt || task.Failures != 0 {
		b.t.Errorf("finished with attempt %d and %d failures", task.Attempt, task.Failures)
	}
	if w, e, _ := b.pay.counts(); w != requests || e != 1 {
		b.t.Errorf("W=%d E=%d, want W=%d E=1", w, e, requests)
	}
}

// slowBroker gives a delivery up so late that nothing in a test comes back by itself.
func (b *bench) slowBroker() {
	b.conf.AckWait, b.conf.Lease = time.Minute, time.Minute
}

// What has sent nothing is given back at once, whatever its handler is doing.
func TestDrainUnsent(t *testing.T) {
	t.Parallel()
	for name, perform := range map[string]func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error){
		"the handler waits and returns": func(ctx context.Context, _ *Attempt[payJob], _ func() (paid, error)) (paid, error) {
			<-ctx.Done()
			return paid{}, ctx.Err()
		},
		"the handler waits and sends": func(ctx context.Context, _ *Attempt[payJob], pay func() (paid, error)) (paid, error) {
			<-ctx.Done()
			return pay()
		},
		"the handler waits and asks the gate": func(ctx context.Context, a *Attempt[payJob], _ func() (paid, error)) (paid, error) {
			<-ctx.Done()
			return paid{}, a.MaySend()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.slowBroker()
			entered, first := make(chan struct{}), true
			usual := b.kind.Perform
			b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
				if !first {
					return usual(ctx, a)
				}
				first = false
				close(entered)
				return perform(ctx, a, func() (paid, error) { return usual(context.WithoutCancel(ctx), a) })
			}
			_, drain, ended := b.launch()
			b.publish(plainJob)
			await(t, entered, "the handler begins")
			drain()
			endsWell(t, ended)
			b.givenBack(idemstore.Started)
			b.takenUp(2, 1)
		})
	}
}

// A drain that falls between two steps of an attempt: Check holds it there.
func TestDrainBetweenSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		row    map[string]string
		status idemstore.Status
	}{
		{"before the gate is open", nil, idemstore.Started},
		{"before the resend is armed", oldRow, idemstore.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.slowBroker()
			if c.row != nil {
				b.insert(b.kind, plainJob, c.row)
			}
			entered, serving := make(chan struct{}), make(chan *Engine, 1)
			b.kind.Check = func(context.Context, DB, payJob) (paid, bool, error) {
				select {
				case e := <-serving:
					close(entered)
					awaitDraining(e)
				default: // the next process
				}
				return paid{}, false, nil
			}
			e, drain, ended := b.launch()
			serving <- e
			b.publish(plainJob)
			await(t, entered, "Check begins")
			drain()
			endsWell(t, ended)
			b.givenBack(c.status)
			b.takenUp(map[idemstore.Status]int{idemstore.Started: 2, idemstore.Unknown: 3}[c.status], 1)
		})
	}
}

// A look-up is cut by the drain: nothing was sent, and nothing new is known.
func TestDrainWhileAsking(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	b.insert(b.kind, plainJob, oldRow)
	entered := make(chan struct{})
	b.pay.onLookup = func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}
	_, drain, ended := b.launch()
	b.publish(plainJob)
	await(t, entered, "the look-up reaches the provider")
	drain()
	endsWell(t, ended)
	b.givenBack(idemstore.Unknown)
	b.pay.mu.Lock()
	b.pay.onLookup = nil
	b.pay.mu.Unlock()
	b.takenUp(3, 1)
}

// D-25 (a): what has been sent may finish within the grace time.
func TestDrainSentFinishes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, release := b.pay.hold()
	e, drain, ended := b.launch()
	b.publish(plainJob)
	await(t, entered, "the request reaches the provider")
	drain()
	awaitDraining(e)
	release()
	endsWell(t, ended)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	if n := b.messages(); n != 0 || task.Attempt != 1 {
		t.Errorf("%d messages left, attempt %d", n, task.Attempt)
	}
}

// D-25 (b): beyond the grace time it is cut short, and unknown: never failed, and at no cost.
func TestDrainSentIsCutShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cutShort()
	b.takenUp(2, 1)
}

// The same at a provider without keys: asking before the absent-after time would decide nothing.
func TestDrainSentIsCutShortWithoutKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	unkeyed(false)(b.pay, &b.kind)
	b.kind.Policy.MaxAge = 2 * longAbsent
	b.cutShort()
	task, err := b.store.Find(t.Context(), b.kind.Name, "pay_1")
	if err != nil || waited(task.NextAttemptAt.Sub(*task.LastSentBy)) != "settled" {
		t.Errorf("due %s after the last send, want %s (%v)", task.NextAttemptAt.Sub(*task.LastSentBy), longAbsent, err)
	}
	if w, e, lookups := b.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d asks=%d", w, e, lookups)
	}
}

// cutShort drains an engine whose one job is at the provider, with its effect done and no answer to come.
func (b *bench) cutShort() {
	t := b.t
	t.Helper()
	b.slowBroker()
	b.conf.DrainTimeout = 100 * time.Millisecond
	usual := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		out, err := usual(ctx, a)
		if ctx.Err() != nil {
			return out, ctx.Err() // as many clients do
		}
		return out, err
	}
	entered := make(chan struct{})
	b.pay.then(b.pay.effectThen(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	_, drain, ended := b.launch()
	b.publish(plainJob)
	await(t, entered, "the request reaches the provider")
	drain()
	endsWell(t, ended)
	b.givenBack(idemstore.Unknown)
	events, err := b.store.Events(t.Context(), 1)
	if err != nil || len(events) != 1 || events[0].Reason != "the process stopped while the provider was at work" {
		t.Errorf("audit: %v (%v)", events, err)
	}
}

// A message that comes while the process drains is handed back at once, and nothing is done for it.
func TestDrainHandsBackWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	heard := b.listen()
	for sequence := uint64(1); ; sequence++ {
		e, drain, ended := b.launch()
		if !eventually(t, 10*time.Second, func() bool { return b.waitingPulls() > 0 }) {
			t.Fatal("no pull is open")
		}
		drain()
		awaitDraining(e)
		b.publish(fmt.Sprintf(`{"order":"%d"}`, sequence))
		endsWell(t, ended)
		_, err := b.store.Find(t.Context(), b.kind.Name, fmt.Sprintf("pay_%d", sequence))
		if err == nil {
			t.Fatal("a task was begun")
		}
		if eventually(t, time.Second, func() bool { return len(heard.about(sequence)) > 0 }) {
			break // the open pull got it
		}
		if sequence == 5 {
			t.Fatal("the open pull never got the message")
		}
	}
	b.run()
	b.awaitSettled()
}

func (b *bench) waitingPulls() int {
	cons, err := b.js.Consumer(b.t.Context(), jobStream, consumerName(b.kind.Name))
	if err != nil {
		return 0
	}
	return cons.CachedInfo().NumWaiting
}

// D-09: a restart in the middle of a backlog loses nothing and repeats nothing.
func TestDrainInABacklog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	const jobs = 60
	for i := range jobs {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	_, drain, ended := b.launch()
	if !eventually(t, 20*time.Second, func() bool { _, e, _ := b.pay.counts(); return e >= jobs/4 }) {
		t.Fatal("no job was done")
	}
	drain()
	endsWell(t, ended)
	b.run()
	b.awaitSettled()
	finished, err := b.store.List(t.Context(), idemstore.Filter{Status: idemstore.Finished, Limit: jobs + 1})
	if w, e, _ := b.pay.counts(); err != nil || len(finished) != jobs || w != jobs || e != jobs {
		t.Errorf("finished %d, W=%d E=%d of %d jobs (%v)", len(finished), w, e, jobs, err)
	}
}

// A handler that ignores its context cannot hold the process back, nor send.
func TestDrainLeavesAStubbornHandlerBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	b.conf.DrainTimeout = 100 * time.Millisecond
	entered, release, refused := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b.kind.Perform = func(_ context.Context, a *Attempt[payJob]) (paid, error) {
		close(entered)
		<-release
		refused <- a.MaySend()
		return paid{}, nil
	}
	_, drain, ended := b.launch()
	b.publish(plainJob)
	await(t, entered, "the handler begins")
	drain()
	err := await(t, ended, "Run returns")
	if err == nil || !strings.Contains(err.Error(), "handler ignores its context") {
		t.Errorf("run: %v", err)
	}
	b.givenBack(idemstore.Started)
	close(release)
	if err := await(t, refused, "the handler asks the gate"); err == nil {
		t.Error("it could have sent")
	}
}

func TestRunOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, drain, ended := b.launch()
	if !eventually(t, 10*time.Second, func() bool { return e.Ready() == nil }) {
		t.Fatalf("not ready: %v", e.Ready())
	}
	if err := e.Run(t.Context()); err == nil {
		t.Error("a second Run was let through")
	}
	drain()
	endsWell(t, ended)

	e, drain, ended = b.launch()
	drain() // perhaps before it has begun
	endsWell(t, ended)
	if e.held.count() != 0 {
		t.Error("something is held after the end")
	}
}
