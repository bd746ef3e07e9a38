package idemstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Save commits outcomes, each with its local rows and events, in one transaction: all or none.
//
// Errors: ErrLost when an attempt is no longer current (or, under the strict policy, its lease is over),
// ErrOtherExternalID when the row already has another id, *LocalRowsError when the database refused a
// handler's rows; in these three nothing of the call was written. Where the answer to COMMIT is lost, the rows
// are read again until it is known, and a save that did not arrive is made again under the same fence. Any
// other error means that ctx ended first and nobody knows; the caller stays silent.
//
// With more than one save the first error concerns one member and the caller goes one by one.
func (s *Store) Save(ctx context.Context, saves ...Save) ([]Saved, error) {
	var out []Saved
	err := again(ctx, func(ctx context.Context) (err error) {
		out, err = s.saveOnce(ctx, saves)
		return err
	})
	switch {
	case err == nil:
		return out, nil
	case sqlState(err) == fenceState && len(saves) == 1:
		return nil, s.whyRefused(ctx, saves[0])
	case sqlState(err) == fenceState:
		return nil, fmt.Errorf("save: %w", ErrLost)
	case isNotCommitted(err) && isLocalRows(err, saves):
		return nil, fmt.Errorf("save: %w", &LocalRowsError{err})
	case isNotCommitted(err):
		return nil, fmt.Errorf("save: %w", err)
	}
	return s.saveAgain(ctx, saves, err)
}

func (s *Store) saveOnce(ctx context.Context, saves []Save) (out []Saved, err error) {
	err = s.transact(ctx, func(b *pgx.Batch) {
		queueSaves(b, saves)
	}, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		if out, err = pgx.CollectRows(rows, scanSaved); err != nil {
			return err
		}
		return readWrites(r, saves)
	})
	return out, err
}

func queueSaves(b *pgx.Batch, saves []Save) {
	c := saveColumnsOf(saves)
	b.Queue(save, c.ids, c.attempts, c.tokens, c.strict, c.statuses, c.applied, c.externalIDs,
		c.results, c.altered, c.providerStatuses, c.answers, c.lastErrors, c.errorClasses, c.evidence,
		c.absentNow, c.clearAbsent, c.costs, c.maxFailures, c.delays, c.settles,
		c.retentions, c.reasons, c.traces)
	for _, x := range saves {
		for _, w := range x.Writes {
			b.Queue(w.SQL, w.Args...)
		}
		for _, e := range x.Emits {
			b.Queue(emit, x.TaskID, e.Subject, e.Key, e.Payload, e.Trace)
		}
	}
}

// readWrites reads the answers to a group's local rows and events. A refusal there is the handler's, unlike one
// of the save itself.
func readWrites(r pgx.BatchResults, saves []Save) error {
	for _, x := range saves {
		for range len(x.Writes) + len(x.Emits) {
			if _, err := r.Exec(); err != nil {
				return &localRows{err}
			}
		}
	}
	return nil
}

// localRows marks an error as the answer to a handler's own statement.
type localRows struct{ err error }

func (e *localRows) Error() string { return e.err.Error() }
func (e *localRows) Unwrap() error { return e.err }

// isLocalRows reports whether a handler's statement was refused for what it says: data exceptions (class 22),
// constraints (23), and mistakes in the statement itself (42). The driver prepares a whole batch before it runs,
// so a mistake does not say whose it is; ours have none.
func isLocalRows(err error, saves []Save) bool {
	var local *localRows
	switch state := sqlState(err); {
	case strings.HasPrefix(state, "22"), strings.HasPrefix(state, "23"):
		return errors.As(err, &local)
	case strings.HasPrefix(state, "42"):
		return slices.ContainsFunc(saves, func(s Save) bool { return len(s.Writes) > 0 })
	}
	return false
}

// saveAgain finds out what became of saves that may have been committed, and makes them again if they were not.
func (s *Store) saveAgain(ctx context.Context, saves []Save, cause error) ([]Saved, error) {
	out := make([]Saved, len(saves))
	var left []Save
	for i, x := range saves {
		t, err := s.FindByID(ctx, x.TaskID)
		switch {
		case err != nil:
			return nil, fmt.Errorf("save: read again after %w: %w", cause, err)
		case t.Fence != x.Fence:
			return nil, fmt.Errorf("save: %w", ErrLost)
		case t.Status == Started:
			left = append(left, x)
		default:
			out[i] = Saved{Status: t.Status, Failures: t.Failures, Wait: x.Delay}
		}
	}
	if len(left) == 0 {
		return out, nil
	}
	if len(left) < len(saves) {
		return nil, fmt.Errorf("save: a group was committed in part, which cannot be: %w", cause)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("save: %w: %w", context.Cause(ctx), cause)
	}
	return s.Save(ctx, saves...)
}

// whyRefused tells a lost attempt from a second external id.
func (s *Store) whyRefused(ctx context.Context, x Save) error {
	t, err := s.FindByID(ctx, x.TaskID)
	if err != nil {
		return fmt.Errorf("save: refused, and then: %w", err)
	}
	if t.Fence == x.Fence && t.Status == Started && x.ExternalID != "" && t.ExternalID != "" && t.ExternalID != x.ExternalID {
		return fmt.Errorf("save: %w", ErrOtherExternalID)
	}
	return fmt.Errorf("save: %w", ErrLost)
}

func scanSaved(row pgx.CollectableRow) (Saved, error) {
	var (
		held bool
		out  Saved
		wait int64
	)
	err := row.Scan(&held, &out.Status, &out.Failures, &wait)
	out.Wait = max(microsecondsOf(&wait), 0)
	return out, err
}

// saveColumns are saves as the arrays that the statement takes.
type saveColumns struct {
	ids                                              []int64
	attempts, costs, maxFailures                     []int32
	tokens                                           []uuid.UUID
	strict, applied, altered, absentNow, clearAbsent []bool
	statuses                                         []string
	externalIDs, results, answers, lastErrors        []*string
	errorClasses, evidence, reasons                  []*string
	providerStatuses                                 []*int32
	delays, retentions                               []int64
	settles                                          []*int64
	traces                                           []string
}

func saveColumnsOf(saves []Save) *saveColumns {
	c := &saveColumns{}
	for _, x := range saves {
		c.ids, c.attempts, c.tokens = append(c.ids, x.TaskID), append(c.attempts, int32(x.Attempt)), append(c.tokens, x.Token)
		c.strict, c.applied = append(c.strict, x.Strict), append(c.applied, x.MayBeApplied)
		c.statuses, c.externalIDs = append(c.statuses, string(x.Status)), append(c.externalIDs, orNull(x.ExternalID))
		c.results, c.altered = append(c.results, orNull(string(x.Result))), append(c.altered, x.ResultAltered)
		c.providerStatuses = append(c.providerStatuses, orNull(int32(x.ProviderStatus)))
		c.answers, c.lastErrors = append(c.answers, orNull(x.Answer)), append(c.lastErrors, orNull(x.LastError))
		c.errorClasses, c.evidence = append(c.errorClasses, orNull(x.ErrorClass)), append(c.evidence, orNull(x.EvidenceID))
		c.absentNow, c.clearAbsent = append(c.absentNow, x.AbsentNow), append(c.clearAbsent, x.ClearAbsent)
		c.costs, c.maxFailures = append(c.costs, int32(x.Cost)), append(c.maxFailures, int32(x.MaxFailures))
		c.delays, c.settles = append(c.delays, x.Delay.Microseconds()), append(c.settles, orNull(x.Settle.Microseconds()))
		c.retentions = append(c.retentions, x.Retention.Microseconds())
		c.reasons, c.traces = append(c.reasons, orNull(x.Reason)), append(c.traces, x.Trace)
	}
	return c
}

// SaveExternalID stores the provider's id under the fence, in a commit of its own. Where the attempt has lost
// the task, or the row has another id, the id stays on the row as evidence and the error is ErrLost or
// ErrOtherExternalID. Repeating it is harmless, so it is repeated after a lost answer.
func (s *Store) SaveExternalID(ctx context.Context, f Fence, id, trace string) error {
	stored, err := s.externalID(ctx, f, id, trace)
	if err != nil {
		return fmt.Errorf("save external id: %w", err)
	}
	if stored {
		return nil
	}
	t, err := s.FindByID(ctx, f.TaskID)
	switch {
	case err != nil:
		return fmt.Errorf("save external id: %w", err)
	case t.Fence == f && t.Status == Started:
		return fmt.Errorf("save external id: %w", ErrOtherExternalID)
	}
	return fmt.Errorf("save external id: %w", ErrLost)
}

// externalID runs the statement. It may be repeated whatever happened to the answer.
func (s *Store) externalID(ctx context.Context, f Fence, id, trace string) (stored bool, err error) {
	err = again(ctx, func(ctx context.Context) error {
		var there bool
		err := s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(saveExternalID, f.TaskID, f.Attempt, f.Token, id, traceID(trace))
		}, func(r pgx.BatchResults) error { return r.QueryRow().Scan(&stored, &there) })
		if err == nil && !there {
			return ErrNotFound
		}
		return repeatable(err)
	})
	return stored, err
}

// repeatable lets an idempotent transaction be run again even when its COMMIT may have gone through.
func repeatable(err error) error {
	var pg *pgconn.PgError
	if err == nil || isNotCommitted(err) || errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" {
		return err
	}
	return &notCommitted{err, true}
}

// traceID takes the trace id out of a traceparent.
func traceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) != 4 {
		return ""
	}
	return parts[1]
}
