package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

// Events and follow-up jobs are published after the result is committed, once each, under an id of their own, as
// children of the attempt's trace.
func TestEmit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.trace()
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Emit("events.test.paid", f.Key, map[string]string{"id": f.ExternalID})
		w.Emit("events.test.paid", f.Key, map[string]string{"id": "the same name again"})
		w.Emit("events.test.booked", f.Key, f.Result)
		w.Emit("jobs.test.receipt", f.Key, f.Result)
		return nil
	}
	b.run()
	b.publish(plainJob)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	var got []string
	for _, m := range b.published() {
		got = append(got, m.Subject+" "+string(m.Data))
		if h := m.Header; h.Get("Settle-Task") != taskID(task.TaskID) || h.Get("Settle-Key") != "pay_1" ||
			!strings.HasPrefix(h.Get("Nats-Msg-Id"), "settle-"+taskID(task.TaskID)+"-") {
			t.Errorf("headers %v", h)
		}
		if traceOf(m.Header.Get("traceparent")) != traceOf(task.LastTrace) {
			t.Errorf("trace %q, the attempt's is %q", m.Header.Get("traceparent"), task.LastTrace)
		}
	}
	if want := `[events.test.paid {"id":"pay_1"} events.test.booked {"id":"pay_1"}]`; fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
	m, err := b.stream().GetLastMsgForSubject(t.Context(), "jobs.test.receipt")
	if err != nil || string(m.Data) != `{"id":"pay_1"}` {
		t.Errorf("follow-up job %v (%v)", m, err)
	}
}

func traceOf(parent string) string { return spanContextOf(parent).TraceID().String() }

// Subjects of other streams would never be confirmed, so a task that emits to one is parked with its result.
func TestEmitToAForeignSubject(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Emit("orders.paid", f.Key, f.Result)
		return nil
	}
	b.run()
	b.publish(plainJob)
	task := b.awaitStatus("pay_1", idemstore.NeedsReview)
	if !strings.Contains(task.LastError, `subject "orders.paid"`) || task.Cause != idemstore.CauseNotBooked {
		t.Errorf("cause %s, %q", task.Cause, task.LastError)
	}
}

func TestOutgoingSubjects(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]bool{
		"events.payment.charged": true, "jobs.receipt.send": true, "events.x": true,
		"": false, "events.": false, "events": false, "jobs.": false, "jobs.*": false, "events.>": false, "events.a b": false,
		"events..a": false, "events.a.": false, "$JS.API.INFO": false, "events.a\r\nb": false, "events." + strings.Repeat("x", 300): false,
	} {
		if err := checkOutgoing(subject); (err == nil) != want {
			t.Errorf("%q: %v", subject, err)
		}
	}
}

// A broker that does not take events holds up no job, and they go out in order once it does.
func TestEventsWaitForTheirStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		for i := range 3 {
			w.Emit(fmt.Sprintf("events.test.n%d", i), f.Key, i)
		}
		return nil
	}
	b.run()
	b.publish(`{"order":"0"}`)
	b.awaitStatus("pay_0", idemstore.Finished) // the engine has made its streams
	b.published()
	if err := b.js.DeleteStream(t.Context(), eventStream); err != nil {
		t.Fatal(err)
	}
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if !eventually(t, 20*time.Second, func() bool {
		state, err := b.store.OutboxState(t.Context())
		return err == nil && state.Rows == 3 && state.Failed == 1
	}) {
		t.Fatal("the first event never failed to be published, or others overtook it")
	}
	if err := EnsureStreams(t.Context(), b.js, Config{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range b.published() {
		got = append(got, m.Subject)
	}
	if want := "[events.test.n0 events.test.n1 events.test.n2]"; fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
}

// A process that dies after the stream has stored an event and before the row is gone leaves it to the next one, which
// publishes it again under the same id: the stream keeps one.
func TestEventPublishedTwiceIsStoredOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := EnsureStreams(t.Context(), b.js, Config{}); err != nil {
		t.Fatal(err)
	}
	emitted := b.emitted("events.test.paid")
	dying := b.engine(b.kind).relay
	t.Cleanup(dying.publisher.CleanupPublisher)
	rows, err := b.store.TakeOutbox(t.Context(), idemstore.Lane{}, 10, 500*time.Millisecond)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows (%v)", len(rows), err)
	}
	if sent := dying.publishAll(t.Context(), rows); sent[0].Error != "" {
		t.Fatalf("published: %+v", sent)
	}
	if again, err := b.store.TakeOutbox(t.Context(), idemstore.Lane{}, 10, time.Minute); err != nil || len(again) != 0 {
		t.Fatalf("%d rows that another holds were taken (%v)", len(again), err)
	}
	b.run()
	if events := b.published(); len(events) != 1 || string(events[0].Data) != emitted {
		t.Errorf("%d events", len(events))
	}
}

// A process that stops in the middle of publishing waits for the stream: the event is out, and its row is gone.
func TestStoppingRelayConfirms(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := EnsureStreams(t.Context(), b.js, Config{}); err != nil {
		t.Fatal(err)
	}
	b.emitted("events.test.paid")
	rows, err := b.store.TakeOutbox(t.Context(), idemstore.Lane{}, 10, time.Minute)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows (%v)", len(rows), err)
	}
	stopping, stop := context.WithCancel(t.Context())
	stop()
	r := b.engine(b.kind).relay
	t.Cleanup(r.publisher.CleanupPublisher)
	if err := r.send(stopping, rows); err != nil {
		t.Fatal(err)
	}
	if events := b.published(); len(events) != 1 {
		t.Errorf("%d events", len(events))
	}
}

// emitted puts one event of a finished task into the outbox, and returns its payload.
func (b *bench) emitted(subject string) string {
	b.t.Helper()
	b.insert(b.kind, plainJob, map[string]string{"status": `'finished'`, "finished_at": "now()"})
	b.exec(`insert into settle.outbox (task_id, name, subject, key, payload) select max(id), 'n', $1, 'pay_1', '{}' from settle.tasks`, subject)
	return "{}"
}

// What can never be published does not stay in the way: it is kept as a refusal.
func TestUnsendableEventIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.emitted("nobody.listens")
	b.exec(`insert into settle.outbox (name, subject, payload) values ('huge', 'events.huge', convert_to(repeat('x', 2000000), 'UTF8'))`)
	b.exec(`insert into settle.outbox (name, subject, payload) values ('good', 'events.good', '{}')`)
	var out lockedBuffer
	b.conf.TracerProvider = sdk.NewTracerProvider()
	b.conf.Logger = telemetry.Logger(&out, false, slog.LevelError)
	stop := b.run()
	if events := b.published(); len(events) != 1 || events[0].Subject != "events.good" {
		t.Errorf("%d events", len(events))
	}
	rows, err := b.pool.Query(t.Context(), `select concat_ws(' ', reason, subject, body_size, octet_length(body), cut,
		headers::json->'Settle-Key'->>0) from settle.refusals order by id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := "[outbox nobody.listens 2 2 f pay_1 outbox events.huge 2000000 2000000 f]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("refusals %v (%v), want %s", got, err, want)
	}
	stop()
	var first map[string]any
	if err := json.NewDecoder(&out.b).Decode(&first); err != nil {
		t.Fatal(err)
	}
	lineSays(t, first, map[string]any{"subject": "nobody.listens", "key": "pay_1", "kind": b.kind.Name, "task": 1.0, "attempt": 1.0})
	if first["trace_id"] == nil {
		t.Error("the line has no trace id")
	}
}

// Two relays at once publish each event once.
func TestTwoRelays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.insert(b.kind, plainJob, map[string]string{"status": `'finished'`, "finished_at": "now()"})
	b.exec(`insert into settle.outbox (task_id, name, subject, payload)
		select (select max(id) from settle.tasks), 'n' || n, 'events.n' || n, '{}' from generate_series(1, 20) n`)
	b.exec(`insert into settle.outbox (name, subject, payload) select 'n' || n, 'events.free', '{}' from generate_series(1, 500) n`)
	stop1, stop2 := b.runEngine(b.engine(b.kind)), b.runEngine(b.engine(b.kind))
	events := b.published()
	stop1()
	stop2()
	next := 1
	for _, m := range events {
		if m.Subject == fmt.Sprintf("events.n%d", next) {
			next++
		}
	}
	if len(events) != 520 || next != 21 {
		t.Errorf("%d events, %d of the task in order; want 520 and 20", len(events), next-1)
	}
}

// A job that is enqueued in a transaction exists if, and only if, that commits.
func TestPublishTx(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	in := func(id string, end error) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			if err := PublishTx(t.Context(), tx, b.kind, orderJob(id)); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	in("1", errors.New("rolled back"))
	in("2", nil)
	b.awaitStatus("pay_2", idemstore.Finished)
	b.exec(`select settle.enqueue($1, '{"order": "3"}')`, b.kind.Name)
	b.awaitStatus("pay_3", idemstore.Finished)
	if _, err := b.store.Find(t.Context(), b.kind.Name, "pay_1"); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("the job that was rolled back: %v", err)
	}
	if _, effects, _ := b.pay.counts(); effects != 2 {
		t.Errorf("E=%d, want 2", effects)
	}
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		var refused *InvalidJobError
		if err := PublishTx(t.Context(), tx, b.kind, payJob{}); !errors.As(err, &refused) {
			t.Errorf("a job without a key: %v", err)
		}
		return PublishTx(t.Context(), tx, b.kind, orderJob("4"))
	})
	if err != nil {
		t.Errorf("the transaction could not go on: %v", err)
	}
	b.awaitStatus("pay_4", idemstore.Finished)
}

func orderJob(id string) payJob {
	var j payJob
	if err := json.Unmarshal([]byte(`{"order":"`+id+`"}`), &j); err != nil {
		panic(err)
	}
	return j
}

// What settle.enqueue refuses, it refuses in the caller's face.
func TestEnqueueFromSQL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, bad := range [][2]string{{"Payment", "{}"}, {"", "{}"}, {"a..b", "{}"}, {"pay", "[]"}, {"pay", "{"}, {"pay", ""},
		{"pay", `{"x":"` + strings.Repeat("y", 300<<10) + `"}`}} {
		if _, err := b.pool.Exec(t.Context(), `select settle.enqueue($1, $2)`, bad[0], bad[1]); err == nil {
			t.Errorf("%q, %.20s: accepted", bad[0], bad[1])
		}
	}
}
