package consumer

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

func (b *bench) events(task int64) []idemstore.Event {
	b.t.Helper()
	events, err := b.store.Events(context.WithoutCancel(b.t.Context()), task)
	if err != nil {
		b.t.Fatal(err)
	}
	return events
}

// rows are all rows of the engine's tables, as text.
func (b *bench) rows() string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `select to_jsonb(t)::text from settle.tasks t union all select to_jsonb(e)::text from settle.task_events e
		union all select to_jsonb(r)::text from settle.task_refs r union all select to_jsonb(p)::text from settle.key_prefixes p order by 1`)
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// numbered is the body of a numbered job, whose key is pay_N.
func numbered(n int) string { return fmt.Sprintf(`{"order":"%d"}`, n) }

// insertMany writes tasks pay_1 to pay_n by hand, the first one longest due.
func (b *bench) insertMany(n int, row map[string]string) {
	b.t.Helper()
	for i := 1; i <= n; i++ {
		b.insert(b.kind, numbered(i), and(row, "next_attempt_at", fmt.Sprintf(`clock_timestamp() - interval '%d seconds'`, 1000-i)))
	}
}

// count counts tasks.
func (b *bench) count(where string) (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(context.WithoutCancel(b.t.Context()), `select count(*) from settle.tasks where `+where).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// Two recoveries and two intakes want the same tasks at once: one attempt each.
func TestRecoveriesAndMessagesShareTheTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Lease = 20 * time.Second // a slow machine must not lose it
	const n = 60
	b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) { told(200, "found")(w, r) }
	b.insertMany(n, oldRow)
	for i := 1; i <= n; i++ {
		b.publish(numbered(i))
	}
	b.run()
	b.run()
	b.awaitSettled()
	if good := b.count(`status = 'finished' and attempts = 2 and external_id = 'found'`); good != n {
		t.Errorf("%d of %d tasks were finished by one attempt", good, n)
	}
	if w, _, lookups := b.pay.counts(); w != 0 || lookups != n {
		t.Errorf("W=%d and %d look-ups, want none and %d", w, lookups, n)
	}
}

// What cannot even be claimed does not hide what comes behind it, though it is older than that and fills whole pages.
func TestRecoveryWalksPastWhatItCannotClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.insertMany(2*recoverPage+10, released)
	b.exec(`create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$`)
	b.exec(fmt.Sprintf(`create trigger refuse before update on settle.tasks for each row
		when (old.id <= %d) execute function public.refuse()`, 2*recoverPage+5))
	b.run()
	if !eventually(t, 20*time.Second, func() bool { return b.count(`status = 'finished'`) == 5 }) {
		t.Errorf("%d tasks were finished, want the last 5", b.count(`status = 'finished'`))
	}
}

// While the provider is down every task is asked about in its turn, and none is asked about all the time.
func TestRecoveryIsFairWhileTheProviderIsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Hour, time.Hour
	b.conf.Lease = 20 * time.Second
	const n = recoverPage + 20
	b.pay.onLookup = status(http.StatusServiceUnavailable)
	b.insertMany(n, oldRow)
	b.run()
	if !eventually(t, 20*time.Second, func() bool { return b.count(`attempts = 2 and status = 'unknown'`) == n }) {
		t.Errorf("%d of %d tasks were asked about once", b.count(`attempts = 2 and status = 'unknown'`), n)
	}
	if _, _, lookups := b.pay.counts(); lookups != n {
		t.Errorf("%d look-ups for %d tasks", lookups, n)
	}
}

// The provider is asked about a parked task once an hour, whoever asks.
func TestParkedTasksAreAskedAboutOnceAnHour(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.pay.onLookup = status(http.StatusServiceUnavailable)
	b.insert(b.kind, numbered(1), parkedBy(idemstore.CauseAge))
	first, _ := b.serve(b.kind)
	second, _ := b.serve(b.kind)
	asked := func(n int) {
		t.Helper()
		if !eventually(t, 20*time.Second, func() bool { _, _, lookups := b.pay.counts(); return lookups >= n }) {
			t.Fatalf("not asked %d times", n)
		}
		for _, e := range []*Engine{first, second} {
			b.awaitPasses(e, 2)
		}
		if _, _, lookups := b.pay.counts(); lookups != n {
			t.Fatalf("asked %d times, want %d", lookups, n)
		}
	}
	asked(1)
	if late := b.count(`next_attempt_at between clock_timestamp() + interval '59 minutes' and clock_timestamp() + interval '1 hour'`); late != 1 {
		t.Error("it is not due in an hour")
	}
	b.exec(`update settle.tasks set next_attempt_at = clock_timestamp()`)
	asked(2)
	b.pay.mu.Lock()
	b.pay.onLookup = told(200, "pay_7")
	b.pay.mu.Unlock()
	b.exec(`update settle.tasks set next_attempt_at = clock_timestamp()`)
	b.awaitStatus("pay_1", idemstore.Finished)
	asked(3)
}

// awaitPasses waits until the recovery of an engine has chosen n more times.
func (b *bench) awaitPasses(e *Engine, n int) {
	b.t.Helper()
	for range n {
		last := e.LastRecovery()
		if !eventually(b.t, 20*time.Second, func() bool { return e.LastRecovery().After(last) }) {
			b.t.Fatal("recovery does not go on")
		}
	}
}

// An answer about a parked task is for the row as it was: a person who acted meanwhile is not overruled.
func TestAParkedTaskThatChangesMeanwhileIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	asked, answer := make(chan struct{}), make(chan struct{})
	b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-answer
		told(200, "pay_7")(w, r)
	}
	b.insert(b.kind, numbered(1), parkedBy(idemstore.CauseBudget))
	e, stop := b.serve(b.kind)
	await(t, asked, "the provider is asked")
	b.exec(`update settle.tasks set attempts = attempts + 1, token = gen_random_uuid(), status = 'unknown', review_cause = null,
		next_attempt_at = clock_timestamp() + interval '1 hour'`)
	before := b.rows()
	close(answer)
	b.awaitPasses(e, 2)
	stop()
	if after := b.rows(); after != before {
		t.Errorf("the rows were\n%s\nand are\n%s", before, after)
	}
}

// Recovery has only part of the slots: a pass that hangs leaves room for messages.
func TestRecoveryLeavesRoomForMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Slots = 2
	var entered atomic.Int32
	answer := make(chan struct{})
	b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) {
		entered.Add(1)
		<-answer
		told(200, "pay_7")(w, r)
	}
	b.insertMany(3, oldRow)
	b.run()
	if !eventually(t, 20*time.Second, func() bool { return entered.Load() > 0 }) {
		t.Fatal("nothing was taken up")
	}
	for i := 11; i <= 15; i++ {
		b.publish(numbered(i))
		b.awaitStatus(fmt.Sprint("pay_", i), idemstore.Finished)
	}
	if n := entered.Load(); n != 1 {
		t.Errorf("%d tasks were taken up at once, want 1 of 2 slots", n)
	}
	close(answer)
	for i := 1; i <= 3; i++ {
		b.awaitStatus(fmt.Sprint("pay_", i), idemstore.Finished)
	}
}

// While messages have much of the slots, recovery has an eighth of them, and half as soon as they have less.
func TestRecoveryYieldsToMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Slots, b.conf.AckWait, b.conf.Policy.Deadline = 16, time.Minute, time.Minute
	const live = 5
	began, answers, done := make(chan struct{}, live), make(chan struct{}), make(chan struct{})
	perform := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		began <- struct{}{}
		select {
		case <-done:
		case <-ctx.Done():
		}
		return perform(ctx, a)
	}
	var asking atomic.Int32
	asks := make(chan struct{}, 100)
	b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) {
		asking.Add(1)
		asks <- struct{}{}
		<-answers
		asking.Add(-1)
		told(200, "pay_7")(w, r)
	}
	for i := range 40 {
		b.insert(b.kind, numbered(i+1), and(oldRow, "next_attempt_at", `clock_timestamp() + interval '1 hour'`))
	}
	e, _ := b.serve(b.kind)
	for i := range live {
		b.publish(numbered(100 + i))
	}
	for range live {
		await(t, began, "a live job is performed")
	}
	b.exec(`update settle.tasks set next_attempt_at = clock_timestamp() where status = 'unknown'`)
	for range 2 {
		await(t, asks, "the provider is asked")
	}
	if eventually(t, 2*time.Second, func() bool { return asking.Load() > 2 }) { // longer than a pull holds free slots
		t.Errorf("the provider is asked about %d tasks at once, want 2 of 16 slots", asking.Load())
	}
	close(done)
	if !eventually(t, 20*time.Second, func() bool { return e.kinds[0].live.Load() == 0 }) {
		t.Fatal("the live jobs are not over")
	}
	answers <- struct{}{} // the pass waits for a hand; with it come the others
	if !eventually(t, 20*time.Second, func() bool { return asking.Load() == 8 }) {
		t.Errorf("the provider is asked about %d tasks at once, want 8 of 16 slots", asking.Load())
	}
	close(answers)
	for i := 1; i <= 40; i++ {
		b.awaitStatus(fmt.Sprint("pay_", i), idemstore.Finished)
	}
}

// Where there is one slot only, messages and recovery take turns: a message does not wait for the end of a long pass.
func TestRecoveryTakesTurnsWithMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Slots = 1
	const n = 500
	b.insertMany(n, released)
	b.run()
	b.await("pay_1", "taken up", func(t idemstore.Task) bool { return t.Attempt > 1 })
	b.publish(numbered(n + 1))
	b.awaitStatus(fmt.Sprint("pay_", n+1), idemstore.Finished)
	if b.count(`status = 'started' and attempts = 1`) == 0 {
		t.Error("the message waited for the end of the pass")
	}
}

// The first pass is at the start, not an interval later.
func TestRecoveryBeginsAtTheStart(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.RecoverEvery = time.Hour
	b.insert(b.kind, numbered(1), released)
	b.run()
	b.awaitStatus("pay_1", idemstore.Finished)
}

// A database that fails ends a pass, and not the recovery.
func TestRecoveryOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	e, _ := b.serve(b.kind)
	b.awaitPasses(e, 1)
	b.exec(`alter table settle.tasks rename to away`)
	if !eventually(t, 20*time.Second, func() bool { return e.database.state() != nil }) {
		t.Error("nobody noticed")
	}
	last := e.LastRecovery()
	b.exec(`alter table settle.away rename to tasks`)
	b.insert(b.kind, numbered(1), released)
	b.awaitStatus("pay_1", idemstore.Finished)
	if !e.LastRecovery().After(last) {
		t.Error("the time of the last recovery stands still")
	}
}

// Messages without end do not keep recovery from its turn, even where there is one slot only.
func TestMessagesLeaveRoomForRecovery(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Slots = 1
	next := make(chan int, 1)
	next <- 10
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		select {
		case n := <-next: // there is always one more message before this one is done
			for i := range 5 {
				if _, err := b.js.Publish(ctx, subject(b.kind.Name), []byte(numbered(n+i))); err != nil {
					return paid{}, err
				}
			}
			next <- n + 5
		case <-ctx.Done():
		}
		return b.pay.perform(ctx, a)
	}
	b.publish(numbered(1))
	b.insert(b.kind, numbered(2), oldRow)
	b.pay.onLookup = told(200, "pay_7")
	b.run()
	b.awaitStatus("pay_2", idemstore.Finished)
	if b.messages() == 0 {
		t.Error("there were not always messages")
	}
}

// A drain ends a pass: what has begun comes to its end, and the rest is left for others.
func TestDrainEndsAPass(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Slots = 2
	entered, release := b.pay.hold()
	b.insertMany(20, released)
	e := b.engine(b.kind)
	stop := b.runEngine(e)
	await(t, entered, "an attempt of the recovery is at the provider")
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	awaitDraining(e)
	release()
	await(t, stopped, "the drain")
	if done := b.count(`status = 'finished' and attempts = 2`); done != 1 {
		t.Errorf("%d tasks were finished, want the one that had begun", done)
	}
	if left := b.count(`status = 'started' and lease_until is null and attempts = 1`); left != 19 {
		t.Errorf("%d tasks were left alone, want 19", left)
	}
}

// A task that waits for a slot when the process is told to stop is not taken up.
func TestDrainLeavesWhatWaitsForASlot(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Slots = 1
	entered, release := b.pay.hold()
	b.publish(numbered(1))
	e := b.engine(b.kind)
	stop := b.runEngine(e)
	await(t, entered, "a message has the slot")
	b.insert(b.kind, numbered(2), released)
	b.awaitPasses(e, 1)
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	awaitDraining(e)
	release()
	await(t, stopped, "the drain")
	if left := b.count(`key = 'pay_2' and attempts = 1`); left != 1 {
		t.Error("it was taken up")
	}
}

// A span of its own, in the publisher's trace, linked to the attempt before.
func TestRecoveryIsTraced(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	spans := b.trace()
	const origin, last = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
	b.insert(b.kind, numbered(1), and(released, "origin_trace", "'"+origin+"'", "last_trace", "'"+last+"'"))
	stop := b.run()
	task := b.awaitStatus("pay_1", idemstore.Finished)
	stop()
	found := named(spans.GetSpans(), spanRecover)
	if len(found) != 1 {
		t.Fatalf("%d spans of a recovery", len(found))
	}
	if got, want := tree(spans.GetSpans(), found[0]), "settle.recover(settle.claim settle.perform(HTTP POST) settle.save)"; got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	has(t, found[0], map[string]any{attrTask: fmt.Sprint(task.TaskID), attrKind: "test.pay", attrKey: "pay_1", attrAttempt: int64(2),
		attrExternalID: "pay_1", attrOutcome: "finished"})
	if found[0].Parent.TraceID().String() != origin[3:35] || len(found[0].Links) != 1 || found[0].Links[0].SpanContext.TraceID().String() != last[3:35] {
		t.Errorf("parent %v, links %v", found[0].Parent, found[0].Links)
	}
	if events := b.events(task.TaskID); len(events) != 1 || events[0].TraceID != origin[3:35] || events[0].Actor != recovery {
		t.Errorf("audit %+v", events)
	}
}
