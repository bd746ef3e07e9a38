package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

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

	// Apply writes the job's rows through tx, and nothing else: it is run again after a deadlock, a serialization
	// failure, or a lock that it did not get within a second (a third of the lease, if that is less). It cannot commit
	// or roll back. Policy.Deadline bounds it with its repetitions, and a drain that lasts too long cancels ctx.
	//
	// Quick jobs share a transaction, one after the other, as many as take 25 ms together: a setting made by SET LOCAL
	// reaches the jobs behind it. If one of them fails all are rolled back, and each is run by itself.
	//
	// An error rolls everything back. Refused makes the task failed, with R as its result; Conflict makes it
	// needs_review; any other error, and a panic, costs one failure and is tried again later, and the last failure of
	// the budget makes it needs_review. While it runs it holds one connection of the pool.
	Apply func(ctx context.Context, tx pgx.Tx, a *Attempt[J]) (R, error)
}

func (LocalKind[J, R]) job(J) {}

// define erases the types of a local kind, or names what it lacks.
func (k LocalKind[J, R]) define() (*definition, error) {
	err := missing(k.Name, map[string]bool{"Contract.Effect": k.Contract.Effect != "", "Key": k.Key != nil, "Apply": k.Apply != nil})
	if err != nil {
		return nil, err
	}
	d := &definition{name: k.Name, contract: k.Contract, policy: k.Policy, content: k.Content, results: resultsOf[R]()}
	d.decode = func(doc *document) (any, error) { return decodeJob[J](doc, k.Content.IDs...) }
	d.key = func(j any) (string, error) { return k.Key(j.(J)) }
	d.externalID = func(any) string { return "" }
	d.apply = func(ctx context.Context, tx pgx.Tx, a *attempt) (any, error) { return k.Apply(ctx, tx, typed[J](a)) }
	if k.Refs != nil {
		d.refs = func(j any) Refs { return k.Refs(j.(J)) }
	}
	return d, nil
}

// applyNew runs a local job on its first delivery: claim, rows and result in one transaction, with others or alone.
func (d *delivery) applyNew(ctx context.Context, j job) settlement {
	f := &first{delivery: d, ctx: ctx, job: j, claim: d.claimOf(ctx, j)}
	sent := now()
	did, err := d.kind.locals.do(context.WithoutCancel(ctx), f)
	var alone *aloneError
	if errors.As(err, &alone) || errors.Is(err, errPatience) {
		did, err = f.applyAlone(err)
	}
	if err == nil {
		d.kind.meters.inOne(sent, did.attempt)
	}
	if did.saved.Status == "" {
		d.task.Store(nil) // what the last run had claimed is rolled back
	}
	var failed *idemstore.WorkError
	switch {
	case errors.As(err, &failed):
		return d.rolledBack(ctx, j, did.attempt.brought(failed.Err))
	case err != nil:
		return d.notClaimed(ctx, err)
	case did.found.Found == idemstore.Taken:
		return d.claimAndProceed(ctx, f.claim, j)
	case did.saved.Status == "":
		return d.proceed(ctx, did.found, sent, j)
	}
	d.describe(did.found)
	linkTo(d.span, did.found.PreviousTrace)
	return did.attempt.applied(ctx, did.saved)
}

// limitApply detaches from ctx, which a drain cancels in the middle of a commit, and bounds what is left.
func (d *delivery) limitApply(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d.kind.applyLimit()+saveTimeout)
}

// rolledBack claims for good, so that a job that failed leaves a trace and costs a failure. One that a drain
// interrupted leaves none: it is as if its message had never been taken.
func (d *delivery) rolledBack(ctx context.Context, j job, c conclusion) settlement {
	if interrupted(ctx, c.err) {
		return settlement{verb: nak, delay: d.kind.policy.delay(waitShort, counts{jitter: rand.Float64()})}
	}
	claimed, sent, err := d.claim(ctx, d.claimOf(ctx, j))
	switch {
	case err != nil:
		return d.notClaimed(ctx, err)
	case claimed.Found != idemstore.Inserted && claimed.Found != idemstore.Perform && claimed.Found != idemstore.Ask:
		return d.proceed(ctx, claimed, sent, j)
	}
	d.describe(claimed)
	linkTo(d.span, claimed.PreviousTrace)
	ctx, a := d.newAttempt(ctx, claimed, sent)
	defer a.cancel(nil)
	return a.failed(ctx, c)
}

// interrupted reports whether a job came to nothing because the process stops.
func interrupted(ctx context.Context, err error) bool {
	var p *panicError
	return errors.Is(err, ErrDraining) ||
		errors.Is(context.Cause(ctx), ErrDraining) && classOf(err) == classNone && !errors.As(err, &p)
}

// applyHeld runs a local job whose claim is committed.
func (a *attempt) applyHeld(ctx context.Context, c idemstore.Claimed) settlement {
	a.saving.Store(true)
	limited, cancel := a.limitApply(ctx)
	defer cancel()
	saved, err := a.engine.store.ApplyHeld(limited, c, a.kind.applyLimit(),
		func(tx pgx.Tx, _ idemstore.Claimed) (idemstore.Save, error) { return a.work(ctx, tx) })
	var failed *idemstore.WorkError
	switch {
	case errors.As(err, &failed):
		return a.failed(ctx, a.brought(failed.Err))
	case err != nil:
		return a.notSaved(ctx, conclusion{}, err)
	}
	return a.applied(ctx, saved)
}

// locksRow reports whether the attempt has its row locked, in the transaction of a local job or of a step: until that ends nobody
// can take the task, and no renewal would get at it.
func (a *attempt) locksRow() bool {
	return a.kind.apply != nil && (a.saving.Load() || a.stepping.Load())
}

// work is what a local job does inside its transaction, up to the outcome that is saved with its rows.
func (a *attempt) work(ctx context.Context, tx pgx.Tx) (s idemstore.Save, err error) {
	ctx, span := a.engine.start(ctx, spanApply)
	defer func() { endSpan(span, err) }()
	if span.IsRecording() {
		span.SetAttributes(taskLabels(&a.task)...)
	}
	a.deadline = a.began().Add(a.kind.policy.Deadline)
	ctx, cancel := context.WithDeadlineCause(ctx, a.deadline, ErrDeadline)
	defer cancel()
	a.begun = now()
	a.result, err = contain(func() (any, error) { return a.kind.apply(ctx, tx, a) })
	a.ended = now()
	a.kind.meters.perform.record(a.ended.Sub(a.begun).Seconds())
	if err != nil {
		return s, err
	}
	s = a.saveFor(decision{act: saveIt, status: idemstore.Finished}, nil)
	s.Strict = false // the row has been locked since the claim
	err = a.addResult(&s, conclusion{result: a.result})
	a.stored = s.Result
	return s, err
}

// brought is what a local job that was rolled back came to.
func (a *attempt) brought(err error) conclusion {
	return conclusion{result: a.result, err: err, after: askedFor(err)}
}

// applied ends a delivery whose local job is committed.
func (a *attempt) applied(ctx context.Context, saved idemstore.Saved) settlement {
	a.committed(saved.Status, "", string(saved.Status))
	d := decision{act: saveIt, status: saved.Status}
	a.log.Log(ctx, slog.LevelInfo, "applied", "status", string(saved.Status), "settle", d.verb(saved.Status).String())
	return settlement{verb: d.verb(saved.Status), delay: saved.Wait, reply: a.replyOf(&a.task, saved.Status, a.stored, false)}
}

// failed records a local job that was rolled back.
func (a *attempt) failed(ctx context.Context, c conclusion) settlement {
	if interrupted(ctx, c.err) {
		return a.giveBack(ctx, decideOutcome(outcomeFacts{outcome: outcomeDrained}), conclusion{})
	}
	switch classOf(c.err) {
	case classRefused:
		return a.commit(ctx, decision{act: saveIt, status: idemstore.Failed}, c)
	case classConflict:
		return a.commit(ctx, decideOutcome(outcomeFacts{outcome: outcomeConflict}), conclusion{err: c.err})
	case classNone, classAccepted, classNotSent, classMisconfigured, classInProgress, classReplayed, classDone:
	}
	c.result = nil
	if a.task.Failures+1 >= a.kind.policy.MaxFailures {
		return a.commit(ctx, decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseBudget, cost: 1, alert: true,
			why: "the job failed and was rolled back; parked: the budget is used up"}, c)
	}
	return a.giveBack(ctx, decision{act: giveBack, cost: 1, wait: waitAsked, why: "the job failed and was rolled back"}, c)
}
