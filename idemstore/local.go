package idemstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Work is a local job: it writes its rows through tx and returns what to save. Its error rolls everything back.
type Work func(ctx context.Context, tx pgx.Tx, c Claimed) (Save, error)

// WorkError is the error of a Work. Nothing of it, and of its claim, was committed.
type WorkError struct{ Err error }

func (e *WorkError) Error() string { return e.Err.Error() }

// Unwrap gives the error of the Work.
func (e *WorkError) Unwrap() error { return e.Err }

// ApplyNew claims a key, runs work if the claim gives an attempt, and saves, all in one transaction: a crash leaves
// nothing behind. Where the claim finds something else its answer is committed and returned, and work does not run.
//
// The transaction is run again after deadlocks and serialization failures, so work may run several times and must
// do nothing but write through tx. A *WorkError means that nothing was committed; ErrUnanswered that the answer to
// COMMIT was lost and the claim was not found afterwards.
func (s *Store) ApplyNew(ctx context.Context, c Claim, work Work) (found Claimed, saved Saved, err error) {
	err = again(ctx, func(ctx context.Context) error {
		return s.inTx(ctx, func(tx pgx.Tx) (err error) {
			if found, err = claimIn(ctx, tx, c); err != nil || !found.gives() {
				return err
			}
			saved, err = applyIn(ctx, tx, found, work)
			return err
		})
	})
	switch {
	case err == nil:
		return found, saved, nil
	case sqlState(err) == lockTimeoutState && isNotCommitted(err):
		return Claimed{Found: Locked}, saved, nil
	case isNotCommitted(err):
		return found, saved, fmt.Errorf("claim and apply: %w", err)
	}
	return s.rereadApplied(ctx, c, err)
}

// gives reports whether a claim gave an attempt.
func (c Claimed) gives() bool { return c.Found == Inserted || c.Found == Ask || c.Found == Perform }

// rereadApplied looks for a local job whose COMMIT was not answered. Claim and outcome are one transaction: what is
// there under our token is final.
func (s *Store) rereadApplied(ctx context.Context, c Claim, cause error) (Claimed, Saved, error) {
	t, err := s.Find(ctx, c.Kind, c.Key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Claimed{}, Saved{}, fmt.Errorf("claim and apply: %w: %w: read again: %w", ErrUnanswered, cause, err)
	}
	if err != nil || t.Token != c.Token {
		return Claimed{}, Saved{}, fmt.Errorf("claim and apply: %w: %w", ErrUnanswered, cause)
	}
	return Claimed{Found: Perform, Task: t}, savedAs(t)[0], nil
}

// ApplyHeld runs work for an attempt whose claim is committed, and saves, in one transaction under the fence, which
// is checked before work runs and holds the row until the end. Errors are as for ApplyNew, and ErrLost.
func (s *Store) ApplyHeld(ctx context.Context, c Claimed, work Work) (saved Saved, err error) {
	err = again(ctx, func(ctx context.Context) error {
		return s.inTx(ctx, func(tx pgx.Tx) (err error) {
			if _, err := tx.Exec(ctx, holdRow, c.Task.TaskID, c.Task.Attempt, c.Task.Token); err != nil {
				return err
			}
			saved, err = applyIn(ctx, tx, c, work)
			return err
		})
	})
	switch {
	case err == nil:
		return saved, nil
	case sqlState(err) == fenceState:
		out, err := s.refused(ctx, Save{Fence: c.Task.Fence})
		if err != nil {
			return saved, err
		}
		return out[0], nil
	case isNotCommitted(err):
		return saved, fmt.Errorf("apply: %w", err)
	}
	t, rereadErr := s.FindByID(ctx, c.Task.TaskID)
	if rereadErr == nil && t.Fence == c.Task.Fence && t.Status != Started {
		return savedAs(t)[0], nil
	}
	return saved, fmt.Errorf("apply: %w: %w", ErrUnanswered, errors.Join(err, rereadErr))
}

// inTx runs f in a transaction with the guard. f's own errors are marked: after them nothing was committed.
func (s *Store) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &notCommitted{fmt.Errorf("acquire connection: %w", err), true}
	}
	defer conn.Release()
	tx, err := begin(ctx, conn, s.lockTimeout)
	if err != nil {
		tidy(ctx, conn.Conn(), err)
		return &notCommitted{err, passing[sqlState(err)] || sqlState(err) == ""}
	}
	if err := f(tx); err != nil {
		tidy(ctx, conn.Conn(), err)
		return &notCommitted{err, passing[sqlState(err)]}
	}
	if err := tx.Commit(ctx); err != nil {
		tidy(ctx, conn.Conn(), err)
		return classify(err)
	}
	return nil
}

func begin(ctx context.Context, conn *pgxpool.Conn, lockTimeout string) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, guardTx, lockTimeout)
	return tx, err
}

func claimIn(ctx context.Context, tx pgx.Tx, claim Claim) (Claimed, error) {
	c := columnsOf([]Claim{claim})
	b := &pgx.Batch{}
	c.queue(b)
	results := tx.SendBatch(ctx, b)
	found, err := readClaims(results)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return Claimed{}, err
	}
	found[0].completeFrom(claim)
	return found[0], nil
}

// applyIn runs the work and then the save, whose fence the claim in the same transaction, or holdRow, has made sure.
func applyIn(ctx context.Context, tx pgx.Tx, c Claimed, work Work) (Saved, error) {
	x, err := work(ctx, tx, c)
	if err != nil {
		return Saved{}, &WorkError{err}
	}
	rows, err := tx.Query(ctx, save, saveColumnsOf([]Save{x}).args()...)
	if err != nil {
		return Saved{}, err
	}
	out, err := pgx.CollectRows(rows, scanSaved)
	if err != nil {
		return Saved{}, err
	}
	return out[0], nil
}
