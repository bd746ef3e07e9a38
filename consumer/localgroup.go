package consumer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// Local jobs on their first delivery go in groups: one transaction claims them all, runs one Apply after the other and
// saves all. A group that does not get through is rolled back, and each of its jobs runs by itself: only what is wrong
// with a job itself is ever told of it.

// first is a local job on its first delivery.
type first struct {
	*delivery
	ctx   context.Context //nolint:containedctx // of a delivery that waits until its group has ended
	job   job
	claim idemstore.Claim
	begun atomic.Bool
}

// firstRun is one run of it, in a group or alone.
type firstRun struct {
	*first
	sent    time.Time
	claimed idemstore.Claimed
	attempt *attempt
	within  context.Context //nolint:containedctx // of the attempt
	took    time.Duration   // by its Apply
}

// applied is what became of a first delivery. A zero saved means that the claim gave no attempt.
type applied struct {
	found   idemstore.Claimed
	saved   idemstore.Saved
	attempt *attempt // of the last run
}

// aloneError sends the members of a group that was rolled back to run by themselves.
type aloneError struct{ cause error }

func (e *aloneError) Error() string { return "the group was rolled back: " + e.cause.Error() }

func (e *aloneError) Unwrap() error { return e.cause }

// errTakesLong ends a group whose jobs turn out to be slow: alone they run at the same time.
var errTakesLong = errors.New("the jobs of the group take long")

// newLocals makes the group of a local kind's first deliveries. Patience ends where a job neither reruns nor heeds its
// context: that must not keep the others of its group for ever.
func (e *Engine) newLocals(k *kind) *group[*first, applied] {
	size, ample := newSizing(e.config.Slots), k.applyLimit()+saveTimeout
	return &group[*first, applied]{
		key:    func(f *first) string { return f.claim.Key },
		bounds: size.bounds,
		ample:  ample, patience: 2 * ample,
		late: sizeLate,
		slow: func(firsts []*first) {
			if slices.ContainsFunc(firsts, func(f *first) bool { return f.begun.Load() }) { // else it waits for a connection
				size.learn(len(firsts), sizeLate, true)
			}
		},
		sizes: e.meters.timer(metricGroup, groupSizes, "apply"),
		run: func(ctx context.Context, firsts []*first) []outcomeOf[applied] {
			out, took, err := e.applyFirsts(ctx, k, firsts)
			size.learn(len(firsts), took, err == nil)
			return out
		},
	}
}

// applyLimit is how long the server lets a local job's session stand still.
func (k *kind) applyLimit() time.Duration { return k.policy.Deadline + handlerGrace }

// applyFirsts runs first deliveries in one transaction, and says how long their Applies took.
func (e *Engine) applyFirsts(ctx context.Context, k *kind, firsts []*first) (out []outcomeOf[applied], took time.Duration, err error) {
	if len(firsts) == 1 {
		x := firsts[0].newRun()
		found, saved, err := e.store.ApplyNew(ctx, x.claim, k.applyLimit(), x.alone)
		return []outcomeOf[applied]{{applied{found, saved, x.attempt}, err}}, x.took, err
	}
	runs, claims := make([]*firstRun, len(firsts)), make([]idemstore.Claim, len(firsts))
	for i, f := range firsts {
		runs[i], claims[i] = f.newRun(), f.claim
	}
	found, saved, err := e.store.ApplyGroup(ctx, claims, k.applyLimit(),
		func(tx pgx.Tx, found []idemstore.Claimed) ([]idemstore.Save, error) {
			return workAll(ctx, tx, runs, found)
		})
	out = make([]outcomeOf[applied], len(firsts))
	for i, x := range runs {
		took += x.took
		if err != nil {
			out[i].err = &aloneError{err}
		} else {
			out[i].answer = applied{found[i], saved[i], x.attempt}
		}
	}
	return out, took, err
}

// workAll runs the jobs of a group in turn. All are held from the start: their messages must not go to somebody else
// while one of them takes long.
func workAll(ctx context.Context, tx pgx.Tx, runs []*firstRun, found []idemstore.Claimed) (saves []idemstore.Save, err error) {
	var held []*firstRun
	defer func() {
		for _, x := range held {
			x.free()
		}
	}()
	for i, x := range runs {
		if found[i].Found != idemstore.Inserted {
			continue
		}
		if err := x.hold(found[i]); err != nil {
			return nil, err
		}
		held = append(held, x)
	}
	began := now()
	for n, x := range held {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case n > 0 && now().Sub(began) > sizeTooLong:
			return nil, errTakesLong
		}
		begins := now()
		x.attempt.progress.Store(&begins) // its time runs from here
		s, err := x.work(tx)
		if err != nil {
			return nil, err
		}
		saves = append(saves, s)
	}
	return saves, nil
}

func (f *first) newRun() *firstRun { return &firstRun{first: f, sent: now()} }

// alone is a run in a transaction of its own. All repetitions of it together have the time of one job.
func (x *firstRun) alone(tx pgx.Tx, c idemstore.Claimed) (idemstore.Save, error) {
	if err := x.hold(c); err != nil {
		return idemstore.Save{}, err
	}
	defer x.free()
	return x.work(tx)
}

// hold begins the attempt of a run. It lasts until free is called.
func (x *firstRun) hold(c idemstore.Claimed) error {
	x.claimed = c
	x.within, x.attempt = x.newAttempt(x.ctx, c, x.sent)
	x.attempt.saving.Store(true)
	err := x.engine.hold(x.attempt)
	if err != nil {
		x.attempt.cancel(nil)
	}
	return err
}

func (x *firstRun) free() {
	x.engine.letGo(x.attempt)
	x.attempt.cancel(nil)
}

func (x *firstRun) work(tx pgx.Tx) (idemstore.Save, error) {
	x.begun.Store(true)
	began := now()
	defer func() { x.took = now().Sub(began) }()
	if err := x.attempt.decode(x.claimed, x.job); err != nil {
		return idemstore.Save{}, err
	}
	return x.attempt.work(x.within, tx)
}

// applyAlone runs a first delivery by itself, after a group of which only the cause is known.
func (f *first) applyAlone(cause error) (applied, error) {
	ctx, cancel := f.limitApply(f.ctx)
	defer cancel()
	x := f.newRun()
	found, saved, err := f.engine.store.ApplyAlone(ctx, f.claim, f.kind.applyLimit(), x.alone, cause)
	if saved.Status != "" && x.attempt == nil { // its group had committed it
		_, x.attempt = f.newAttempt(f.ctx, found, x.sent)
		x.attempt.cancel(nil)
		x.attempt.stored = found.Task.Result
	}
	return applied{found, saved, x.attempt}, err
}
