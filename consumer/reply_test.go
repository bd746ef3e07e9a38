package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// inbox is where a test waits for answers.
func (b *bench) inbox() (subject string, next func() string) {
	b.t.Helper()
	subject = b.js.Conn().NewInbox()
	answers, err := b.js.Conn().SubscribeSync(subject)
	if err != nil {
		b.t.Fatal(err)
	}
	return subject, func() string {
		b.t.Helper()
		m, err := answers.NextMsg(20 * time.Second)
		if err != nil {
			b.t.Fatalf("no answer: %v", err)
		}
		h := m.Header
		return fmt.Sprintf("%s %s task %s %s replayed=%s %s", h.Get("Settle-Kind"), h.Get("Settle-Key"), h.Get("Settle-Task"),
			h.Get("Settle-Status"), h.Get("Settle-Replayed"), m.Data)
	}
}

func (b *bench) ask(body, reply string) {
	b.t.Helper()
	_, err := b.js.PublishMsg(b.t.Context(), &nats.Msg{Subject: subject(b.kind.Name), Data: []byte(body), Header: nats.Header{"Settle-Reply": {reply}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Whoever asks hears the result after the ack, and a repeat hears the same, marked as replayed. Each hears it once.
func TestReply(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	inbox, next := b.inbox()
	b.ask(plainJob, inbox)
	if got, want := next(), `test.pay pay_1 task 1 finished replayed=false {"id":"pay_1"}`; got != want {
		t.Errorf("first: %s, want %s", got, want)
	}
	b.ask(plainJob, inbox)
	if got, want := next(), `test.pay pay_1 task 1 finished replayed=true {"id":"pay_1"}`; got != want {
		t.Errorf("repeat: %s, want %s", got, want)
	}
	b.ask(`{"order":"1","note":"other"}`, inbox)
	if got := next(); got[:len("test.pay pay_1 task 1 refused replayed=false")] != "test.pay pay_1 task 1 refused replayed=false" {
		t.Errorf("other content: %s", got)
	}
	b.ask(`{}`, inbox)
	if got, want := next(), `test.pay  task  refused replayed=false {"detail":"`; got[:len(want)] != want {
		t.Errorf("no key: %s, want %s", got, want)
	}
	b.awaitSettled()
	b.ask(`{"order":"2"}`, "jobs.test.pay") // an answer there would be a job
	b.awaitStatus("pay_2", idemstore.Finished)
	b.awaitSettled()
}

// Two callers of one job that is under way hear the same soon after its end.
func TestDuplicateHearsWhenTheFirstEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	began, release := make(chan struct{}), make(chan struct{})
	perform := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		close(began)
		<-release
		return perform(ctx, a)
	}
	b.run()
	inbox, next := b.inbox()
	b.ask(plainJob, inbox)
	<-began
	second, nextOfSecond := b.inbox()
	b.ask(plainJob, second)
	if !eventually(t, 20*time.Second, func() bool { return b.deliveries() >= 3 }) { // the second was handed back at least once
		t.Fatal("the second message never came again")
	}
	close(release)
	if got, want := next(), `test.pay pay_1 task 1 finished replayed=false {"id":"pay_1"}`; got != want {
		t.Errorf("first: %s, want %s", got, want)
	}
	if got, want := nextOfSecond(), `test.pay pay_1 task 1 finished replayed=true {"id":"pay_1"}`; got != want {
		t.Errorf("second: %s, want %s", got, want)
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	for n, replayed := range []bool{false, true} { // the second is dropped by the stream, so only the table can tell
		a, err := Call(t.Context(), b.js, b.pool, b.kind, orderJob("1"))
		if err != nil || a.Status != idemstore.Finished || a.Result.ID != "pay_1" || a.Replayed != replayed || a.TaskID != 1 || a.Key != "pay_1" {
			t.Errorf("call %d: %+v (%v)", n+1, a, err)
		}
	}
	var refused *RefusedError
	if _, err := Call(t.Context(), b.js, b.pool, b.kind, payJob{}); !errors.As(err, &refused) {
		t.Errorf("a job without a key: %v", err)
	}
	other := orderJob("1")
	other.Note = "other"
	if _, err := Call(t.Context(), b.js, b.pool, b.kind, other); !errors.As(err, &refused) || refused.Reason != idemstore.Conflict {
		t.Errorf("other content under the same key: %v", err)
	}
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
	if _, err := Call(limited, b.js, b.pool, b.kind, orderJob("1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a worker: %v", err)
	}
	b.insert(b.kind, `{"order":"2"}`, map[string]string{"status": `'finished'`, "finished_at": "now()", "result": `'{"id":"pay_2"}'`})
	a, err := Call(t.Context(), b.js, b.pool, b.kind, orderJob("2"))
	if err != nil || a.Result.ID != "pay_2" {
		t.Errorf("%+v (%v)", a, err)
	}
}
