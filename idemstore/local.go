package idemstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Work is a local job: it writes its rows through tx and returns what to save. Its error rolls everything back.
type Work func(tx pgx.Tx, c Claimed) (Save, error)

// WorkError says that a Work failed, or that the database refused its rows at the end (a deferred constraint). Nothing
// of it, and of its claim, was committed.
type WorkError struct{ Err error }

func (e *WorkError) Error() string { return e.Err.Error() }

// Unwrap gives the error of the Work.
func (e *WorkError) Unwrap() error { return e.Err }

// errLocked: somebody is at the key, and a redelivery is cheaper than waiting once more.
var errLocked = errors.New("the key is locked")

// ApplyNew claims a key, runs work if the claim gives an attempt, and saves, all in one transaction: a crash leaves
// nothing behind. Where the claim finds something else its answer is committed and returned with a zero Saved, and
// work does not run.
//
// The transaction is run again after deadlocks, serialization failures and locks that it did not get, so work may run
// several times and must do nothing but write through tx. The server ends the session if one statement, or a pause
// between two, takes longer than limit: a process that stands still must not keep the row locked.
//
// Where the answer to COMMIT is lost it finds out what happened, and runs again what did not. A *WorkError means that
// nothing was committed; ErrCommitUnanswered that the answer was lost and ctx ended before anything could be found out.
func (s *Store) ApplyNew(ctx context.Context, c Claim, limit time.Duration, work Work) (found Claimed, saved Saved, err error) {
	err = again(ctx, func(ctx context.Context) error {
		found, saved = Claimed{}, Saved{} // a run before this one may have come further
		return s.inTx(ctx, limit, func(conn *pgx.Conn, tx pgx.Tx) (err error) {
			if found, err = claimIn(ctx, tx, c); err != nil || !found.gives() {
				return err
			}
			saved, err = applyIn(ctx, conn, tx, found, work)
			return err
		}, commitOf(ctx))
	})
	switch {
	case err == nil:
		return found, saved, nil
	case errors.Is(err, errLocked):
		return Claimed{Found: Locked}, Saved{}, nil
	case isNotCommitted(err):
		return Claimed{}, Saved{}, fmt.Errorf("claim and apply: %w", blame(err, found.gives()))
	}
	return s.applyAgain(ctx, c, limit, work, err)
}

// gives reports whether a claim gave an attempt.
func (c Claimed) gives() bool { return c.Found == Inserted || c.Found == Ask || c.Found == Perform }

// blame makes an answer of the database that came after the work, which is about its rows, an error of the work.
func blame(err error, worked bool) error {
	var failed *WorkError
	if !worked || errors.As(err, &failed) || sqlState(err) == "" || passing[sqlState(err)] {
		return err
	}
	return &WorkError{err}
}

// applyAgain finds out what became of a local job whose COMMIT was not answered, and runs again what did not happen.
// Claim and outcome are one transaction, so what is there under our token is final.
func (s *Store) applyAgain(ctx context.Context, c Claim, limit time.Duration, work Work, cause error) (Claimed, Saved, error) {
	t, err := s.Find(ctx, c.Kind, c.Key)
	switch {
	case err == nil && t.Token == c.Token:
		return Claimed{Found: Perform, Task: t}, savedAs(t)[0], nil
	case err != nil && !errors.Is(err, ErrNotFound), ctx.Err() != nil:
		return Claimed{}, Saved{}, fmt.Errorf("claim and apply: %w: %w", ErrCommitUnanswered, errors.Join(cause, err))
	}
	return s.ApplyNew(ctx, c, limit, work) // waits for the key, if the server is still at that commit
}

// ApplyHeld runs work for an attempt whose claim is committed, and saves, in one transaction under the fence, which
// is checked before work runs and holds the row until the end. All else is as for ApplyNew; there is one more error,
// ErrLost.
func (s *Store) ApplyHeld(ctx context.Context, c Claimed, limit time.Duration, work Work) (saved Saved, err error) {
	worked := false
	err = again(ctx, func(ctx context.Context) error {
		worked = false
		return s.inTx(ctx, limit, func(conn *pgx.Conn, tx pgx.Tx) (err error) {
			if _, err := tx.Exec(ctx, holdRow, c.Task.TaskID, c.Task.Attempt, c.Task.Token); err != nil {
				return err
			}
			worked = true
			saved, err = applyIn(ctx, conn, tx, c, work)
			return err
		}, commitOf(ctx))
	})
	switch {
	case err == nil:
		return saved, nil
	case sqlState(err) == fenceState && !worked:
		return s.savedBefore(ctx, c.Task.Fence)
	case isNotCommitted(err):
		return Saved{}, fmt.Errorf("apply: %w", blame(err, worked))
	}
	t, rereadErr := s.FindByID(ctx, c.Task.TaskID)
	switch {
	case rereadErr != nil || ctx.Err() != nil:
		return Saved{}, fmt.Errorf("apply: %w: %w", ErrCommitUnanswered, errors.Join(err, rereadErr))
	case t.Fence != c.Task.Fence:
		return Saved{}, fmt.Errorf("apply: %w", ErrLost)
	case t.Status != Started:
		return savedAs(t)[0], nil
	}
	return s.ApplyHeld(ctx, c, limit, work) // waits for the row, if the server is still at that commit
}

// savedBefore says why the fence did not let an attempt in: it had been saved before, or it has lost the task.
func (s *Store) savedBefore(ctx context.Context, f Fence) (Saved, error) {
	out, err := s.refused(ctx, Save{Fence: f})
	if err != nil {
		return Saved{}, err
	}
	return out[0], nil
}

// inTx runs f in a transaction with the guard, and then end, which commits it. f's own errors are marked: after them
// nothing was committed.
func (s *Store) inTx(ctx context.Context, limit time.Duration, f, end func(*pgx.Conn, pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &notCommitted{fmt.Errorf("acquire connection: %w", err), true}
	}
	defer conn.Release()
	tx, err := s.begin(ctx, conn, limit)
	if err != nil {
		tidy(ctx, conn.Conn(), err)
		return &notCommitted{err, passing[sqlState(err)] || sqlState(err) == ""}
	}
	if err := f(conn.Conn(), tx); err != nil {
		tidy(ctx, conn.Conn(), err)
		if isNotCommitted(err) {
			return err
		}
		return &notCommitted{err, passing[sqlState(err)]}
	}
	if err := end(conn.Conn(), tx); err != nil {
		tidy(ctx, conn.Conn(), err)
		return classifyCommit(err)
	}
	return nil
}

func commitOf(ctx context.Context) func(*pgx.Conn, pgx.Tx) error {
	return func(_ *pgx.Conn, tx pgx.Tx) error { return tx.Commit(ctx) }
}

// classifyCommit is classify for a COMMIT of its own. The driver calls a connection that broke while it waited for the
// answer "closed", and then says that nothing had been sent; so only the server's word counts.
func classifyCommit(err error) error {
	if sqlState(err) == "" {
		return err
	}
	return classify(err)
}

// begin opens a transaction with all its settings in one round trip.
func (s *Store) begin(ctx context.Context, conn *pgxpool.Conn, limit time.Duration) (pgx.Tx, error) {
	return conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginApply, s.lockTimeout, max(limit.Milliseconds(), 1))})
}

// claimIn claims in a transaction that goes on. The row is looked at only if somebody has the key: two round trips
// for a repeat, and the cheaper half of a claim for a new one.
func claimIn(ctx context.Context, tx pgx.Tx, claim Claim) (Claimed, error) {
	claims := []Claim{claim}
	x := inserting(claims)
	found, err := inBatch(ctx, tx, func(b *pgx.Batch) { x.queue(b); b.Queue(planFreely) }, x.read)
	if err == nil && found[0].Found == Taken {
		found, err = inBatch(ctx, tx, func(b *pgx.Batch) { b.Queue(planAgain); columnsOf(claims).queue(b); b.Queue(planFreely) },
			func(r pgx.BatchResults) ([]Claimed, error) {
				if _, err := r.Exec(); err != nil {
					return nil, err
				}
				return readClaims(r, claims)
			})
	}
	switch {
	case sqlState(err) == lockTimeoutState:
		return Claimed{}, errLocked
	case err != nil:
		return Claimed{}, err
	}
	return found[0], nil
}

// inBatch runs statements in one round trip of a transaction.
func inBatch[T any](ctx context.Context, tx pgx.Tx, fill func(*pgx.Batch), read func(pgx.BatchResults) (T, error)) (T, error) {
	b := &pgx.Batch{}
	fill(b)
	results := tx.SendBatch(ctx, b)
	out, err := read(results)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return out, err
}

// applyIn runs the work and then the save, whose fence the claim in the same transaction, or holdRow, has made sure.
func applyIn(ctx context.Context, conn *pgx.Conn, tx pgx.Tx, c Claimed, work Work) (Saved, error) {
	x, err := work(lent{tx}, c)
	if err == nil {
		err = leftOpen(conn.PgConn())
	}
	if err != nil {
		return Saved{}, &WorkError{err}
	}
	out, err := saveIn(ctx, tx, []Save{x})
	if err != nil {
		return Saved{}, err
	}
	return out[0], nil
}

// saveIn saves in a transaction that goes on.
func saveIn(ctx context.Context, tx pgx.Tx, saves []Save) ([]Saved, error) {
	group := savesOf(saves)
	return inBatch(ctx, tx, func(b *pgx.Batch) { b.Queue(planAgain); group.queue(b) }, func(r pgx.BatchResults) ([]Saved, error) {
		if _, err := r.Exec(); err != nil {
			return nil, err
		}
		return group.read(r)
	})
}

// lent is a transaction that its borrower cannot end.
type lent struct{ pgx.Tx }

var errLent = errors.New("the transaction is the engine's to end")

// Commit refuses.
func (lent) Commit(context.Context) error { return errLent }

// Rollback refuses.
func (lent) Rollback(context.Context) error { return errLent }

// leftOpen says why nothing can be added to the transaction: a statement failed and the work kept quiet about it, it
// ended the transaction behind our back, or it left rows unread.
func leftOpen(conn *pgconn.PgConn) error {
	switch {
	case conn.IsClosed():
		return errors.New("the connection is closed")
	case conn.IsBusy():
		return errors.New("rows of a query were left unread")
	case conn.TxStatus() == 'E':
		return errors.New("a statement failed and its error was dropped")
	case conn.TxStatus() != 'T':
		return errors.New("the transaction was ended by the job")
	}
	return nil
}
