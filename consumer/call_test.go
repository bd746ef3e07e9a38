package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func TestCall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n, replayed := range []bool{false, true} { // the second is dropped by the stream, so only the table can tell
		a, err := Call(ctx, b.pool, b.js, b.kind, orderJob("1"))
		if err != nil || a.Status != idemstore.Finished || a.Result.ID != "pay_1" || a.Replayed != replayed || a.TaskID != 1 || a.Key != "pay_1" {
			t.Errorf("call %d: %+v (%v)", n+1, a, err)
		}
	}
	var refused *InvalidJobError
	if _, err := Call(ctx, b.pool, b.js, b.kind, payJob{}); !errors.As(err, &refused) {
		t.Errorf("a job without a key: %v", err)
	}
	other := orderJob("1")
	other.Note = "other"
	if _, err := Call(ctx, b.pool, b.js, b.kind, other); !errors.As(err, &refused) || refused.Reason != idemstore.Conflict {
		t.Errorf("other content under the same key: %v", err)
	}
	if _, err := Call(ctx, b.pool, b.js, b.kind, other); !errors.As(err, &refused) || refused.Reason != idemstore.Conflict {
		t.Errorf("the same again, which the stream drops: %v", err)
	}
}

// Where the table is faster than the worker's answer, it also tells who did the work: another message, not this one.
func TestCallAnsweredByTheTableAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stop := b.run()
	if _, err := Call(t.Context(), nil, b.js, b.kind, orderJob("1")); err != nil {
		t.Fatal(err)
	}
	stop()
	own := map[string][]string{"Nats-Msg-Id": {"again"}} // so that the stream keeps it
	c, err := StartCall(t.Context(), b.pool, b.js, b.kind, []byte(plainJob), own)
	if err != nil || c.Publication.Outcome != PublishStored {
		t.Fatalf("%s, %v", c.Publication.Outcome, err)
	}
	if a, err := c.Wait(t.Context()); err != nil || a.Status != idemstore.Finished || !a.Replayed {
		t.Errorf("%+v (%v)", a, err)
	}
}

// Without a database a repeat is answered by a worker: its message has an id of its own, so that the stream keeps it. With an
// id that the stream has seen nobody answers, and that is said at once.
func TestCallWithoutDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	for n, replayed := range []bool{false, true} {
		a, err := Call(t.Context(), nil, b.js, b.kind, orderJob("1"))
		if err != nil || a.Status != idemstore.Finished || a.Result.ID != "pay_1" || a.Replayed != replayed {
			t.Errorf("call %d: %+v (%v)", n+1, a, err)
		}
	}
	own := map[string][]string{"nats-msg-id": {"mine"}, "settle-reply": {"_INBOX.stolen"}}
	for n, want := range []error{nil, ErrUnanswered} {
		c, err := StartCall(t.Context(), nil, b.js, b.kind, []byte(plainJob), own)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(t.Context()); !errors.Is(err, want) {
			t.Errorf("call %d with an id of the caller's: %v, want %v", n+1, err, want)
		}
	}
}

// Who stops to wait is told that the job goes on, and by what it can be found.
func TestCallGivesUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, err := StartCall(t.Context(), b.pool, b.js, b.kind, []byte(plainJob), nil)
	if err != nil || c.Publication.Outcome != PublishStored || c.Publication.Sequence != 1 || c.Publication.Key != "pay_1" {
		t.Fatalf("%+v (%v)", c.Publication, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Wait(over); !errors.Is(err, ErrUnanswered) || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting no more: %v", err)
	}
	b.run()
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
}

// An answer that never comes is read from the table; without a worker the caller's own limit ends the wait.
func TestCallReadsTheTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := EnsureStreams(t.Context(), b.js, Config{}); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Call(limited, b.pool, b.js, b.kind, orderJob("1")); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnanswered) {
		t.Errorf("without a worker: %v", err)
	}
	b.insert(b.kind, `{"order":"2"}`, map[string]string{"status": `'finished'`, "finished_at": "now()", "result": `'{"id":"pay_2"}'`})
	limited, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a, err := Call(limited, b.pool, b.js, b.kind, orderJob("2"))
	if err != nil || a.Result.ID != "pay_2" {
		t.Errorf("%+v (%v)", a, err)
	}
}

// Whoever looks at the error alone takes nothing for done that is not.
func TestCallOfWhatIsNotDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Perform = func(_ context.Context, a *Attempt[payJob]) (paid, error) {
		if a.Key == "pay_1" {
			return paid{ID: "pay_9"}, Refused(errors.New("declined"))
		}
		return paid{}, Conflict(errors.New("amounts differ"))
	}
	b.run()
	if a, err := Call(t.Context(), b.pool, b.js, b.kind, orderJob("1")); !errors.Is(err, ErrFailed) || a.Status != idemstore.Failed || a.Result.ID != "pay_9" {
		t.Errorf("refused: %+v (%v)", a, err)
	}
	if a, err := Call(t.Context(), b.pool, b.js, b.kind, orderJob("2")); !errors.Is(err, ErrNeedsReview) || a.Status != idemstore.NeedsReview || a.TaskID != 2 {
		t.Errorf("in doubt: %+v (%v)", a, err)
	}
}
