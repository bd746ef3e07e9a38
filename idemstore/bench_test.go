package idemstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

// soon is far more than anything here needs, and short enough for somebody who waits for a failure.
const soon = 30 * time.Second

const (
	kind  = "test.pay"
	week  = 7 * 24 * time.Hour
	trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// bench is a database of its own and a store on it.
type bench struct {
	*idemstore.Store
	pool *pgxpool.Pool
}

func newBench(t *testing.T) bench {
	t.Helper()
	pool := devtest.Pool(t)
	return bench{idemstore.New(pool, time.Minute), pool}
}

// newPool returns a pool of one connection, or as many as given, and closes it after the test.
func newPool(t *testing.T, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// claimOf is the claim that a message with a new key makes.
func claimOf(key string) idemstore.Claim {
	payload := []byte(`{"order":"` + key + `"}`)
	hash := sha256.Sum256(payload)
	return idemstore.Claim{
		Kind: kind, Key: key, Token: uuid.New(), Payload: payload, Hash: hash[:], HashAlgorithm: "v1",
		Provider: "provider-a", ProviderKey: "pay_" + key,
		Origin: idemstore.Origin{Stream: "JOBS", Sequence: 7, Stored: time.Unix(1_700_000_000, 123_456_789)},
		Trace:  trace, Lease: time.Minute, MaxAge: time.Hour, MaxFailures: 5,
	}
}

// claim runs one claim that must succeed.
func (b bench) claim(t *testing.T, c idemstore.Claim) idemstore.Claimed {
	t.Helper()
	found, err := b.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Fatalf("%d answers to one claim", len(found))
	}
	return found[0]
}

// expect runs one claim that must find what is given.
func (b bench) expect(t *testing.T, want idemstore.Found, c idemstore.Claim) idemstore.Claimed {
	t.Helper()
	got := b.claim(t, c)
	if got.Found != want {
		t.Fatalf("claim found %q, want %q", got.Found, want)
	}
	return got
}

// performing returns the fence of the first attempt at a new key.
func (b bench) performing(t *testing.T, key string) idemstore.Fence {
	t.Helper()
	return b.expect(t, idemstore.Inserted, claimOf(key)).Task.Fence
}

// asking returns the fence of a second attempt, which took over from one that died while it was sending.
func (b bench) asking(t *testing.T, key string) idemstore.Fence {
	t.Helper()
	b.expire(t, b.performing(t, key).TaskID)
	return b.expect(t, idemstore.Ask, claimOf(key)).Task.Fence
}

// set changes a row by hand. The assignments are SQL.
func (b bench) set(t *testing.T, id int64, assignments string) {
	t.Helper()
	b.exec(t, `update settle.tasks set `+assignments+` where id = $1`, id)
}

func (b bench) expire(t *testing.T, id int64) {
	t.Helper()
	b.set(t, id, `lease_until = clock_timestamp() - interval '1 second'`)
}

func (b bench) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (b bench) task(t *testing.T, id int64) idemstore.Task {
	t.Helper()
	task, err := b.FindByID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// row is a whole row of settle.tasks as text, to see that nothing of it changed.
func (b bench) row(t *testing.T, id int64) string {
	t.Helper()
	return query[string](t, b.pool, `select t::text from settle.tasks t where id = $1`, id)
}

func (b bench) reasons(t *testing.T, id int64) []string {
	t.Helper()
	events, err := b.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		out = append(out, e.Reason)
	}
	return out
}

// query reads one value.
func query[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var out T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// hold opens a transaction that has run a statement, and returns what ends it.
func hold(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (commit func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // does nothing after a commit
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// lock holds a task's row.
func (b bench) lock(t *testing.T, id int64) (unlock func()) {
	t.Helper()
	return hold(t, b.pool, `select from settle.tasks where id = $1 for update`, id)
}

// awaitWaiting waits until so many sessions of this database wait for a lock.
func (b bench) awaitWaiting(t *testing.T, sessions int) {
	t.Helper()
	rig.Eventually(t, soon, "sessions wait for a lock", func() bool {
		return query[int](t, b.pool, `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`) == sessions
	})
}

// async runs f and returns the channel of its result.
func async[T any](f func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		v, err := f()
		done <- result[T]{v, err}
	}()
	return done
}

type result[T any] struct {
	value T
	err   error
}

// finished is a save of a done effect.
func finished(f idemstore.Fence) idemstore.Save {
	return idemstore.Save{Fence: f, Kind: kind, Status: idemstore.Finished, MayBeApplied: true, ExternalID: "ch_1",
		Result: []byte(`{"id":"ch_1"}`), ProviderStatus: 201, MaxFailures: 5, Retention: week, Trace: trace}
}

// unknown is a save of an attempt that may have been applied.
func unknown(f idemstore.Fence) idemstore.Save {
	return idemstore.Save{Fence: f, Kind: kind, Status: idemstore.Unknown, MayBeApplied: true, Cost: 1, MaxFailures: 5,
		LastError: "timeout", ErrorClass: "timeout", Reason: "no answer", Trace: trace}
}

// save runs one save that must succeed.
func (b bench) save(t *testing.T, s idemstore.Save) idemstore.Saved {
	t.Helper()
	saved, err := b.Save(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return saved[0]
}

// makeRows makes the table of a handler's local rows.
func (b bench) makeRows(t *testing.T) {
	t.Helper()
	b.exec(t, `create table public.rows (name text primary key check (name <> 'refused'))`)
}

// local is a handler's own write, which can run once only.
func local(name string) idemstore.Statement {
	return idemstore.Statement{SQL: `insert into public.rows (name) values ($1)`, Args: []any{name}}
}

// rows counts local rows and events together.
func (b bench) rows(t *testing.T) int {
	t.Helper()
	return query[int](t, b.pool, `select (select count(*) from public.rows) + (select count(*) from settle.outbox)`)
}

// near reports whether a time of the database is within a minute of what is meant: slow machines differ by
// seconds, mistakes by hours.
func near(got *time.Time, want time.Time) bool {
	return got != nil && got.Sub(want).Abs() < time.Minute
}

// state is the SQLSTATE of an error, or empty.
func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
