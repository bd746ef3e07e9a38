package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// GroupWork is the local jobs of a group: it gets what the claims found, in their order, writes the rows of each one
// that gave an attempt through tx, and returns one Save for each of these. Its error rolls everything back.
type GroupWork func(tx pgx.Tx, found []Claimed) ([]Save, error)

// ApplyGroup is ApplyNew for several jobs in one transaction: one statement claims, work runs, one statement saves, and
// one COMMIT serves all. No key may occur twice. As for ClaimNew, a key that somebody has is answered with Taken:
// nothing was done, and nothing is known. The Saved of such a claim is zero.
//
// A group stands or falls as one: after an error nothing is known to be committed, and ApplyAlone, with that error, runs
// each of its jobs by itself. It waits for locks a short time only, and runs once: who is in the way of one member must
// not hold up the others.
func (s *Store) ApplyGroup(ctx context.Context, claims []Claim, limit time.Duration, work GroupWork) (found []Claimed, saved []Saved, err error) {
	err = s.inTx(ctx, limit, func(conn *pgx.Conn, tx pgx.Tx) (err error) {
		x := inserting(claims)
		found, err = inBatch(ctx, tx, func(b *pgx.Batch) { b.Queue(waitShortly); x.queue(b); b.Queue(planFreely) },
			func(r pgx.BatchResults) ([]Claimed, error) {
				if _, err := r.Exec(); err != nil {
					return nil, err
				}
				return x.read(r)
			})
		if err != nil {
			return err
		}
		saves, err := work(lent{tx}, found)
		if err == nil {
			err = leftOpen(conn.PgConn())
		}
		if err != nil {
			return &WorkError{err}
		}
		if len(saves) > 0 {
			saved, err = saveIn(ctx, tx, saves)
		}
		return err
	}, commitOf(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("claim and apply %d jobs: %w", len(claims), err)
	}
	return found, inOrder(found, saved), nil
}

// inOrder gives each claim the outcome that was saved for it.
func inOrder(found []Claimed, saved []Saved) []Saved {
	out := make([]Saved, len(found))
	for i, c := range found {
		if c.gives() {
			out[i], saved = saved[0], saved[1:]
		}
	}
	return out
}

// ApplyAlone is ApplyNew for one job of a group that failed with cause. Where it is open whether the group was committed
// it looks first: what is there under the claim's token is final.
func (s *Store) ApplyAlone(ctx context.Context, c Claim, limit time.Duration, work Work, cause error) (Claimed, Saved, error) {
	if isNotCommitted(cause) {
		return s.ApplyNew(ctx, c, limit, work)
	}
	return s.applyAgain(ctx, c, limit, work, cause)
}
