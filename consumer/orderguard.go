package consumer

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// The order guard, for kinds with Entity. An attempt takes it right before each send: so one event of an entity is
// under way at a time, and none is sent after a newer one was applied. The version moves on in the commit of a save.

// order is how the version of an event stands to another one.
type order int

const (
	orderNone    order = iota // there is no other
	orderNewer                // the event is the newer one
	orderSame                 // both are the same
	orderOlder                // the event is the older one
	orderUnclear              // one has only a number, the other only a time
)

// guardFacts are what a guard sees of an entity, under its lock.
type guardFacts struct {
	applied order // to the newest version that was applied
	own     bool  // that one was applied by this very task

	held           bool // another task took the guard last
	status         idemstore.Status
	leased, unsure bool  // that task's
	holder         order // to the version of that task
}

// decideGuard is the guard table. It is decided in the guard's own statement (idemstore, guardDecide), because only
// there the entity is locked; this is the same table in Go, and a test compares the two on every combination.
func decideGuard(f guardFacts) idemstore.GuardFound {
	underWay := f.status == idemstore.Unknown || f.status == idemstore.Started && (f.leased || f.unsure)
	parked := f.status == idemstore.NeedsReview && f.unsure // a person decides whether it was applied
	switch {
	case f.applied == orderOlder, f.applied == orderSame && !f.own:
		return idemstore.GuardStale
	case f.held && underWay:
		return idemstore.GuardHeld
	case f.applied == orderUnclear:
		return idemstore.GuardUnclear
	case f.held && parked && f.holder != orderNewer:
		return idemstore.GuardHeld
	}
	return idemstore.GuardTaken
}

// Reasons of the guard, in audit and spans.
const (
	whyStale   = "stale: this version or a newer one of its entity was applied; not sent"
	whyUnclear = "its version cannot be compared with the one that was applied"
)

// decideTurn says what a guard means for an attempt that is about to send. asked is what the provider said before a
// resend; nil before a first send, which is known not to have been applied.
func decideTurn(found idemstore.GuardFound, asked *askFacts) decision {
	switch found {
	case idemstore.GuardStale:
		if asked != nil {
			return decideStale(*asked)
		}
		return decision{act: saveIt, status: idemstore.Finished, why: whyStale}
	case idemstore.GuardHeld:
		return decision{act: giveBack, wait: waitDue}
	case idemstore.GuardLocked:
		return decision{act: giveBack, wait: waitShort}
	case idemstore.GuardUnclear:
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseConflict, alert: true, why: whyUnclear}
	case idemstore.GuardTaken:
	}
	return decision{act: sendIt}
}

// decideStale is for an event that was overtaken while an earlier attempt of its own may have been applied. It is skipped
// only where a provider without keys could be sent to again: a young key makes a resend harmless, but it does not say
// that nothing was applied, or will be by a request that is still on its way.
func decideStale(f askFacts) decision {
	f.keyed, f.permitted = false, true
	d := decideAsk(f)
	if d.act == sendIt {
		return decision{act: saveIt, status: idemstore.Finished, why: whyStale}
	}
	d.why = "stale, but an earlier attempt may have been applied; " + d.why
	return d
}

// guard takes the order guard right before a send. It reports whether the send may go on; if not, it says how the
// delivery ends.
func (a *attempt) guard(ctx context.Context, asked *askFacts) (s settlement, free bool) {
	if a.kind.entity == nil {
		return s, true
	}
	entity, err := a.kind.entityOf(a.job)
	switch {
	case err != nil:
		return a.conclude(ctx, outcomeConflict, conclusion{err: Conflict(err)}), false
	case entity.ID == "":
		return s, true
	}
	g, err := a.takeGuard(ctx, entity)
	if err != nil {
		return a.conclude(ctx, a.judgeCheck(ctx, err), conclusion{err: err}), false
	}
	d := decideTurn(g.Found, asked)
	switch d.act {
	case sendIt:
		return s, true
	case giveBack:
		return a.giveBack(ctx, d, conclusion{after: g.Wait, err: NotSent(heldBy(g))}), false
	case saveIt, nothing:
	}
	return a.commit(ctx, d, a.turnedAway(d, g, entity, asked)), false
}

func (a *attempt) takeGuard(ctx context.Context, entity idemstore.Entity) (g idemstore.Guarded, err error) {
	ctx, span := a.engine.start(ctx, spanGuard)
	defer func() { endSpan(span, err) }()
	ctx, cancel := context.WithTimeout(ctx, a.engine.config.Lease)
	defer cancel()
	g, err = a.engine.guards.do(ctx, idemstore.Guard{Entity: entity, TaskID: a.task.TaskID})
	span.SetAttributes(attribute.String(attrFound, string(g.Found)))
	return g, err
}

// heldBy says whom an event waits for.
func heldBy(g idemstore.Guarded) error {
	if g.Found == idemstore.GuardLocked {
		return errors.New("the order guard of the entity is busy")
	}
	return fmt.Errorf("task %d of the same entity has to be settled first", g.Holder)
}

// turnedAway is what an attempt brings back that did not send because of the order.
func (a *attempt) turnedAway(d decision, g idemstore.Guarded, entity idemstore.Entity, asked *askFacts) conclusion {
	c := conclusion{source: LookedUp}
	if asked != nil {
		c.verdict = asked.verdict.String()
	}
	applied := fmt.Sprintf("this is %s; task %d has applied %s", describeVersion(entity.Version), g.AppliedBy, describeVersion(g.Applied))
	switch {
	case g.Found == idemstore.GuardUnclear:
		c.err = Conflict(errors.New(applied))
	case d.status == idemstore.Finished:
		c.source, c.result, c.detail = Skipped, a.kind.results.none(), applied
	}
	return c
}

// versionApplied is what a save says about the entity of a job whose effect is there, whoever learnt it. Nil where the kind
// has no guard, or none for this job.
func (a *attempt) versionApplied(ctx context.Context, c conclusion) *idemstore.Entity {
	if c.source == Skipped {
		return nil
	}
	entity, err := a.kind.entityOf(a.job)
	if err != nil {
		a.log.WarnContext(ctx, "the effect is there, but the order guard does not learn of it", "error", err)
	}
	if err != nil || entity.ID == "" {
		return nil
	}
	return &entity
}
