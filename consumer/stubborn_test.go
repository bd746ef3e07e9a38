package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// A handler that ignores its context is left behind: its task goes on, it keeps its slot, and it can no longer send
// nor change what is stored.
func TestStubbornHandlerKeepsItsSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Slots, b.conf.Policy.Deadline, b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = 1, time.Second, time.Hour, time.Hour
	b.slowBroker()
	release, sends, first := make(chan struct{}), make(chan error, 2), true
	usual := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		if !first {
			return usual(ctx, a)
		}
		first = false
		<-ctx.Done()
		for tick := time.NewTicker(time.Millisecond); !isClosed(release); <-tick.C {
			a.KeepAnswer(200, []byte("late")) // while the engine saves
		}
		sends <- a.MaySend()
		_, err := usual(context.WithoutCancel(ctx), a)
		sends <- err
		return paid{ID: "late"}, nil
	}
	e, stop := b.serve(b.kind)
	b.publish(plainJob)
	task := b.awaitStatus("pay_1", idemstore.Unknown)
	if task.Failures != 1 || task.ErrorClass != "timeout" {
		t.Errorf("failures %d, class %s", task.Failures, task.ErrorClass)
	}
	b.publish(`{"order":"2"}`)
	// The server counts a message for the consumer a moment after it has confirmed it to the publisher.
	if !eventually(t, 10*time.Second, func() bool { return b.undelivered() == 1 }) || len(e.kinds[0].slots) != 1 {
		t.Errorf("%d messages wait for the slot, %d slots are taken", b.undelivered(), len(e.kinds[0].slots))
	}
	close(release)
	for range 2 {
		if err := await(t, sends, "the handler tries to send"); !errors.Is(err, ErrDeadline) {
			t.Errorf("it sends: %v", err)
		}
	}
	b.awaitStatus("pay_2", idemstore.Finished)
	stop()
	if w, e, _ := b.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d", w, e)
	}
	task = b.awaitStatus("pay_1", idemstore.Unknown)
	if task.ExternalID != "" || task.Attempt != 1 {
		t.Errorf("the late answer was stored: %+v", task)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// undelivered is how many messages no worker has got yet.
func (b *bench) undelivered() uint64 {
	b.t.Helper()
	cons, err := b.js.Consumer(b.t.Context(), jobStream, consumerName(b.kind.Name))
	if err != nil {
		b.t.Fatal(err)
	}
	return cons.CachedInfo().NumPending
}

// The same for a look-up: its late verdict counts for nothing.
func TestStubbornLookup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Policy.Deadline, b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Second, time.Hour, time.Hour
	b.slowBroker()
	b.insert(b.kind, plainJob, oldRow)
	release, returning := make(chan struct{}), make(chan struct{})
	b.kind.Lookup = func(context.Context, *Attempt[payJob]) (paid, Verdict, error) {
		<-release
		defer close(returning)
		return paid{ID: "late"}, Found, nil
	}
	stop := b.run()
	b.publish(plainJob)
	b.await("pay_1", "asked about", func(task idemstore.Task) bool { return task.Attempt == 2 && task.LeaseUntil == nil })
	close(release)
	await(t, returning, "the look-up returns")
	stop()
	if task := b.awaitStatus("pay_1", idemstore.Unknown); task.ExternalID != "" || task.Failures != 0 || task.ErrorClass != "timeout" {
		t.Errorf("task %+v", task)
	}
	if w, e, _ := b.pay.counts(); w != 0 || e != 0 {
		t.Errorf("W=%d E=%d", w, e)
	}
}

// A gate is shut as soon as its handler has returned: what a handler leaves running cannot send.
func TestNothingIsSentAfterTheHandlerReturned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var a *Attempt[payJob]
	usual := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, attempt *Attempt[payJob]) (paid, error) {
		a = attempt
		return usual(ctx, attempt)
	}
	b.run()
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if err := a.MaySend(); err == nil {
		t.Error("it may send")
	}
}
