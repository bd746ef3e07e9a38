package consumer

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// ask asks the provider before anything is sent again, and obeys the look-up table.
func (a *attempt) ask(ctx context.Context) settlement {
	if why := a.heldBack(ctx, false); why != "" {
		return a.holdBack(ctx, why)
	}
	result, verdict, err := a.lookup(ctx)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrLost):
		return settlement{verb: silent}
	case errors.Is(cause, ErrDraining) && verdict == CannotTell:
		return a.giveBack(ctx, decideOutcome(outcomeFacts{outcome: outcomeDrained}), conclusion{})
	}
	facts := a.askFacts(verdict)
	a.surelyAbsent = facts.verdict == Absent && facts.settled
	d := decideAsk(facts)
	if d.act == sendIt {
		return a.resend(ctx, d, facts)
	}
	return a.commit(ctx, d, conclusion{result: result, err: err, source: LookedUp, verdict: verdict.String(),
		after: askedFor(err)})
}

func (a *attempt) lookup(ctx context.Context) (result any, v Verdict, err error) {
	if a.kind.lookup == nil {
		return nil, CannotTell, nil
	}
	a.asked = now()
	a.deadline = a.asked.Add(a.kind.policy.Deadline)
	type reading struct { // returned, not assigned: a look-up that ignores its context may still be running
		result  any
		verdict Verdict
	}
	out, err := a.call(a.paced(ctx), spanLookup, func(ctx context.Context, a *attempt) (any, error) {
		r, verdict, err := a.kind.lookup(ctx, a)
		a.engine.annotate(ctx, attribute.String(attrVerdict, verdict.String()))
		a.learnt(ctx, r)
		return reading{r, verdict}, err
	})
	r, _ := out.(reading)
	a.engine.report(ctx, a.kind, a.task.TaskID, lookupSignal(ctx, r.verdict, err, a.answerStatus()))
	switch {
	case err != nil:
		r.verdict = CannotTell
	case r.verdict == Absent:
		r.result = nil // what is not there has no id
	case a.contradictsProof(r.verdict, r.result):
		r.verdict = Contradictory
	}
	a.kind.meters.lookedUp(r.verdict)
	return r.result, r.verdict, err
}

// contradictsProof reports whether a look-up found another effect than the one whose id a lost attempt brought. An
// id of the row's own is compared by the save.
func (a *attempt) contradictsProof(v Verdict, result any) bool {
	if a.task.EvidenceID == "" || a.task.ExternalID != "" || v != Found && v != FoundRefused {
		return false
	}
	id, err := a.externalID(result)
	return err == nil && id != "" && id != a.task.EvidenceID
}

// askFacts adds this process's own elapsed time to the ages that the database gave: a key is taken for older,
// and a send for more recent, than it can be. A reading is as old as its look-up: what the provider did after that
// left may not be in it, however late the answer came.
func (a *attempt) askFacts(v Verdict) askFacts {
	p := a.kind.provider
	return askFacts{
		lookup: a.kind.lookup != nil, verdict: v, knownID: a.knownID() != "",
		keyed:      !p.Unkeyed,
		young:      a.young(),
		settled:    a.age.HasLastSent && a.age.LastSent+a.asked.Sub(a.known) >= p.AbsentAfter,
		absentSeen: a.age.AbsentSeen,
		permitted:  p.Unkeyed && p.ResendUnkeyed && !a.moved() || a.task.ResendOnce,
		moved:      a.moved(),
	}
}

// moved reports whether the task was sent to another provider, or from another account, than the one that is asked now. That
// one may well not know it: its "absent" is no reason to send, unless a person says so.
func (a *attempt) moved() bool { return sentElsewhere(a.task, a.kind) }

func sentElsewhere(t idemstore.Task, k *kind) bool {
	return t.Provider != "" && t.Provider != k.provider.Identity
}

// young reports whether the provider surely still has the key of the first send.
func (a *attempt) young() bool {
	p := a.kind.provider
	return a.age.HasFirstSent && a.task.Provider == p.Identity &&
		a.age.FirstSent+now().Sub(a.claimed) < p.usableKey(a.kind.policy.Deadline)
}

// resend looks at the local rows and the order once more, confirms the lease by SQL, and performs with the same key.
func (a *attempt) resend(ctx context.Context, d decision, asked askFacts) settlement {
	result, done, err := a.check(ctx)
	switch {
	case done:
		return a.conclude(ctx, outcomeDone, conclusion{result: result, source: Checked})
	case err != nil:
		return a.conclude(ctx, a.judgeCheck(ctx, err), conclusion{err: err, after: askedFor(err), source: Checked})
	}
	held := func(why string) settlement {
		return a.commit(ctx, decideHeld(why), conclusion{source: LookedUp, verdict: asked.verdict.String()})
	}
	if why := a.kind.heldByMode(true); why != "" {
		return held(why)
	}
	if s, free := a.guard(ctx, &asked); !free {
		return s
	}
	if why := a.heldBack(ctx, true); why != "" {
		return held(why)
	}
	keyUntil, err := a.arm(ctx, d)
	if err != nil && errors.Is(context.Cause(ctx), ErrDraining) {
		return a.giveBack(ctx, decideOutcome(outcomeFacts{outcome: outcomeDrained}), conclusion{})
	}
	if err != nil { // the save tells an attempt that has lost its task from one that may ask again
		a.log.WarnContext(ctx, "not armed for a resend", "error", err)
		return a.conclude(ctx, outcomeAskAgain, conclusion{})
	}
	a.log.InfoContext(ctx, "sending again", "why", d.why)
	return a.perform(ctx, keyUntil)
}

// arm confirms that this attempt may send. It returns until when the provider's key protects the resend.
func (a *attempt) arm(ctx context.Context, d decision) (keyUntil time.Time, err error) {
	p := a.kind.provider
	usable := p.usableKey(a.kind.policy.Deadline)
	ctx, span := a.engine.start(ctx, spanArm)
	defer func() { endSpan(span, err) }()
	before := now()
	armed, err := a.engine.store.Arm(ctx, idemstore.Arm{
		Fence: a.task.Fence, Lease: a.engine.config.Lease, Keyed: usable > 0, KeyLifetime: usable,
		Provider: p.Identity, ByKey: d.byKey, Permitted: p.Unkeyed && p.ResendUnkeyed, Reason: d.why, Actor: a.by.actor,
	})
	if err != nil {
		return keyUntil, err
	}
	a.renewed(before.Add(a.engine.config.Lease))
	if armed.KeyRest > 0 {
		keyUntil = before.Add(armed.KeyRest)
	}
	return keyUntil, nil
}

// String names a verdict in spans and audit lines.
func (v Verdict) String() string {
	switch v {
	case Found:
		return "found"
	case FoundRefused:
		return "found refused"
	case Absent:
		return "absent"
	case Running:
		return "still running"
	case Contradictory:
		return "contradictory"
	case CannotTell:
	}
	return "cannot tell"
}
