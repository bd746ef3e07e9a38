package idemstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Save commits outcomes, each with its local rows and events, in one transaction: all or none.
//
// Errors: ErrLost when an attempt is no longer current (or, under the strict policy, its lease is over),
// ErrOtherExternalID when the row already has another id, or late proof that a final outcome does not name,
// *LocalRowsError when the database refused a handler's rows; in these three nothing of the call was written. Where
// the answer to COMMIT is lost, the rows are read again until it is known, and a save that did not arrive is made
// again under the same fence. Any other error means that ctx ended first and nobody knows; the caller stays silent.
//
// A save that had been made before is answered as if it were new. With more than one save an error says nothing
// about any single one: the caller goes one by one.
func (s *Store) Save(ctx context.Context, saves ...Save) ([]Saved, error) {
	if len(saves) == 0 {
		return nil, nil
	}
	var out []Saved
	err := again(ctx, func(ctx context.Context) (err error) {
		out, err = s.saveOnce(ctx, saves)
		return err
	})
	switch {
	case err == nil:
		return out, nil
	case sqlState(err) == fenceState && len(saves) == 1:
		return s.refused(ctx, saves[0])
	case sqlState(err) == fenceState:
		return nil, fmt.Errorf("save: %w", ErrLost)
	case isNotCommitted(err) && isLocalRows(err, saves):
		return nil, fmt.Errorf("save: %w", &LocalRowsError{err})
	case isNotCommitted(err):
		return nil, fmt.Errorf("save: %w", err)
	}
	if len(saves) > 1 {
		return nil, fmt.Errorf("save: %w", err)
	}
	return s.saveAgain(ctx, saves[0], err)
}

func (s *Store) saveOnce(ctx context.Context, saves []Save) (out []Saved, err error) {
	group := savesOf(saves)
	err = s.transact(ctx, func(b *pgx.Batch) {
		group.queue(b)
		queueVersions(b, saves)
		queueWrites(b, saves)
	}, func(r pgx.BatchResults) (err error) {
		if out, err = group.read(r); err != nil {
			return err
		}
		if err := readVersions(r, saves); err != nil {
			return err
		}
		return readWrites(r, saves)
	})
	return out, err
}

// queueWrites queues the local rows and events that commit with outcomes.
func queueWrites(b *pgx.Batch, saves []Save) {
	if hasWrites(saves) {
		b.Queue(planFreely)
	}
	for _, x := range saves {
		for _, w := range x.Writes {
			b.Queue(w.SQL, w.Args...)
		}
	}
	queueEmits(b, saves)
}

// args are the arguments of the save statement.
func (c *saveColumns) args() []any {
	return []any{c.ids, c.attempts, c.tokens, c.strict, c.statuses, c.applied, c.externalIDs,
		c.results, c.altered, c.providerStatuses, c.answers, c.lastErrors, c.errorClasses, c.evidence,
		c.absentNow, c.clearAbsent, c.costs, c.maxFailures, c.delays, c.settles,
		c.retentions, c.reasons, c.traces, c.causes, c.actors}
}

// readWrites reads the answers to a group's local rows and events. A refusal there is the handler's, unlike one
// of the save itself.
func readWrites(r pgx.BatchResults, saves []Save) error {
	if hasWrites(saves) {
		if _, err := r.Exec(); err != nil {
			return err
		}
	}
	statements := 0
	for _, x := range saves {
		statements += len(x.Writes)
	}
	if hasEmits(saves) {
		statements++
	}
	for range statements {
		if _, err := r.Exec(); err != nil {
			return &localRows{err}
		}
	}
	return nil
}

func hasWrites(saves []Save) bool {
	return slices.ContainsFunc(saves, func(s Save) bool { return len(s.Writes) > 0 })
}

// localRows marks an error as being about a handler's own statement.
type localRows struct{ err error }

func (e *localRows) Error() string { return e.err.Error() }
func (e *localRows) Unwrap() error { return e.err }

// refusals are the classes of SQLSTATEs that speak of a statement and its data, so that no repetition helps.
var refusals = map[string]bool{
	"21": true, // one row twice, or several where one is asked for
	"22": true, // data exceptions
	"23": true, // constraints
	"44": true, // check option of a view
	"54": true, // too long for an index, too many columns
	"P0": true, // raised by a trigger or function
}

// isLocalRows reports whether a handler's statement was refused for what it says, or could not be sent at all. The
// driver prepares a whole batch before it runs, so a mistake in a statement (class 42) does not say whose it is;
// ours have none.
func isLocalRows(err error, saves []Save) bool {
	var local *localRows
	state := sqlState(err)
	if strings.HasPrefix(state, "42") {
		return hasWrites(saves)
	}
	return errors.As(err, &local) && (state == "" || refusals[state[:2]])
}

// saveAgain finds out what became of a save that may have been committed, and makes it again if it was not.
func (s *Store) saveAgain(ctx context.Context, x Save, cause error) ([]Saved, error) {
	t, err := s.FindByID(ctx, x.TaskID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("save: read again after %w: %w", cause, err)
	case t.Fence != x.Fence:
		return nil, fmt.Errorf("save: %w", ErrLost)
	case t.Status != Started:
		return savedAs(t), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("save: %w: %w", context.Cause(ctx), cause)
	}
	if err := s.encodable(ctx, x.Writes); err != nil {
		return nil, fmt.Errorf("save: %w", err)
	}
	return s.Save(ctx, x)
}

// encodable returns *LocalRowsError for a handler's statement with arguments that the driver cannot encode. That
// looks like a broken connection, because the driver breaks off in the middle of a batch.
func (s *Store) encodable(ctx context.Context, writes []Statement) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	for _, w := range writes {
		if err := encode(ctx, conn.Conn(), w.SQL, w.Args); err != nil {
			return err
		}
	}
	return nil
}

// encode does what the driver does before it sends a statement.
func encode(ctx context.Context, conn *pgx.Conn, sql string, args []any) (err error) {
	if len(args) > 0 {
		if r, ok := args[0].(pgx.QueryRewriter); ok {
			if sql, args, err = r.RewriteQuery(ctx, conn, sql, args[1:]); err != nil {
				return &LocalRowsError{err}
			}
		}
	}
	statement, err := conn.PgConn().Prepare(ctx, "", sql, nil)
	if err != nil {
		return fmt.Errorf("look at local rows: %w", err)
	}
	var b pgx.ExtendedQueryBuilder
	if err := b.Build(conn.TypeMap(), statement, args); err != nil {
		return &LocalRowsError{err}
	}
	return nil
}

// refused says why the fence refused a save: it had been made before, the row has another external id, or the
// attempt has lost the task.
func (s *Store) refused(ctx context.Context, x Save) ([]Saved, error) {
	t, err := s.FindByID(ctx, x.TaskID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("save: refused, and then: %w", err)
	case t.Fence == x.Fence && t.Status != Started:
		return savedAs(t), nil
	case t.Fence == x.Fence && (t.otherID(clean(x.ExternalID)) || x.Status.Final() && x.ExternalID == "" && t.EvidenceID != ""):
		return nil, fmt.Errorf("save: %w", ErrOtherExternalID)
	}
	return nil, fmt.Errorf("save: %w", ErrLost)
}

// otherID reports whether the row knows another id of the effect, its own or late proof.
func (t Task) otherID(id string) bool {
	known := t.ExternalID
	if known == "" {
		known = t.EvidenceID
	}
	return id != "" && known != "" && known != id
}

// savedAs answers for a save that was found on the row. Only this attempt can have made it: the token is its own.
func savedAs(t Task) []Saved {
	return []Saved{{Status: t.Status, Cause: t.Cause, Failures: t.Failures, Wait: max(t.NextAttemptAt.Sub(t.UpdatedAt), 0)}}
}

func scanSaved(row pgx.CollectableRow) (Saved, error) {
	var (
		held bool
		out  Saved
		wait int64
	)
	err := row.Scan(&held, &out.Status, &out.Cause, &out.Failures, &wait)
	out.Wait = max(microsecondsOf(&wait), 0)
	return out, err
}

// saveColumns are saves as the arrays that the statement takes.
type saveColumns struct {
	ids                                              []int64
	attempts, costs, maxFailures                     []int32
	tokens                                           []pgtype.UUID
	strict, applied, altered, absentNow, clearAbsent []bool
	statuses                                         []string
	externalIDs, results, answers, lastErrors        []*string
	errorClasses, evidence, reasons                  []*string
	providerStatuses                                 []*int32
	delays, retentions                               []int64
	settles                                          []*int64
	traces                                           []string
	causes                                           []*string
	actors                                           []string
}

func saveColumnsOf(saves []Save, positions []int) *saveColumns {
	c := &saveColumns{}
	for _, p := range positions {
		x := &saves[p]
		c.ids, c.attempts, c.tokens = append(c.ids, x.TaskID), append(c.attempts, int32(x.Attempt)), append(c.tokens, tokenOf(x.Token))
		c.strict, c.applied = append(c.strict, x.Strict), append(c.applied, x.MayBeApplied)
		c.statuses, c.externalIDs = append(c.statuses, string(x.Status)), append(c.externalIDs, orNull(clean(x.ExternalID)))
		c.results, c.altered = append(c.results, orNull(clean(string(x.Result)))), append(c.altered, x.ResultAltered)
		c.providerStatuses = append(c.providerStatuses, orNull(int32(x.ProviderStatus)))
		c.answers, c.lastErrors = append(c.answers, orNull(clean(x.Answer))), append(c.lastErrors, orNull(clean(x.LastError)))
		c.errorClasses, c.evidence = append(c.errorClasses, orNull(clean(x.ErrorClass))), append(c.evidence, orNull(clean(x.EvidenceID)))
		c.absentNow, c.clearAbsent = append(c.absentNow, x.AbsentNow), append(c.clearAbsent, x.ClearAbsent)
		c.costs, c.maxFailures = append(c.costs, int32(x.Cost)), append(c.maxFailures, int32(x.MaxFailures))
		c.delays, c.settles = append(c.delays, x.Delay.Microseconds()), append(c.settles, orNull(x.Settle.Microseconds()))
		c.retentions = append(c.retentions, x.Retention.Microseconds())
		c.reasons, c.traces = append(c.reasons, orNull(clean(x.Reason))), append(c.traces, clean(x.Trace))
		c.causes = append(c.causes, orNull(string(x.Cause)))
		c.actors = append(c.actors, actorOf(x.Actor))
	}
	return c
}

// SaveExternalID stores the provider's id under the fence, in a commit of its own. Where the attempt has lost
// the task, or the row has another id, the id stays on the row as evidence and the error is ErrLost or
// ErrOtherExternalID; it is both where the task is over and its outcome names another effect, or none. Repeating it is
// harmless, so it is repeated after a lost answer.
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
	case t.Status.Final() && t.ExternalID != clean(id):
		return fmt.Errorf("save external id: %w: %w", ErrLost, ErrOtherExternalID)
	}
	return fmt.Errorf("save external id: %w", ErrLost)
}

// externalID runs the statement. It may be repeated whatever happened to the answer.
func (s *Store) externalID(ctx context.Context, f Fence, id, trace string) (stored bool, err error) {
	err = again(ctx, func(ctx context.Context) error {
		var there bool
		err := s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(saveExternalID, f.TaskID, f.Attempt, f.Token, clean(id), traceID(trace))
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
	return clean(parts[1])
}

// clean replaces what a text column cannot hold: NUL and bad UTF-8. Callers clean and bound what they store; this is
// the last line, for an outcome that cannot be saved would be worked on again and again.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}
