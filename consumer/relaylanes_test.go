package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// silence takes the stream of events away and listens in its place, so that publishers are told neither yes nor no.
func (b *bench) silence() (end func()) {
	b.t.Helper()
	if err := b.js.DeleteStream(b.t.Context(), eventStream); err != nil {
		b.t.Fatal(err)
	}
	sub, err := b.js.Conn().Subscribe(eventSubjects+">", func(*nats.Msg) {})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		if err := sub.Unsubscribe(); err != nil {
			b.t.Fatal(err)
		}
		if err := EnsureStreams(b.t.Context(), b.js, Config{}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// backlog puts events of nobody's into the outbox.
func (b *bench) backlog(n int) {
	b.t.Helper()
	b.exec(`insert into settle.outbox (name, subject, payload) select 'n' || n, 'events.free', '{}' from generate_series(1, $1) n`, n)
}

// enqueue puts one job behind what is in the outbox.
func (b *bench) enqueue(id string) {
	b.t.Helper()
	err := pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error { return PublishTx(b.t.Context(), tx, b.kind, orderJob(id)) })
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) outbox() idemstore.OutboxState {
	b.t.Helper()
	state, err := b.store.OutboxState(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return state
}

// Events that nobody confirms hold up no job that was enqueued after them, however many they are, and whatever the
// caller's client allows to be in flight. Once the stream is back they go out by themselves.
func TestSilentEventsHoldUpNoJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var err error
	if b.js, err = jetstream.New(b.js.Conn(), jetstream.WithPublishAsyncMaxPending(4)); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.publish(`{"order":"0"}`)
	b.awaitStatus("pay_0", idemstore.Finished) // the engine has made its streams
	end := b.silence()
	const n = 10 * relayGroup
	b.backlog(n)
	b.enqueue("1")
	b.awaitStatus("pay_1", idemstore.Finished)
	if !eventually(t, 20*time.Second, func() bool { return b.outbox().Failed > 0 }) {
		t.Fatal("no event failed to be published")
	}
	b.enqueue("2")
	b.awaitStatus("pay_2", idemstore.Finished)
	// A job may be done before its row has gone.
	if !eventually(t, 20*time.Second, func() bool { return b.outbox().Rows == n }) {
		t.Errorf("%d rows wait, want the %d of the events", b.outbox().Rows, n)
	}
	if tried := b.outbox().Failed; tried == n {
		t.Errorf("all %d events were tried before the jobs", tried)
	}
	end()
	if events := b.published(); len(events) != n {
		t.Errorf("%d events, want %d", len(events), n)
	}
}

// What follows within a task is in the other lane, and goes out as soon as what it waits for is confirmed.
func TestALaneWakesTheOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.engine(b.kind).relay
	t.Cleanup(r.publisher.CleanupPublisher)
	woken := func(l *lane) bool {
		select {
		case <-l.wake:
			return true
		default:
			return false
		}
	}
	b.backlog(1)
	if err := r.events.sweep(t.Context()); err != nil || woken(r.jobs) {
		t.Errorf("an event of no task woke the jobs (%v)", err)
	}
	b.emitted("events.test.paid")
	b.exec(`insert into settle.outbox (task_id, name, subject, key, payload) select max(id), 'm', 'jobs.test.receipt', 'pay_1', '{}' from settle.tasks`)
	if err := r.jobs.sweep(t.Context()); err != nil || b.outbox().Rows != 2 {
		t.Errorf("%d rows wait (%v): the job went before the event", b.outbox().Rows, err)
	}
	if err := r.events.sweep(t.Context()); err != nil || !woken(r.jobs) {
		t.Errorf("the job that follows an event was not woken (%v)", err)
	}
	if err := r.jobs.sweep(t.Context()); err != nil || b.outbox().Rows != 0 {
		t.Errorf("%d rows wait (%v)", b.outbox().Rows, err)
	}
}

// A process that stops while it takes rows publishes what it took: a take that nobody waits for would keep its rows
// from everybody for a while.
func TestATakeDoesNotEndWithTheProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.engine(b.kind).relay
	t.Cleanup(r.publisher.CleanupPublisher)
	b.backlog(1)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table settle.outbox`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	taken := make(chan error)
	go func() {
		rows, err := r.events.take(ctx)
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("%d rows", len(rows))
		}
		taken <- err
	}()
	if !eventually(t, 10*time.Second, b.waitsForLock) {
		t.Fatal("nobody takes the rows")
	}
	stop()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
	if _, err := r.events.take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a take that begins after the end: %v", err)
	}
}
