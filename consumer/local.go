package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// LocalKind declares jobs without a provider: their effect is rows in the same database. Claim, rows and result are
// one transaction, so a crash undoes the job and there is never anything to ask about.
//
// A message that comes a second time commits its claim first, or a job that kills its process would do so for ever
// without a trace. Name, Contract, Key and Apply are required.
type LocalKind[J, R any] struct {
	Name     string   // as Kind.Name
	Contract Contract // as Kind.Contract
	Policy   Policy   // as Kind.Policy
	Content  Content  // as Kind.Content

	Key  func(J) (string, error) // as Kind.Key
	Refs func(J) Refs            // optional; as Kind.Refs

	// Apply writes the job's rows through tx, and nothing else: it is run again after a deadlock or a
	// serialization failure. It must not commit or roll back. Its error rolls everything back: Refused makes the task
	// failed, Conflict makes it needs_review, any other error costs one failure and is tried again later.
	Apply func(ctx context.Context, tx pgx.Tx, a *Attempt[J]) (R, error)
}

func (LocalKind[J, R]) job(J) {}

// define erases the types of a local kind, or names what it lacks.
func (k LocalKind[J, R]) define() (*definition, error) {
	err := missing(k.Name, map[string]bool{"Contract.Effect": k.Contract.Effect != "", "Key": k.Key != nil, "Apply": k.Apply != nil})
	if err != nil {
		return nil, err
	}
	d := &definition{name: k.Name, contract: k.Contract, policy: k.Policy, content: k.Content}
	d.decode = func(doc *document) (any, error) { return decodeJob[J](doc, k.Content.IDs...) }
	d.key = func(j any) (string, error) { return k.Key(j.(J)) }
	d.externalID = func(any) string { return "" }
	d.apply = func(ctx context.Context, tx pgx.Tx, a *attempt) (any, error) { return k.Apply(ctx, tx, typed[J](a)) }
	if k.Refs != nil {
		d.refs = func(j any) Refs { return k.Refs(j.(J)) }
	}
	return d, nil
}

// applyNew runs a local job on its first delivery: claim, rows and result in one transaction.
func (d *delivery) applyNew(ctx context.Context, j job) settlement {
	var a *attempt
	sent := now()
	claim := d.claimOf(ctx, j)
	found, saved, err := d.engine.store.ApplyNew(context.WithoutCancel(ctx), claim,
		func(within context.Context, tx pgx.Tx, c idemstore.Claimed) (idemstore.Save, error) {
			_, a = d.newAttempt(ctx, c, sent)
			if err := a.decode(c, j); err != nil {
				return idemstore.Save{}, err
			}
			return a.work(within, tx, c)
		})
	var failed *idemstore.WorkError
	switch {
	case errors.As(err, &failed):
		return d.recordFailure(ctx, j, failed.Err)
	case err != nil:
		return d.notClaimed(ctx, err)
	case a == nil:
		return d.proceed(ctx, found, sent, j)
	}
	describe(d.span, found)
	return a.applied(ctx, saved)
}

// recordFailure claims for good, so that what was rolled back leaves a trace and costs a failure.
func (d *delivery) recordFailure(ctx context.Context, j job, cause error) settlement {
	claimed, sent, err := d.claim(ctx, j)
	switch {
	case err != nil:
		return d.notClaimed(ctx, err)
	case claimed.Found != idemstore.Inserted && claimed.Found != idemstore.Perform && claimed.Found != idemstore.Ask:
		return d.proceed(ctx, claimed, sent, j)
	}
	describe(d.span, claimed)
	ctx, a := d.newAttempt(ctx, claimed, sent)
	defer a.cancel(nil)
	return a.failed(ctx, cause)
}

// applyHeld runs a local job whose claim is committed.
func (a *attempt) applyHeld(ctx context.Context, c idemstore.Claimed) settlement {
	a.saving.Store(true) // the row is locked until the end, so nobody can take it and no renewal would get at it
	saved, err := a.engine.store.ApplyHeld(context.WithoutCancel(ctx), c, a.work)
	var failed *idemstore.WorkError
	switch {
	case errors.As(err, &failed):
		return a.failed(ctx, failed.Err)
	case err != nil:
		return a.notSaved(ctx, conclusion{}, err)
	}
	return a.applied(ctx, saved)
}

// work is what a local job does inside its transaction, up to the outcome that is saved with its rows.
func (a *attempt) work(ctx context.Context, tx pgx.Tx, c idemstore.Claimed) (s idemstore.Save, err error) {
	ctx, span := a.engine.start(ctx, spanApply, attribute.String(attrKey, c.Task.Key), attribute.Int(attrAttempt, c.Task.Attempt))
	defer func() { endSpan(span, err) }()
	a.deadline = now().Add(a.kind.policy.Deadline)
	ctx, cancel := context.WithDeadlineCause(ctx, a.deadline, ErrDeadline)
	defer cancel()
	result, err := contain(func() (any, error) { return a.kind.apply(ctx, tx, a) })
	if err != nil {
		return s, err
	}
	s = a.saveFor(decision{act: saveIt, status: idemstore.Finished}, nil)
	s.Strict = false // the row has been locked since the claim
	return s, a.addResult(&s, result)
}

// applied ends a delivery whose local job is committed.
func (a *attempt) applied(ctx context.Context, saved idemstore.Saved) settlement {
	annotateDelivery(a.span, saved.Status, "", string(saved.Status))
	d := decision{act: saveIt, status: saved.Status}
	a.log.Log(ctx, slog.LevelInfo, "applied", "status", string(saved.Status), "settle", d.verb(saved.Status).String())
	return settlement{verb: d.verb(saved.Status), delay: saved.Wait}
}

// failed records a local job that was rolled back.
func (a *attempt) failed(ctx context.Context, cause error) settlement {
	c := conclusion{err: cause, after: askedFor(cause)}
	switch classOf(cause) {
	case classRefused:
		return a.commit(ctx, decision{act: saveIt, status: idemstore.Failed}, c)
	case classConflict:
		return a.commit(ctx, decideOutcome(outcomeFacts{outcome: outcomeConflict}), c)
	case classNone, classAccepted, classNotSent, classMisconfigured, classDone:
	}
	return a.giveBack(ctx, decision{act: giveBack, cost: 1, wait: waitFailures, why: "the job failed and was rolled back"}, c)
}
