package idemstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sethvargo/go-retry"
)

// SQLSTATEs that are told apart here.
const (
	fenceState       = "ST001" // settle.fence
	lockTimeoutState = "55P03"
	readOnlyState    = "25006"
	canceledState    = "57014" // a statement took longer than it may
)

// passing are the SQLSTATEs after which the same statements may succeed a moment later.
var passing = map[string]bool{
	"40001":          true, // serialization failure
	"40P01":          true, // deadlock
	lockTimeoutState: true,
	readOnlyState:    true, // the connection leads to a server that was demoted; it is dropped
	"53300":          true, // too many connections
	"57P03":          true, // the server is starting up or shutting down
	"26000":          true, // a pooler lost the prepared statement
	"0A000":          true, // cached plan must not change result type: a column was added
}

// notCommitted marks an error after which the transaction surely was not committed, and says whether the same
// statements are likely to pass a moment later.
type notCommitted struct {
	err     error
	passing bool
}

func (e *notCommitted) Error() string { return e.err.Error() }
func (e *notCommitted) Unwrap() error { return e.err }

// classify tells errors that the server answered, or that came before anything was sent, from all others,
// after which the transaction may or may not have been committed. An error of severity FATAL ends the
// connection and can come in place of the answer to a COMMIT that went through, so it proves nothing.
func classify(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.SeverityUnlocalized != "FATAL" && pg.SeverityUnlocalized != "PANIC":
		return &notCommitted{err, passing[pg.Code]}
	case pgconn.SafeToRetry(err):
		return &notCommitted{err, true}
	}
	return err
}

// classifyRead is classify for statements that only read: they may be repeated after any broken connection, also
// one that the server ended with a last word (class 57: shut down, crashed, idle for too long).
func classifyRead(err error) error {
	var pg *pgconn.PgError
	if err == nil || errors.Is(err, pgx.ErrNoRows) || errors.As(err, &pg) && !passing[pg.Code] && !strings.HasPrefix(pg.Code, "57P") {
		return err
	}
	return &notCommitted{err, true}
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func isNotCommitted(err error) bool {
	var nc *notCommitted
	return errors.As(err, &nc)
}

// Bounds of re-running SQL. Who waits longer than this is better served by a redelivery.
const (
	retryBase = 10 * time.Millisecond
	retryCap  = 500 * time.Millisecond
	retryMax  = 8
)

// backoff is a fresh schedule: a go-retry backoff keeps state, so each operation makes its own.
func backoff() retry.Backoff {
	b := retry.WithFullJitter(retry.NewExponential(retryBase))
	return retry.WithMaxRetries(retryMax, retry.WithCappedDuration(retryCap, b))
}

// again runs f until it succeeds, fails for good, or has failed retryMax times more. It returns the error of f,
// or the cause of ctx when that ends first.
func again(ctx context.Context, f func(context.Context) error) error {
	return retry.Do(ctx, backoff(), func(ctx context.Context) error {
		err := f(ctx)
		var nc *notCommitted
		if errors.As(err, &nc) && nc.passing {
			return retry.RetryableError(err)
		}
		return err
	})
}
