package idemstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrChanged: an act was refused. The task is not as it was shown any more, or its state does not allow the act.
// Nothing was written.
var ErrChanged = errors.New("task has changed since it was looked at, or its state does not allow this")

// Shown is what somebody saw before they acted. An act is refused unless the row still says the same.
type Shown struct {
	TaskID   int64
	Status   Status
	Attempts int
}

// Shown is the task as it is compared by an act.
func (t Task) Shown() Shown { return Shown{t.TaskID, t.Status, t.Attempt} }

// By says who acts, and why. Both are for the audit, which keeps them for ever.
type By struct {
	Actor  string
	Reason string
	Trace  string // traceparent of the act; may be empty
}

// Resolution is a final outcome that no attempt brings.
type Resolution struct {
	To             Status // Finished or Failed
	ExternalID     string // write-once: a different one on the row is refused with ErrOtherExternalID
	Result         []byte // JSON, bounded and cleaned by the caller; what is replayed from now on
	ResultAltered  bool
	ProviderStatus int
	Answer         string
	LastError      string
	ErrorClass     string
	Retention      time.Duration // when the heavy columns may be archived

	// Force cuts off an attempt whose lease is live. Whatever it has sent stays sent.
	Force bool
	// Unsent demands that nothing can have left: the task is released, or needs review and nothing was sent.
	// Without it a released task is refused.
	Unsent bool

	Applied *Entity // the version that its effect has brought to its entity; nil: none
	Writes  []Statement
	Emits   []Emit
}

// Resolve makes a task final that is unknown, needs review, or is started with a lease that has run out, and commits the
// kind's rows and events with it. The attempt number goes up and the token is fresh, so that no attempt that is still at
// work can save over it. It returns the task as it left it.
//
// Errors: ErrChanged when the task is not as shown or its state forbids it, ErrOtherExternalID, *LocalRowsError when the
// database refused the kind's rows, ErrNotFound; in these nothing was written. After a lost answer to COMMIT the row is
// read again; any other error means that ctx ended first and nobody knows.
func (s *Store) Resolve(ctx context.Context, shown Shown, by By, r Resolution) (Task, error) {
	if !r.To.Final() {
		return Task{}, fmt.Errorf("resolve: %s is not a final status", r.To)
	}
	a := newAct(shown, by, resolveTask, string(r.To), orNull(clean(r.ExternalID)), orNull(clean(string(r.Result))), r.ResultAltered,
		orNull(int32(r.ProviderStatus)), orNull(clean(r.Answer)), orNull(clean(r.LastError)), orNull(clean(r.ErrorClass)),
		r.Retention.Microseconds(), r.Force, r.Unsent)
	a.externalID = clean(r.ExternalID)
	a.rides.Applied, a.rides.Writes, a.rides.Emits = r.Applied, r.Writes, r.Emits
	return s.act(ctx, "resolve", a)
}

// Another is the content of another message with the task's key.
type Another struct {
	Payload       []byte // exact bytes
	Hash          []byte
	HashAlgorithm string
	Refs          []Ref         // its search terms; those of before stay
	MaxAge        time.Duration // the task's new age limit
}

// RetryTo is what a retried task may do.
type RetryTo struct {
	MaxAge time.Duration // its new age limit
	// ResendOnce permits one resend that does not rest on the provider's key. It is for a task that needs review or is
	// unknown without such a permission, that may have been sent, and of which no external id is known; others are refused.
	ResendOnce bool
}

// Retry lets a task that needs review, or has failed, be attempted once more, due now, with its budget given back. What
// may have been sent before makes it Unknown, so that the provider is asked first; so does having failed. Otherwise it
// is Started and released. A task that was done at the provider and only needs its local rows is refused: use Resolve.
//
// The errors are those of Resolve.
func (s *Store) Retry(ctx context.Context, shown Shown, by By, r RetryTo) (Task, error) {
	return s.act(ctx, "retry", newAct(shown, by, retryTask, r.MaxAge.Microseconds(), r.ResendOnce))
}

// Supersede replaces the content of a task that needs review and of which nothing can have left, and releases it, due
// now, with its budget given back. The key stays; the caller makes sure that the content has it.
//
// The errors are those of Resolve.
func (s *Store) Supersede(ctx context.Context, shown Shown, by By, x Another) (Task, error) {
	names, values := make([]string, len(x.Refs)), make([]string, len(x.Refs))
	for i, r := range x.Refs {
		names[i], values[i] = clean(r.Name), clean(r.Value)
	}
	return s.act(ctx, "supersede", newAct(shown, by, supersedeTask, x.MaxAge.Microseconds(), x.Payload, x.Hash, x.HashAlgorithm, names, values))
}

// Note adds one line to the audit of a task, whatever its status, and changes nothing else. externalID is evidence and
// may be empty. It is repeated until it is known to be committed or ctx ends.
func (s *Store) Note(ctx context.Context, taskID int64, by By, externalID string) error {
	begun, err := query(ctx, s, pgx.RowTo[time.Time], moment)
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	err = again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(noteTask, taskID, begun[0], clean(by.Actor), clean(by.Reason), orNull(clean(externalID)), clean(by.Trace))
		}, func(r pgx.BatchResults) error {
			_, err := r.Exec()
			return err
		}))
	})
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}

// act is one act, ready to be run as often as it takes.
type act struct {
	shown      Shown
	token      uuid.UUID // whose the row is afterwards
	sql        string
	args       []any
	externalID string
	rides      Save // local rows and events
}

func newAct(shown Shown, by By, sql string, args ...any) act {
	token := uuid.New()
	common := []any{shown.TaskID, string(shown.Status), int32(shown.Attempts), token, clean(by.Actor), clean(by.Reason), clean(by.Trace)}
	return act{shown: shown, token: token, sql: sql, args: append(common, args...), rides: Save{Fence: Fence{TaskID: shown.TaskID}}}
}

// act runs an act until it is known what became of it.
func (s *Store) act(ctx context.Context, name string, a act) (Task, error) {
	var out Task
	err := again(ctx, func(ctx context.Context) (err error) {
		out, err = s.actOnce(ctx, a)
		return err
	})
	switch {
	case err == nil:
		return out, nil
	case sqlState(err) == fenceState:
		return s.notAsShown(ctx, name, a)
	case isNotCommitted(err) && isLocalRows(err, []Save{a.rides}):
		return Task{}, fmt.Errorf("%s: %w", name, &LocalRowsError{err})
	case isNotCommitted(err):
		return Task{}, fmt.Errorf("%s: %w", name, err)
	}
	return s.actAgain(ctx, name, a, err)
}

func (s *Store) actOnce(ctx context.Context, a act) (out Task, err error) {
	rides := []Save{a.rides}
	err = s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(a.sql, a.args...)
		b.Queue(actDone, a.shown.TaskID, a.token)
		queueVersions(b, rides)
		queueWrites(b, rides)
	}, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		tasks, err := pgx.CollectRows(rows, scanTask)
		if err != nil {
			return err
		}
		if _, err := r.Exec(); err != nil {
			return err
		}
		if len(tasks) > 0 {
			out = tasks[0]
		}
		if err := readVersions(r, rides); err != nil {
			return err
		}
		return readWrites(r, rides)
	})
	return out, err
}

// notAsShown says why an act was refused, or that it had been done before its answer was lost.
func (s *Store) notAsShown(ctx context.Context, name string, a act) (Task, error) {
	t, err := s.FindByID(ctx, a.shown.TaskID)
	switch {
	case err != nil:
		return Task{}, fmt.Errorf("%s: refused, and then: %w", name, err)
	case t.Token == a.token:
		return t, nil
	case t.Shown() == a.shown && t.otherID(a.externalID):
		return Task{}, fmt.Errorf("%s: %w", name, ErrOtherExternalID)
	}
	return Task{}, fmt.Errorf("%s: %w", name, ErrChanged)
}

// actAgain finds out what became of an act whose COMMIT was not answered, and does it again if it was not done.
func (s *Store) actAgain(ctx context.Context, name string, a act, cause error) (Task, error) {
	t, err := s.FindByID(ctx, a.shown.TaskID)
	switch {
	case err != nil:
		return Task{}, fmt.Errorf("%s: read again after %w: %w", name, cause, err)
	case t.Token == a.token:
		return t, nil
	case t.Shown() != a.shown:
		return Task{}, fmt.Errorf("%s: %w", name, ErrChanged)
	case ctx.Err() != nil:
		return Task{}, fmt.Errorf("%s: %w: %w", name, context.Cause(ctx), cause)
	}
	if err := s.encodable(ctx, a.rides.Writes); err != nil {
		return Task{}, fmt.Errorf("%s: %w", name, err)
	}
	return s.act(ctx, name, a)
}
