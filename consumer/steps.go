package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// runSteps does the records that are not recorded yet, one transaction each, and then ends the job. Whatever it is
// stopped by, the next attempt goes on behind the last record that was committed.
func (a *attempt) runSteps(ctx context.Context, c idemstore.Claimed) settlement {
	steps, err := contain(func() ([]step, error) { return a.kind.steps(a), nil })
	if err != nil {
		return a.failed(ctx, conclusion{err: err})
	}
	recorded, err := a.engine.store.StepsDone(ctx, a.task.TaskID)
	if err != nil {
		return a.notSaved(ctx, conclusion{}, err)
	}
	done := make(map[int]bool, len(recorded))
	for _, i := range recorded {
		done[i] = true
	}
	for i, do := range steps {
		switch {
		case done[i]:
			continue
		case errors.Is(context.Cause(ctx), ErrLost):
			return settlement{verb: silent}
		case a.engine.held.drains(), !a.kind.mayPerform():
			return a.giveBack(ctx, decideOutcome(outcomeFacts{outcome: outcomeDrained}), conclusion{})
		}
		x := idemstore.Step{Fence: a.task.Fence, Index: i, Total: len(steps), Lease: a.engine.config.Lease}
		if s, stop := a.doStep(ctx, x, do); stop {
			return s
		}
	}
	if a.aside > 0 { // one line, however many: the reasons are in the table
		a.log.WarnContext(ctx, "records set aside by this attempt", "records", a.aside, "of", len(steps))
	}
	a.progressed()
	return a.applyHeld(ctx, c)
}

// doStep does one record, or sets it aside. stop ends the attempt.
func (a *attempt) doStep(ctx context.Context, x idemstore.Step, do step) (s settlement, stop bool) {
	a.progressed()
	a.stepping.Store(true)
	defer a.stepping.Store(false)
	limited, cancel := a.limitApply(ctx)
	defer cancel()
	renewed, err := a.engine.store.DoStep(limited, x, a.kind.applyLimit(), func(tx pgx.Tx) (string, error) { return a.inStep(ctx, tx, x.Index, do) })
	var failed *idemstore.WorkError
	if errors.As(err, &failed) {
		if !aboutRecord(ctx, failed.Err) {
			return a.failed(ctx, conclusion{err: failed.Err, after: askedFor(failed.Err)}), true
		}
		a.aside++
		a.log.DebugContext(ctx, "record set aside", "record", x.Index, "error", errorText(failed.Err))
		renewed, err = a.engine.store.SetStepAside(limited, x, errorText(failed.Err))
	}
	if err != nil {
		return a.notSaved(ctx, conclusion{}, err), true
	}
	if renewed {
		a.renewed(a.ended.Add(a.engine.config.Lease))
	}
	return s, false
}

// inStep runs the handler's step inside its transaction.
func (a *attempt) inStep(ctx context.Context, tx pgx.Tx, i int, do step) (outcome string, err error) {
	ctx, span := a.engine.start(ctx, spanStep, attribute.Int(attrStep, i))
	defer func() { endSpan(span, err) }()
	ctx, cancel := context.WithDeadlineCause(ctx, a.began().Add(a.kind.policy.Deadline), ErrDeadline)
	defer cancel()
	outcome, err = contain(func() (string, error) { return do(ctx, tx) })
	a.ended = now() // before its commit, which moves the lease on
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return outcome, err
}

// aboutRecord reports whether an error is about the record, so that the others can go on without it.
func aboutRecord(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrDeadline) || errors.Is(err, context.DeadlineExceeded) || classOf(err) == classNotSent {
		return false
	}
	return idemstore.AboutData(err)
}

// progressed notes that a step begins: deadline and renewals count from here.
func (a *attempt) progressed() time.Time {
	at := now()
	a.progress.Store(&at)
	return at
}

// began is when the attempt, or its step under way, began.
func (a *attempt) began() time.Time {
	if at := a.progress.Load(); at != nil {
		return *at
	}
	return a.claimed
}

// drains reports whether nothing new may begin.
func (h *holdings) drains() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}
