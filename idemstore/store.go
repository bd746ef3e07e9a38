package idemstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store is the idempotency table behind a pool. It is safe for concurrent use and keeps no state of its own:
// no map in memory decides anything.
type Store struct {
	pool        *pgxpool.Pool
	lockTimeout string // milliseconds
}

// maxLockTimeout bounds how long a statement waits for a row lock.
const maxLockTimeout = time.Second

// New returns a store on a pool that the caller keeps and closes; it does no I/O. lease is the shortest lease that will be
// claimed: no statement waits for a lock longer than a third of it, or than one second. 0 is for who claims nothing.
func New(pool *pgxpool.Pool, lease time.Duration) *Store {
	wait := maxLockTimeout
	if lease > 0 {
		wait = min(wait, lease/3)
	}
	return &Store{pool: pool, lockTimeout: strconv.FormatInt(max(wait.Milliseconds(), 1), 10)}
}

// transact runs the queued statements and the commit in one flush. read consumes the results of exactly the
// statements that fill queued.
//
// An error marked notCommitted means what it says; any other error leaves open whether it was committed.
func (s *Store) transact(ctx context.Context, fill func(*pgx.Batch), read func(pgx.BatchResults) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &notCommitted{fmt.Errorf("acquire connection: %w", err), true}
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(beginTx)
	b.Queue(guardTx, s.lockTimeout)
	fill(b)
	b.Queue(commitTx)

	results, err := send(ctx, conn, b)
	if err != nil {
		return &notCommitted{&localRows{err}, false}
	}
	begun, err := readAll(results, read)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		return nil
	}
	unsent := !begun && !conn.Conn().IsClosed() && sqlState(err) == "" && !pgconn.SafeToRetry(err)
	tidy(ctx, conn.Conn(), err)
	if unsent { // the driver refused to send a statement, and the store's own are always the same
		return &notCommitted{&localRows{err}, false}
	}
	return classify(err)
}

// send queues a batch with the driver. A panic there is one of a handler's own types, which the driver asks how it is
// written; it comes before the commit is queued. The connection is broken then, and its release closes it.
func send(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) (results pgx.BatchResults, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("an argument panicked when it was encoded (%T)", p)
		}
	}()
	return conn.SendBatch(ctx, b), nil
}

// readAll reads the answers to begin and guard, then the caller's, then the commit's. An error at the commit comes
// from a constraint that is checked there; only a handler's tables have such.
func readAll(results pgx.BatchResults, read func(pgx.BatchResults) error) (begun bool, err error) {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return begun, err
		}
		begun = true
	}
	if err := read(results); err != nil {
		return begun, err
	}
	tag, err := results.Exec()
	switch {
	case err != nil:
		return begun, &localRows{err}
	case tag.String() != "COMMIT":
		return begun, fmt.Errorf("commit: the server answered %s", tag)
	}
	return begun, nil
}

// tidy leaves the connection usable, or closes it: one that met a read-only server would meet it again.
func tidy(ctx context.Context, conn *pgx.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if sqlState(err) == readOnlyState {
		_ = conn.Close(ctx)
		return
	}
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		if _, err := conn.Exec(ctx, "rollback"); err != nil {
			_ = conn.Close(ctx)
		}
	}
}

// query runs one read-only statement, again if the connection breaks: reading twice is harmless.
func query[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var out []T
	err := again(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, sql, args...)
		if err == nil {
			out, err = pgx.CollectRows(rows, scan)
		}
		return classifyRead(err)
	})
	return out, err
}

// microseconds is an interval as bigint microseconds.
func microseconds(interval string) string {
	return `(extract(epoch from ` + interval + `) * 1000000)::bigint`
}

// ages are the columns of an Age of a row expression: all by the clock of the database, at this moment. A reading of
// "absent" less than a second ago has not been seen: one that follows it so closely would be its echo.
func ages(row string) string {
	return microseconds(`clock_timestamp() - `+row+`.first_sent_at`) + `, ` +
		microseconds(`clock_timestamp() - `+row+`.last_sent_by`) + `, ` +
		`coalesce(` + row + `.absent_at <= clock_timestamp() - interval '1 second', false)`
}
