package consumer

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/settlemq/settle/idemstore"
)

// D-07 (a), D-03: a job of four AckWaits and four leases is delivered once.
func TestHeartbeatKeepsALongJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.AckWait, b.conf.Lease = 1500*time.Millisecond, 1500*time.Millisecond
	b.conf.Policy.Deadline = 20 * time.Second
	b.pay.then(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(4 * b.conf.AckWait):
		case <-r.Context().Done():
		}
		b.pay.honest(w, r)
	})
	b.run()
	b.publish(plainJob)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("attempt %d, failures %d", task.Attempt, task.Failures)
	}
	if n := b.deliveries(); n != 1 {
		t.Errorf("delivered %d times", n)
	}
	if w, e, _ := b.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d", w, e)
	}
}

// deliveries is how many the broker made, redeliveries included.
func (b *bench) deliveries() uint64 {
	b.t.Helper()
	cons, err := b.js.Consumer(b.t.Context(), jobStream, consumerName(b.kind.Name))
	if err != nil {
		b.t.Fatal(err)
	}
	return cons.CachedInfo().Delivered.Consumer
}

// takeOver is another attempt that claims the task under the holder's hands.
const takeOver = `update settle.tasks set attempts = attempts + 1, token = gen_random_uuid()`

// lost runs one job whose task is taken over once its handler has begun, and then lets the handler do f, after its
// context has ended. It returns what the handler saw, with the engine stopped.
func (b *bench) lost(f func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error)) (cause error) {
	b.t.Helper()
	b.conf.Lease, b.conf.AckWait, b.conf.Policy.Deadline = time.Second, time.Minute, 20*time.Second
	heard := b.listen()
	entered, seen, returned := make(chan struct{}), make(chan error, 1), make(chan struct{})
	usual := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		defer close(returned)
		close(entered)
		<-ctx.Done()
		seen <- context.Cause(ctx)
		return f(ctx, a, func() (paid, error) { return usual(context.WithoutCancel(ctx), a) })
	}
	stop := b.run()
	b.publish(plainJob)
	await(b.t, entered, "the handler begins")
	b.exec(takeOver)
	cause = await(b.t, seen, "the handler's context ends")
	await(b.t, returned, "the handler returns")
	stop()
	if said := heard.about(1); len(said) != 0 || b.messages() != 1 {
		b.t.Errorf("the delivery was not silent: %v, %d messages left", said, b.messages())
	}
	return cause
}

// untouched checks that the row is still the other attempt's.
func (b *bench) untouched() idemstore.Task {
	b.t.Helper()
	task, err := b.store.Find(b.t.Context(), b.kind.Name, "pay_1")
	if err != nil || task.Status != idemstore.Started || task.Attempt != 2 || task.LeaseUntil == nil || task.ExternalID != "" {
		b.t.Errorf("the other attempt's row was touched: %s attempt %d, lease %v, id %q (%v)", task.Status, task.Attempt, task.LeaseUntil,
			task.ExternalID, err)
	}
	return task
}

// D-02: after a take-over nothing is sent and nothing is said.
func TestLostBeforeTheSend(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var gate, request error
	cause := b.lost(func(_ context.Context, a *Attempt[payJob], pay func() (paid, error)) (paid, error) {
		gate = a.MaySend()
		_, request = pay()
		return paid{}, request
	})
	if !errors.Is(cause, ErrLost) || !errors.Is(gate, ErrLost) || !errors.Is(request, ErrLost) {
		t.Errorf("cause %v, gate %v, request %v", cause, gate, request)
	}
	if w, e, _ := b.pay.counts(); w != 0 || e != 0 {
		t.Errorf("W=%d E=%d after the lease was lost", w, e)
	}
	if task := b.untouched(); task.EvidenceID != "" || task.LastError != "" {
		t.Errorf("evidence %q, error %q", task.EvidenceID, task.LastError)
	}
}

// D-38: what a lost attempt brings is kept as evidence, and changes nothing else.
func TestLostWithAResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_ = b.lost(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
		return paid{ID: "pay_7"}, nil
	})
	if task := b.untouched(); task.EvidenceID != "pay_7" || !task.Unsure {
		t.Errorf("evidence %q, unsure %v", task.EvidenceID, task.Unsure)
	}
	b.lateProof("pay_7")
}

func TestLostWithAnIDNextToAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_ = b.lost(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
		return paid{ID: "pay_7"}, errors.New("cut")
	})
	if task := b.untouched(); task.EvidenceID != "pay_7" {
		t.Errorf("evidence %q", task.EvidenceID)
	}
	b.lateProof("pay_7")
}

// A refusal proves nothing about what other attempts did: its id is not asked about instead of the task's effect.
func TestLostWithARefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_ = b.lost(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
		return paid{ID: "pay_7"}, Refused(errors.New("declined"))
	})
	if task := b.untouched(); task.EvidenceID != "" || task.Unsure {
		t.Errorf("evidence %q, unsure %v", task.EvidenceID, task.Unsure)
	}
}

// lateProof checks the audit line of a late proof.
func (b *bench) lateProof(id string) {
	b.t.Helper()
	events, err := b.store.Events(b.t.Context(), 1)
	if err != nil || len(events) != 1 || events[0].ExternalID != id || events[0].Reason != "late proof from an attempt that does not hold the task" {
		b.t.Errorf("audit: %+v (%v)", events, err)
	}
}

// SaveExternalID tells a handler at once that the task is another's; no heartbeat has to find out first.
func TestSaveExternalIDLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	heard := b.listen()
	saved, gate, cause := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		if _, err := b.pool.Exec(ctx, takeOver); err != nil {
			return paid{}, err
		}
		saved <- a.SaveExternalID(ctx, "pay_7")
		gate <- a.MaySend()
		cause <- context.Cause(ctx)
		return paid{ID: "pay_7"}, nil
	}
	stop := b.run()
	b.publish(plainJob)
	for what, c := range map[string]chan error{"saved": saved, "gate": gate, "cause": cause} {
		if err := await(t, c, what); !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	stop()
	if task := b.untouched(); task.EvidenceID != "pay_7" {
		t.Errorf("evidence %q", task.EvidenceID)
	}
	if said := heard.about(1); len(said) != 0 || b.messages() != 1 {
		t.Errorf("the delivery was not silent: %v", said)
	}
}

// A lease that ran out without a new holder: the lenient policy still takes the result, the strict one asks for it.
func TestLeasePolicies(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "lenient", set: runsOut(Lenient), want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "the default with a look-up is lenient", set: runsOut(DefaultLeasePolicy), want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "strict", set: runsOut(Strict), want: `
			finished attempt 2, failures 1, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by look-up
			ack
			started: taken over: the lease of attempt 1 ran out
			finished: the provider was asked: it happened (pay_1)`},
	})
}

// runsOut lets the lease run out, by the database clock, while the provider is at work.
func runsOut(policy LeasePolicy) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, k *Kind[payJob, paid]) {
		k.Policy.Lease = policy
		check := make(chan DB, 1)
		k.Check = func(_ context.Context, db DB, _ payJob) (paid, bool, error) {
			check <- db
			return paid{}, false, nil
		}
		k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
			out, err := p.perform(ctx, a)
			if err == nil {
				_, err = (<-check).Exec(ctx, `update settle.tasks set lease_until = clock_timestamp() where id = $1`, a.TaskID)
			}
			return out, err
		}
	}
}

// The total time of an attempt: what has not been sent by then is not sent any more, and costs nothing.
func TestDeadlineShutsTheGate(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{{name: "asks the gate too late", set: func(_ *payProvider, k *Kind[payJob, paid]) {
		k.Policy.Deadline = time.Second
		k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
			<-ctx.Done()
			if err := a.MaySend(); !errors.Is(err, ErrDeadline) || !errors.Is(context.Cause(ctx), ErrDeadline) {
				return paid{}, errors.Join(Conflict(errors.New("gate or cause")), err, context.Cause(ctx))
			}
			return paid{}, ctx.Err()
		}
	}, want: `
			started attempt 1, class timeout, released, wait backoff
			W=0 E=0 asks=0
			nak kept`}})
}

// A worker that has lost a task and claims it again holds it twice for a moment. Renewing the new attempt must not
// open the gate of the old one.
func TestHeartbeatDoesNotReviveALostAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.idle()
	old, oldCtx := b.holding(e, time.Millisecond)
	var current *attempt
	if !eventually(t, 10*time.Second, func() bool {
		current, _ = b.holding(e, time.Minute)
		return current.task.Attempt == 2
	}) {
		t.Fatal("the task was never claimed again")
	}
	before := *current.leaseEnd.Load()
	e.beat(t.Context(), time.Second)
	if err := old.maySend(); !errors.Is(err, ErrLost) || !errors.Is(context.Cause(oldCtx), ErrLost) {
		t.Errorf("the lost attempt may send: %v, its cause is %v", err, context.Cause(oldCtx))
	}
	if err := current.maySend(); err != nil || !current.leaseEnd.Load().After(before) {
		t.Errorf("the current attempt was not renewed: %v", err)
	}
}

// The same where a person took the task away and let it be tried again, while the old attempt's lease ran on: what is
// confirmed to the new attempt is not confirmed to the old one.
func TestHeartbeatConfirmsAttemptsAndNotTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.idle()
	old, _ := b.holding(e, time.Minute)
	b.exec(`update settle.tasks set status = 'unknown', unsure = true, sending = false, lease_until = null, next_attempt_at = clock_timestamp()`)
	current, _ := b.holding(e, time.Minute)
	if current.task.Attempt != 2 {
		t.Fatalf("attempt %d", current.task.Attempt)
	}
	ends, began := *old.leaseEnd.Load(), *current.leaseEnd.Load()
	e.beat(t.Context(), time.Second)
	if !old.leaseEnd.Load().Equal(ends) {
		t.Errorf("the attempt that was taken away may now send until %s, before until %s", old.leaseEnd.Load(), ends)
	}
	if !current.leaseEnd.Load().After(began) {
		t.Error("the current attempt was not renewed")
	}
}

// idle is an engine that does not run.
func (b *bench) idle() *Engine {
	b.t.Helper()
	b.conf.Lease = time.Minute
	e, err := New(b.pool, b.js, b.conf, b.kind)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// holding claims a task, and holds it as a delivery would if it got an attempt.
func (b *bench) holding(e *Engine, lease time.Duration) (*attempt, context.Context) {
	b.t.Helper()
	sent := now()
	found, err := b.store.Claim(b.t.Context(), idemstore.Claim{Kind: b.kind.Name, Key: "pay_1", Token: uuid.New(), Payload: []byte(plainJob),
		Hash: []byte("h"), HashAlgorithm: hashAlgorithm, Lease: lease, MaxAge: time.Hour, MaxFailures: 5})
	if err != nil {
		b.t.Fatal(err)
	}
	_, span := noop.NewTracerProvider().Tracer("").Start(b.t.Context(), "")
	a := &attempt{delivery: &delivery{engine: e, kind: e.kinds[0], log: e.log, span: span}, task: found[0].Task, claimed: sent}
	end := sent.Add(lease)
	a.leaseEnd.Store(&end)
	ctx, cancel := context.WithCancelCause(b.t.Context())
	a.cancel = cancel
	a.gate.Store(newGate(end, sent.Add(time.Minute), nil))
	if found[0].Found == idemstore.Inserted || found[0].Found == idemstore.Ask {
		if err := e.hold(a); err != nil {
			b.t.Fatal(err)
		}
	}
	return a, ctx
}
