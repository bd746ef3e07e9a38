package consumer

import (
	"context"
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
	ctx     context.Context //nolint:containedctx // of a delivery that waits until its group has ended
	job     job
	claim   idemstore.Claim
	attempt *attempt        // of the last run
	within  context.Context // its own
	took    time.Duration   // by its Apply
}

// applied is what became of a first delivery. A zero saved means that the claim gave no attempt.
type applied struct {
	found idemstore.Claimed
	saved idemstore.Saved
}

// aloneError sends the members of a group that was rolled back to run by themselves.
type aloneError struct{ cause error }

func (e *aloneError) Error() string { return "the group was rolled back: " + e.cause.Error() }

func (e *aloneError) Unwrap() error { return e.cause }

// newLocals makes the group of a local kind's first deliveries.
func (e *Engine) newLocals(k *kind) *group[*first, applied] {
	size := newSizing(e.config.Slots)
	return &group[*first, applied]{
		key:    func(f *first) string { return f.claim.Key },
		bounds: size.bounds,
		ample:  k.applyLimit() + saveTimeout,
		late:   sizeLate,
		sizes:  e.meters.timer(metricGroup, groupSizes, "apply"),
		slow:   func(firsts []*first) { size.learn(len(firsts), sizeLate, true) },
		run: func(ctx context.Context, firsts []*first) []outcomeOf[applied] {
			out, err := e.applyFirsts(ctx, k, firsts)
			size.saw(firsts, err == nil)
			return out
		},
	}
}

// applyLimit is how long the server lets a local job's session stand still.
func (k *kind) applyLimit() time.Duration { return k.policy.Deadline + handlerGrace }

// applyFirsts runs first deliveries in one transaction.
func (e *Engine) applyFirsts(ctx context.Context, k *kind, firsts []*first) ([]outcomeOf[applied], error) {
	if len(firsts) == 1 {
		out, err := firsts[0].applyNew(ctx, k.applyLimit())
		return []outcomeOf[applied]{{out, err}}, err
	}
	out := make([]outcomeOf[applied], len(firsts))
	claims := make([]idemstore.Claim, len(firsts))
	for i, f := range firsts {
		claims[i] = f.claim
	}
	found, saved, err := e.store.ApplyGroup(ctx, claims, k.applyLimit(),
		func(tx pgx.Tx, found []idemstore.Claimed) ([]idemstore.Save, error) {
			return e.workAll(tx, firsts, found)
		})
	for i := range out {
		if err != nil {
			out[i].err = &aloneError{err}
		} else {
			out[i].answer = applied{found[i], saved[i]}
		}
	}
	return out, err
}

// workAll runs the jobs of a group in turn. All are held from the start: their messages must not go to somebody else
// while one of them takes long.
func (e *Engine) workAll(tx pgx.Tx, firsts []*first, found []idemstore.Claimed) (saves []idemstore.Save, err error) {
	var held []func()
	defer func() {
		for _, free := range held {
			free()
		}
	}()
	for i, f := range firsts {
		if found[i].Found != idemstore.Inserted {
			continue
		}
		free, err := f.hold(found[i])
		if err != nil {
			return nil, err
		}
		held = append(held, free)
	}
	for i, f := range firsts {
		if found[i].Found != idemstore.Inserted {
			continue
		}
		begins := now()
		f.attempt.progress.Store(&begins) // its time runs from here
		s, err := f.work(tx, found[i])
		if err != nil {
			return nil, err
		}
		saves = append(saves, s)
	}
	return saves, nil
}

// hold begins the attempt of a first delivery. It lasts until free is called.
func (f *first) hold(c idemstore.Claimed) (free func(), err error) {
	f.within, f.attempt = f.newAttempt(f.ctx, c, now())
	a := f.attempt
	a.saving.Store(true)
	if err := f.engine.hold(a); err != nil {
		a.cancel(nil)
		return nil, err
	}
	return func() { f.engine.letGo(a); a.cancel(nil) }, nil
}

func (f *first) work(tx pgx.Tx, c idemstore.Claimed) (idemstore.Save, error) {
	began := now()
	defer func() { f.took = now().Sub(began) }()
	if err := f.attempt.decode(c, f.job); err != nil {
		return idemstore.Save{}, err
	}
	return f.attempt.work(f.within, tx)
}

// applyNew runs a first delivery in a transaction of its own.
func (f *first) applyNew(ctx context.Context, limit time.Duration) (applied, error) {
	found, saved, err := f.engine.store.ApplyNew(ctx, f.claim, limit, f.runAlone)
	return applied{found, saved}, err
}

// applyAlone is applyNew after a group that failed.
func (f *first) applyAlone(ctx context.Context, limit time.Duration, cause error) (applied, error) {
	found, saved, err := f.engine.store.ApplyAlone(ctx, f.claim, limit, f.runAlone, cause)
	return applied{found, saved}, err
}

func (f *first) runAlone(tx pgx.Tx, c idemstore.Claimed) (idemstore.Save, error) {
	free, err := f.hold(c)
	if err != nil {
		return idemstore.Save{}, err
	}
	defer free()
	return f.work(tx, c)
}
