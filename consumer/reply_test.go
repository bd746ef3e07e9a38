package consumer

import (
	"context"
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
}

// heard are the answers that have come to a subject by now, also those that are on their way from the bench's engines.
type heard struct {
	b       *bench
	answers *nats.Subscription
	subject string
}

func (b *bench) hear() *heard {
	b.t.Helper()
	h := &heard{b: b, subject: b.js.Conn().NewInbox()}
	var err error
	if h.answers, err = b.js.Conn().SubscribeSync(h.subject); err != nil {
		b.t.Fatal(err)
	}
	return h
}

// none reports an answer that has come too early or once too often: what the engines have sent until now is here after
// a round trip of the connection that they share with the test.
func (h *heard) none(what string) {
	h.b.t.Helper()
	if err := h.b.js.Conn().Flush(); err != nil {
		h.b.t.Fatal(err)
	}
	if m, err := h.answers.NextMsg(time.Nanosecond); err == nil {
		h.b.t.Errorf("%s: answered %s %s", what, m.Header.Get("Settle-Status"), m.Data)
	}
}

// next waits for an answer and returns its status, whether it is replayed, and its body.
func (h *heard) next() string {
	h.b.t.Helper()
	m, err := h.answers.NextMsg(20 * time.Second)
	if err != nil {
		h.b.t.Fatalf("no answer: %v", err)
	}
	return fmt.Sprintf("%s replayed=%s %s", m.Header.Get("Settle-Status"), m.Header.Get("Settle-Replayed"), m.Data)
}

// An answer speaks of what is committed: while the save cannot commit there is none, though the effect has happened.
func TestNoAnswerBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, release := b.pay.hold()
	b.run()
	h := b.hear()
	b.ask(plainJob, h.subject)
	await(t, entered, "the charge is on its way")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `select from settle.tasks for update`); err != nil {
		t.Fatal(err)
	}
	release()
	if !eventually(t, 20*time.Second, b.waitsForLock) {
		t.Fatal("the save never came to the row")
	}
	h.none("before the commit")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := h.next(), `finished replayed=false {"id":"pay_1"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if task, err := b.store.Find(t.Context(), b.kind.Name, "pay_1"); err != nil || task.Status != idemstore.Finished {
		t.Errorf("answered while the task is %s (%v)", task.Status, err)
	}
}

// Each way in which a job ends is told once, and a repeat is told the same. What is not over is not told.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(p *payProvider)
		want string // status and body
	}{
		"done":               {func(*payProvider) {}, `finished replayed=%v {"id":"pay_1"}`},
		"declined":           {func(p *payProvider) { p.then(told(402, "pay_9")) }, `failed replayed=%v {"id":"pay_9"}`},
		"needs a person":     {func(p *payProvider) { p.then(status(409)) }, `needs_review replayed=%v null`},
		"unknown, and found": {func(p *payProvider) { p.then(p.effectThen(noAnswer)) }, `finished replayed=%v {"id":"pay_1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c.set(b.pay)
			b.run()
			h := b.hear()
			for _, replayed := range []bool{false, true} {
				b.ask(plainJob, h.subject)
				if got, want := h.next(), fmt.Sprintf(c.want, replayed); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				b.awaitSettled()
				h.none("a second time")
			}
		})
	}
}

// A claim that parks a task is its end, and not a repeat of it.
func TestAnswerOfAClaimThatParks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.insert(b.kind, plainJob, and(oldRow, "give_up_at", hoursAgo(1)))
	b.run()
	h := b.hear()
	for _, replayed := range []bool{false, true} {
		b.ask(plainJob, h.subject)
		if got, want := h.next(), fmt.Sprintf("needs_review replayed=%v null", replayed); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The result outlives its row's heavy columns, and a local job answers as any other.
func TestAnswersOfArchivedAndLocalJobs(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.start()
	h := b.hear()
	b.ask(plainJob, h.subject)
	if got, want := h.next(), `finished replayed=false {"id":"note of attempt 1"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.exec(`update settle.tasks set expires_at = clock_timestamp() - interval '1 hour'`)
	if done, err := b.store.Archive(t.Context(), idemstore.Slice{}); err != nil || done.Tasks != 1 {
		t.Fatalf("archived %d tasks (%v)", done.Tasks, err)
	}
	b.ask(plainJob, h.subject)
	if got, want := h.next(), `finished replayed=true {"id":"note of attempt 1"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Who asked and went away before the end is missed by nobody.
func TestACallerThatGoesAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, release := b.pay.hold()
	b.run()
	gone, stays := b.hear(), b.hear()
	b.ask(plainJob, gone.subject)
	await(t, entered, "the charge is on its way")
	if err := gone.answers.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	release()
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	b.ask(plainJob, stays.subject)
	if got, want := stays.next(), `finished replayed=true {"id":"pay_1"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Two callers of one job that is under way hear the same soon after its end, however long the lease of its
// attempt would last.
func TestDuplicateHearsWhenTheFirstEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Lease, b.conf.Policy.BackoffMax = time.Hour, time.Hour
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
