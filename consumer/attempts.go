package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// attempt is one claim of a task while this process works on it.
type attempt struct {
	*delivery
	task    idemstore.Task
	age     idemstore.Age
	claimed time.Time // before the claim was sent
	known   time.Time // after it was answered: ages are at least this old
	asked   time.Time // before the look-up was sent

	surelyAbsent bool // the look-up said "absent" when every request that left had to show
	job          any
	trace        string

	deadline time.Time // of the phase that runs now
	gate     atomic.Pointer[gate]
	leaseEnd atomic.Pointer[time.Time]
	saving   atomic.Bool
	stepping atomic.Bool               // a step is under way
	progress atomic.Pointer[time.Time] // when the step under way began, or the local job behind others of its group
	aside    int                       // of a step kind: records that this attempt has set aside
	result   any                       // of a local job
	stored   []byte                    // the same as JSON, as it was saved
	begun    time.Time                 // its Apply
	ended    time.Time                 // its Apply
	kept     bool                      // the spans of the attempt before are kept, and so are its own
	readOnly bool                      // it asks about a task that it has not claimed
	cancel   context.CancelCauseFunc

	isLost sync.Once                      // it is counted
	belie  sync.Once                      // a person is called because of it
	answer atomic.Pointer[providerAnswer] // a handler that was left behind may still set it
}

// providerAnswer is what KeepAnswer keeps.
type providerAnswer struct {
	status int
	body   []byte
}

// attempt runs a claimed task to its save, and says how the delivery ends.
func (d *delivery) attempt(ctx context.Context, c idemstore.Claimed, sent time.Time, j job) settlement {
	ctx, a := d.newAttempt(ctx, c, sent)
	defer a.cancel(nil)
	defer func() { a.permit.endTry(now()) }()
	if cause := d.engine.hold(a); cause != nil {
		return a.giveBack(ctx, decideOutcome(outcomeFacts{outcome: outcomeDrained}), conclusion{})
	}
	defer d.engine.letGo(a)

	if err := a.decode(c, j); err != nil {
		return a.conclude(ctx, outcomeConflict, conclusion{err: err})
	}
	switch {
	case a.kind.steps != nil:
		return a.runSteps(ctx, c)
	case a.kind.apply != nil:
		return a.applyHeld(ctx, c)
	case c.Found == idemstore.Ask:
		return a.ask(ctx)
	}
	return a.performChecked(ctx)
}

// decode takes the job from the row: the first message of the key decides what it is, not this one.
func (a *attempt) decode(c idemstore.Claimed, j job) error {
	a.job = j.value
	if c.Found == idemstore.Inserted {
		return nil
	}
	value, err := a.kind.decodeRow(c.Task.Payload)
	if err != nil {
		return Conflict(fmt.Errorf("stored payload cannot be decoded: %w", err))
	}
	a.job = value
	return nil
}

func (d *delivery) newAttempt(ctx context.Context, c idemstore.Claimed, sent time.Time) (context.Context, *attempt) {
	a := &attempt{delivery: d, task: c.Task, age: c.Age, claimed: sent, known: now(), trace: traceparent(ctx),
		kept: spanContextOf(c.PreviousTrace).IsSampled()}
	d.task.Store(&a.task)
	end := sent.Add(d.engine.config.Lease)
	a.leaseEnd.Store(&end)
	ctx, a.cancel = context.WithCancelCause(ctx)
	return ctx, a
}

// conclusion is what an attempt brought back.
type conclusion struct {
	result  any // nil if there is none
	err     error
	after   time.Duration // what the provider asked for
	source  Source
	sent    bool // a request of this attempt may have been applied
	status  int  // of the answer that Perform kept; 0: none
	verdict string
	detail  string // for the audit
}

// refused reports whether the result is that of a refusal, which is no effect.
func (c conclusion) refused() bool {
	return classOf(c.err) == classRefused || c.verdict == FoundRefused.String()
}

// performChecked looks at the local rows and the order, and then performs.
func (a *attempt) performChecked(ctx context.Context) settlement {
	result, done, err := a.check(ctx)
	switch {
	case done:
		return a.conclude(ctx, outcomeDone, conclusion{result: result, source: Checked})
	case err != nil:
		return a.conclude(ctx, a.judgeCheck(ctx, err), conclusion{err: err, after: askedFor(err), source: Checked})
	}
	if why := a.kind.heldByMode(true); why != "" {
		return a.holdBack(ctx, why)
	}
	if s, free := a.guard(ctx, nil); !free { // before the turn: an event that has to wait needs none
		return s
	}
	if why := a.heldBack(ctx, true); why != "" {
		return a.holdBack(ctx, why)
	}
	return a.perform(ctx, time.Time{})
}

// judgeCheck: nothing can have been sent yet, so anything but a contradiction is tried again. A panic may come
// again each time, so it costs.
func (a *attempt) judgeCheck(ctx context.Context, err error) outcome {
	var p *panicError
	switch {
	case errors.As(err, &p):
		return outcomeUnknown
	case classOf(err) == classConflict:
		return outcomeConflict
	case classOf(err) == classRefused:
		return outcomeRefused
	case errors.Is(context.Cause(ctx), ErrLost):
		return outcomeLost
	case isStop(context.Cause(ctx)):
		return outcomeDrained
	}
	return outcomeNotSent
}

// perform runs the handler under the total deadline, with the gate open. keyUntil is the moment until which the
// provider's key protects a resend; zero if the send does not rest on it.
func (a *attempt) perform(ctx context.Context, keyUntil time.Time) settlement {
	began := now()
	a.deadline = began.Add(a.kind.policy.Deadline)
	g := newGate(*a.leaseEnd.Load(), a.deadline, a.kind.provider.AppliedNothing)
	if !keyUntil.IsZero() {
		g.limitKeyAge(keyUntil)
	}
	a.engine.opened(a, g)
	before := a.answer.Load() // perhaps a look-up's

	result, err := a.call(withGate(a.paced(ctx), g), spanPerform, func(ctx context.Context, a *attempt) (any, error) {
		result, err := a.kind.perform(ctx, a)
		a.learnt(ctx, result)
		return result, err
	})
	a.kind.meters.perform.since(began)
	status := 0
	if answer := a.answer.Load(); answer != before {
		status = answer.status
	}
	a.watchGate(ctx, g, err)
	out := a.judge(ctx, g, err, status)
	a.engine.report(ctx, a.kind, a.task.TaskID, signalOf(a.signalFacts(g, out, err)))
	return a.conclude(ctx, out, conclusion{result: result, err: err, after: askedFor(err), source: Performed,
		sent: a.seen(g) == maybeApplied, status: status})
}

// watchGate notices a handler whose requests do not pass the gate, by a result that came of none: it may have sent whatever it
// says it did not, and nothing keeps it from sending too late.
func (a *attempt) watchGate(ctx context.Context, g *gate, err error) {
	class := classOf(err)
	if class != classDone && class != classAccepted || g.judgement() != sentNothing || g.refused() {
		return
	}
	if a.kind.ungated.CompareAndSwap(false, true) {
		a.log.WarnContext(ctx, "a result came, and no request passed the send gate: send through consumer.Transport, or ask "+
			"Attempt.MaySend before each request; what this kind says was not sent is not believed any more")
	}
}

// seen is what the gate knows of the requests of a perform.
func (a *attempt) seen(g *gate) judgement {
	if a.kind.ungated.Load() {
		return maybeApplied
	}
	return g.judgement()
}

// call runs a handler function with a deadline and contains its panics. A handler that ignores its context is
// left behind: it keeps its slot until it returns, and can no longer send.
func (a *attempt) call(ctx context.Context, name string, f func(context.Context, *attempt) (any, error)) (any, error) {
	ctx, span := a.engine.start(ctx, name)
	ctx, cancel := context.WithDeadlineCause(ctx, a.deadline, ErrDeadline)
	defer cancel()
	type returned struct {
		result any
		err    error
	}
	done := make(chan returned, 1)
	a.engine.handlers.Add(1)
	a.handlers.Add(1)
	a.engine.do(func() {
		defer a.engine.handlers.Done()
		defer a.handlers.Done()
		result, err := contain(func() (any, error) { return f(ctx, a) })
		done <- returned{result, err}
	})
	select {
	case r := <-done:
		endSpan(span, r.err)
		return r.result, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		endSpan(span, r.err)
		return r.result, r.err
	case <-a.engine.after(handlerGrace):
		err := fmt.Errorf("handler ignores its context: %w", context.Cause(ctx))
		endSpan(span, err)
		return nil, err
	}
}

// handlerGrace is how long a handler may take to return after its context ended.
const handlerGrace = time.Second

// judge turns what a handler returned, what the gate saw and the status of the answer into an outcome.
func (a *attempt) judge(ctx context.Context, g *gate, err error, status int) outcome {
	g.shut(ErrDeadline) // the handler is done: what it left running sends nothing, so "nothing was sent" is a fact
	return judge(judgeFacts{
		err: err, seen: a.seen(g), refused: g.refused(), cause: g.cause(),
		lost:     errors.Is(context.Cause(ctx), ErrLost) || errors.Is(g.cause(), ErrLost),
		draining: isStop(context.Cause(ctx)), stored: a.kind.provider.storesError(status),
	})
}

// signalFacts are what this attempt tells about the provider.
func (a *attempt) signalFacts(g *gate, out outcome, err error) signalFacts {
	var p *panicError
	return signalFacts{outcome: out, panicked: errors.As(err, &p), seen: g.judgement(), unconnected: g.unconnected.Load(),
		status: int(g.lastStatus.Load())}
}

func (a *attempt) maySend() error {
	if a == nil {
		return nil
	}
	g := a.gate.Load()
	if g == nil {
		return fmt.Errorf("send gate: a look-up must not send: %w", ErrLost)
	}
	return g.pass()
}

func (a *attempt) saveExternalID(ctx context.Context, id string) (err error) {
	if a == nil || a.readOnly { // what a look-up learns is stored with its verdict
		return nil
	}
	id, _ = cleanText([]byte(id), maxExternalID) // as that of the result, with which it is compared
	a.labelID(id)
	a.learntID.Store(&id)
	ctx, span := a.engine.start(ctx, spanSaveExternalID)
	defer func() { endSpan(span, err) }()
	err = a.engine.store.SaveExternalID(context.WithoutCancel(ctx), a.task.Fence, id, a.trace)
	a.belied(ctx, id, err)
	if errors.Is(err, idemstore.ErrLost) {
		a.lose()
		return fmt.Errorf("save external id: %w", ErrLost)
	}
	return err
}

func (a *attempt) keepAnswer(status int, body []byte) {
	if a == nil {
		return
	}
	a.answer.Store(&providerAnswer{status, slices.Clone(body)})
}

// answerStatus is the HTTP status of the kept answer, 0 if there is none.
func (a *attempt) answerStatus() int {
	if kept := a.answer.Load(); kept != nil {
		return kept.status
	}
	return 0
}

// knownID is the provider's id of the effect. Late proof is asked about like an id of our own.
func (a *attempt) knownID() string { return or(a.task.ExternalID, a.task.EvidenceID) }

// idOf takes the provider's id out of a result.
func (a *attempt) idOf(result any) (string, error) {
	return contain(func() (string, error) { return a.kind.externalID(result), nil })
}

// lose shuts the gate and cancels the handler: the task is another attempt's, or may be by now.
func (a *attempt) lose() {
	if g := a.gate.Load(); g != nil {
		g.shut(ErrLost)
	}
	a.cancel(ErrLost)
	a.nowLost()
}

// nowLost says that the attempt has lost its task, and counts that once: the heartbeat and the save may both find out.
func (a *attempt) nowLost() {
	a.isLost.Do(a.kind.meters.leasesLost.one)
	a.mark(eventLeaseLost)
}

// jittered is the delay of this kind's policy for the counts on the row.
func (a *attempt) jittered(w wait, cost int, hint time.Duration) time.Duration {
	return a.kind.policy.delay(w, counts{failures: a.task.Failures + cost, attempts: a.task.Attempt, hint: hint,
		jitter: rand.Float64()})
}

// conflictDetail names both contents of a key by their hashes.
func conflictDetail(j job, t idemstore.Task) string {
	return fmt.Sprintf("task %d has content %.8x (message %d of %s), this message has %.8x", t.TaskID,
		t.Hash, t.Origin.Sequence, t.Origin.Stream, j.hash)
}
