package consumer

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle/idemstore"
)

const (
	tallyEvery = 10 * time.Second
	tallyLimit = 3 * time.Second // for the answer of the database; of the last one the drain waits for as long
)

// tally counts what this worker came to with the tasks of a kind, for the charts of the support screen, whether or not
// anybody looks at metrics.
type tally struct{ finished, failed, review, unknown, duplicates atomic.Int64 }

// committed counts a task by the status that it was left with.
func (t *tally) committed(s idemstore.Status) {
	//nolint:exhaustive // an attempt that was given back came to nothing
	switch s {
	case idemstore.Finished:
		t.finished.Add(1)
	case idemstore.Failed:
		t.failed.Add(1)
	case idemstore.NeedsReview:
		t.review.Add(1)
	case idemstore.Unknown:
		t.unknown.Add(1)
	}
}

// found counts what a claim found, for a delivery or without one.
func (t *tally) found(f idemstore.Found, delivered bool) {
	switch {
	case f == idemstore.Spent:
		t.review.Add(1)
	case (f == idemstore.Final || f == idemstore.Parked) && delivered:
		t.duplicates.Add(1)
	}
}

// take is what was counted since it was last taken.
func (t *tally) take(kind string) idemstore.Tally {
	return idemstore.Tally{Kind: kind, Finished: t.finished.Swap(0), Failed: t.failed.Swap(0), NeedsReview: t.review.Swap(0),
		Unknown: t.unknown.Swap(0), Duplicates: t.duplicates.Swap(0)}
}

// putBack is for what could not be added. What was counted meanwhile stays.
func (t *tally) putBack(c idemstore.Tally) {
	t.finished.Add(c.Finished)
	t.failed.Add(c.Failed)
	t.review.Add(c.NeedsReview)
	t.unknown.Add(c.Unknown)
	t.duplicates.Add(c.Duplicates)
}

// keepTally adds what was counted to what other workers did, until ctx ends, and a last time then. That it cannot is said
// once, until it can again.
func (e *Engine) keepTally(ctx context.Context) {
	said := false
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-e.after(tallyEvery):
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), tallyLimit)
		err := e.addTallies(limited)
		cancel()
		if err != nil && !said {
			e.log.InfoContext(ctx, "what was counted for the charts not added; it is kept until it can be", "error", err)
		}
		said = err != nil
	}
}

func (e *Engine) addTallies(ctx context.Context) error {
	kinds := slices.SortedFunc(slices.Values(e.kinds), func(a, b *kind) int { return cmp.Compare(a.name, b.name) })
	pulses := make([]idemstore.Pulse, len(kinds))
	for i, k := range kinds {
		pulses[i] = idemstore.Pulse{Tally: k.tally.take(k.name), BreakerOpen: k.breakerIsOpen()}
		if at := k.looked.Load(); at != 0 {
			ago := max(now().Sub(time.Unix(0, at)), 0)
			pulses[i].Recovered = &ago
		}
	}
	err := e.store.AddTallies(ctx, pulses)
	if err != nil {
		for i, k := range kinds {
			k.tally.putBack(pulses[i].Tally)
		}
	}
	return err
}
