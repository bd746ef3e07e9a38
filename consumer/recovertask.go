package consumer

import (
	"context"
	"fmt"

	"github.com/settlemq/settle/idemstore"
)

// RecoverOutcome says what a recovery did for a task, or, in a dry run, would do.
type RecoverOutcome string

// The outcomes of a recovery.
const (
	RecoverSettled     RecoverOutcome = "settled"      // finished or failed, for good
	RecoverOpen        RecoverOutcome = "open"         // tried; it becomes due again
	RecoverParked      RecoverOutcome = "parked"       // it needs a person now
	RecoverStillParked RecoverOutcome = "still_parked" // asked about; it goes on waiting for a person
	RecoverSkipped     RecoverOutcome = "skipped"      // left alone: somebody holds it, it is not due, or it is over

	RecoverWouldAsk     RecoverOutcome = "would_ask"     // dry run: the provider would be asked
	RecoverWouldPerform RecoverOutcome = "would_perform" // dry run: it would be performed
	RecoverWouldPark    RecoverOutcome = "would_park"    // dry run: it would need a person
)

// taken is what came of one task.
type taken struct {
	outcome RecoverOutcome
	message string // in plain words
}

// takeUp claims a task without its message, and if that gives an attempt runs it to its end.
func (d *delivery) takeUp(ctx context.Context, t idemstore.Task) taken {
	ctx, d.span = d.engine.startRecovery(ctx, d, t)
	defer d.span.End()
	claim := d.claimKey(ctx, t.Key)
	claim.Recovery, claim.Note = true, d.by.note
	claimed, sent, err := d.claim(ctx, claim)
	if err != nil { // as for a message: the row decides when it is chosen again
		d.engine.database.failed(err)
		d.log.WarnContext(ctx, "claim failed; the task is taken up later", "error", err)
		return taken{RecoverSkipped, "the database did not answer: " + errorText(err)}
	}
	d.describe(claimed)
	linkTo(d.span, claimed.PreviousTrace)
	//nolint:exhaustive // all others give no attempt
	switch claimed.Found {
	case idemstore.Perform, idemstore.Ask:
		s := d.attempt(ctx, claimed, sent, job{})
		d.replyWithoutMessage(ctx, &claimed.Task, s)
		return takenBy(s, d.outcome)
	case idemstore.Spent:
		d.log.WarnContext(ctx, "parked: budget or age limit used up", "attempt", claimed.Task.Attempt, "failures", claimed.Task.Failures)
		d.alert(claimed)
		d.replyWithoutMessage(ctx, &claimed.Task, settlement{verb: term, reply: d.replyOf(&claimed.Task, claimed.Task.Status, nil, false)})
		return taken{RecoverParked, "its budget or its age limit is used up"}
	}
	d.log.DebugContext(ctx, "not taken up", "found", string(claimed.Found))
	return taken{RecoverSkipped, notTaken(claimed.Found)}
}

// notTaken says why a claim gave no attempt.
func notTaken(f idemstore.Found) string {
	//nolint:exhaustive // without a message nothing is inserted or compared, and the others give an attempt or park
	switch f {
	case idemstore.Busy:
		return "an attempt holds it"
	case idemstore.NotDue:
		return "not due yet"
	case idemstore.Final:
		return "it is over"
	case idemstore.Parked:
		return "it waits for a person"
	}
	return "somebody is at it right now"
}

// takenBy reads off how an attempt ended from what its message would have been told.
func takenBy(s settlement, outcome string) taken {
	switch s.verb {
	case ack:
		return taken{RecoverSettled, outcome}
	case term:
		return taken{RecoverParked, outcome}
	case nak:
		return taken{RecoverOpen, outcome}
	case silent:
	}
	return taken{RecoverOpen, "the lease was lost or the outcome could not be saved"}
}

// askParked asks the provider about a task that budget or age has parked. A definite answer closes it, if it is still as it
// was, as if a person had asked; nothing is claimed, and nothing can be sent, for no gate is open.
func (d *delivery) askParked(ctx context.Context, t idemstore.Task) taken {
	ctx, d.span = d.engine.startRecovery(ctx, d, t)
	defer d.span.End()
	d.labelAll(taskLabels(&t))
	linkTo(d.span, t.LastTrace)
	x := &pressing{o: &Operator{engine: d.engine}, delivery: d, kind: d.kind, task: t, act: ActAsk,
		press: ActOptions{Actor: d.by.actor, Reason: d.by.note}}
	a, unreadable := x.attempt(ctx)
	if a == nil {
		d.log.WarnContext(ctx, "parked task cannot be asked about", "why", unreadable.Message)
		return taken{RecoverStillParked, unreadable.Message}
	}
	if why := a.heldBack(ctx, false); why != "" {
		return taken{RecoverSkipped, why}
	}
	r := x.look(ctx, a)
	if !r.definite() {
		d.log.InfoContext(ctx, "asked about a parked task", "verdict", r.verdict.String(), "error", errorText(r.err))
		return taken{RecoverStillParked, r.String()}
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer stop()
	return d.adopted(ctx, x, a, r)
}

// adopted closes a parked task by what the provider says.
func (d *delivery) adopted(ctx context.Context, x *pressing, a *attempt, r reading) taken {
	acted, err := x.adopt(ctx, a, r, closing{reason: "asked by recovery"})
	if err != nil {
		d.log.WarnContext(ctx, "parked task not closed", "error", err)
		return taken{RecoverStillParked, fmt.Sprintf("%s; not closed: %s", r, errorText(err))}
	}
	//nolint:exhaustive // nothing is asked twice, and this is no dry run
	switch acted.Outcome {
	case OutcomeDone:
		d.engine.relay.poke()
		d.committed(acted.Task.Status, acted.Task.ExternalID, string(acted.Task.Status))
		d.log.InfoContext(ctx, "parked task closed", "status", string(acted.Task.Status), "external_id", acted.Task.ExternalID)
		return taken{RecoverSettled, acted.Message}
	case OutcomeOvertaken:
		return taken{RecoverSkipped, acted.Message}
	}
	d.log.ErrorContext(ctx, "the provider knows a parked task, which cannot be closed", "why", acted.Message)
	return taken{RecoverStillParked, acted.Message}
}
