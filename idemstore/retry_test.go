package idemstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
)

// failing makes the next writes to settle.tasks fail with an SQLSTATE, as many as given, and returns a count of
// the writes that were tried since.
func (b bench) failing(t *testing.T, code string, times int) (tries func() int) {
	t.Helper()
	b.exec(t, `create sequence if not exists public.tries`) // nextval survives a rollback
	b.exec(t, fmt.Sprintf(`create or replace function public.fail() returns trigger language plpgsql as $$ begin
		if nextval('public.tries') <= %d then raise exception 'forced' using errcode = '%s'; end if; return new; end $$`, times, code))
	b.exec(t, `create or replace trigger fail before insert or update on settle.tasks for each row execute function public.fail()`)
	b.exec(t, `alter sequence public.tries restart`)
	return func() int {
		return query[int](t, b.pool, `select case when is_called then last_value else 0 end from public.tries`)
	}
}

// D-22: what passes is run again, and only the SQL of it.
func TestD22PassingErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	operations := map[string]func(*testing.T, idemstore.Fence) error{
		"claim": func(t *testing.T, f idemstore.Fence) error {
			got, err := b.Claim(t.Context(), claimOf(fmt.Sprint("new ", f.TaskID)))
			if err == nil && (got[0].Found != idemstore.Inserted || got[0].Task.Attempt != 1) {
				t.Errorf("found %+v", got[0])
			}
			return err
		},
		"save": func(t *testing.T, f idemstore.Fence) error {
			_, err := b.Save(t.Context(), finished(f))
			return err
		},
		"release": func(t *testing.T, f idemstore.Fence) error {
			_, err := b.Release(t.Context(), idemstore.Release{Fence: f})
			return err
		},
		"external id": func(t *testing.T, f idemstore.Fence) error { return b.SaveExternalID(t.Context(), f, "ch_1", trace) },
		"arm": func(t *testing.T, f idemstore.Fence) error {
			_, err := b.Arm(t.Context(), armOf(f))
			return err
		},
	}
	for name, run := range operations {
		for _, code := range []string{"40001", "40P01", "25006", "53300", "57P03", "26000", "0A000"} {
			t.Run(name+" "+code, func(t *testing.T) {
				f := b.performing(t, name+code)
				tries := b.failing(t, code, 3)
				if err := run(t, f); err != nil || tries() != 4 {
					t.Errorf("%d tries, want 4 (%v)", tries(), err)
				}
				b.exec(t, `drop trigger fail on settle.tasks`)
			})
		}
	}
}

// What does not pass is not repeated, and what does not pass in time ends.
func TestD22ErrorsThatStay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	for _, c := range []struct {
		code  string
		tries int
	}{{"40P01", 9}, {"57014", 1}, {"XX000", 1}, {"22023", 1}, {"23514", 1}} {
		tries := b.failing(t, c.code, 1000)
		if saved, err := b.Save(t.Context(), finished(f)); state(err) != c.code || tries() != c.tries {
			t.Errorf("%s: %d tries, want %d; saved %+v (%v)", c.code, tries(), c.tries, saved, err)
		}
		tries = b.failing(t, c.code, 1000)
		if found, err := b.Claim(t.Context(), claimOf("order_2")); state(err) != c.code || errors.Is(err, idemstore.ErrCommitUnanswered) || tries() != c.tries {
			t.Errorf("%s: %d tries, want %d; claimed %+v (%v)", c.code, tries(), c.tries, found, err)
		}
		if got := b.task(t, f.TaskID); got.Status != idemstore.Started {
			t.Fatalf("the row is %s", got.Status)
		}
	}
}

// A real deadlock: a rival holds what the save waits for, and waits for what the save holds.
func TestD22DeadlockWithLocalRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `create table public.accounts (name text primary key, sum int not null default 0)`)
	b.exec(t, `insert into public.accounts values ('a'), ('b')`)
	add := func(name string) idemstore.Statement {
		return idemstore.Statement{SQL: `update public.accounts set sum = sum + 1 where name = $1`, Args: []any{name}}
	}
	s := finished(b.performing(t, "order_1"))
	s.Writes = []idemstore.Statement{add("a"), {SQL: `select pg_advisory_xact_lock(1)`}, add("b")}
	// The save looks for deadlocks at once, the rival not at all, so that the save is the victim.
	nervous := newPool(t, b.pool.Config().ConnString(), setting("deadlock_timeout = '1ms'"))
	store := idemstore.New(nervous, time.Minute)

	openGate := hold(t, b.pool, `select pg_advisory_xact_lock(1)`)
	rival, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rival.Rollback(context.Background()) }()
	for _, sql := range []string{`set local deadlock_timeout = '1min'`, `update public.accounts set sum = sum + 1 where name = 'b'`} {
		if _, err := rival.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	done := async(func() ([]idemstore.Saved, error) { return store.Save(t.Context(), s) })
	b.awaitWaiting(t, 1) // the save has a, and waits at the gate
	crossed := async(func() (any, error) {
		return rival.Exec(t.Context(), `update public.accounts set sum = sum + 1 where name = 'a'`)
	})
	b.awaitWaiting(t, 2)
	openGate()
	if r := <-crossed; r.err != nil {
		t.Fatalf("the rival was the victim: %v", r.err)
	}
	if err := rival.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.value[0].Status != idemstore.Finished {
		t.Errorf("saved %+v (%v)", r.value, r.err)
	}
	if n := query[int](t, b.pool, `select sum(sum) from public.accounts`); n != 4 {
		t.Errorf("booked %d, want 4: two each", n)
	}
}

// setting runs "set …" on each new connection of a pool.
func setting(assignment string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set "+assignment)
			return err
		}
	}
}

// D-19: a pooled connection that leads to a server which became read-only is dropped, and the next one is asked.
func TestD19ReadOnlyServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := newPool(t, b.pool.Config().ConnString())
	store := idemstore.New(pool, time.Minute)
	for name, run := range map[string]func() error{
		"claim": func() error {
			_, err := store.Claim(t.Context(), claimOf("new"))
			return err
		},
		"save": func() error {
			_, err := store.Save(t.Context(), finished(b.performing(t, "save")))
			return err
		},
		"renewal, at the next heartbeat": func() error {
			f := b.performing(t, "renewal")
			if _, err := store.Renew(t.Context(), idemstore.Renewal{Fence: f, Lease: time.Minute}); state(err) != "25006" {
				return fmt.Errorf("renewed on a read-only server: %w", err)
			}
			confirmed, err := store.Renew(t.Context(), idemstore.Renewal{Fence: f, Lease: time.Minute})
			if !confirmed[f] {
				return fmt.Errorf("not renewed: %w", err)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := pool.Exec(t.Context(), `set default_transaction_read_only = on`); err != nil {
				t.Fatal(err)
			}
			before := query[int](t, pool, `select pg_backend_pid()`)
			if err := run(); err != nil {
				t.Fatal(err)
			}
			if after := query[int](t, pool, `select pg_backend_pid()`); after == before {
				t.Error("the connection to the read-only server is kept")
			}
		})
	}
}

// While every connection leads to a read-only server the store says so; afterwards it works without a restart.
func TestD19ReadOnlyForAWhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	database := pgx.Identifier{query[string](t, b.pool, `select current_database()`)}.Sanitize()
	pool := newPool(t, b.pool.Config().ConnString())
	store := idemstore.New(pool, time.Minute)
	b.exec(t, `alter database `+database+` set default_transaction_read_only = on`)
	if _, err := store.Claim(t.Context(), claimOf("order_2")); state(err) != "25006" {
		t.Errorf("claim: %v, want SQLSTATE 25006", err)
	}
	if _, err := store.Save(t.Context(), s); state(err) != "25006" || errors.Is(err, idemstore.ErrLost) {
		t.Errorf("save: %v, want SQLSTATE 25006", err)
	}
	if err := store.CheckSchema(t.Context()); err != nil {
		t.Errorf("reading: %v", err)
	}
	b.exec(t, `alter database `+database+` reset default_transaction_read_only`)
	if _, err := store.Claim(t.Context(), claimOf("order_2")); err != nil {
		t.Error(err)
	}
	if _, err := store.Save(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// A connection that was lost while it lay in the pool costs nothing but a new one.
func TestConnectionsLostInThePool(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	pool := newPool(t, b.pool.Config().ConnString())
	store := idemstore.New(pool, time.Minute)
	kill := func() {
		pid := query[int](t, pool, `select pg_backend_pid()`)
		b.exec(t, `select pg_terminate_backend($1, 10000)`, pid)
	}
	kill()
	if _, err := store.Save(t.Context(), s); err != nil {
		t.Errorf("save: %v", err)
	}
	kill()
	if _, err := store.FindByID(t.Context(), s.TaskID); err != nil {
		t.Errorf("find: %v", err)
	}
	kill()
	if _, err := store.Claim(t.Context(), claimOf("order_2")); err != nil && !errors.Is(err, idemstore.ErrCommitUnanswered) {
		t.Errorf("claim: %v", err)
	}
}

// Whoever calls decides how long: no repetition outlives its context.
func TestContextEndsTheRepetition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.failing(t, "40001", 1000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Save(ctx, finished(f)); !errors.Is(err, context.Canceled) {
		t.Errorf("save: %v", err)
	}
	if _, err := b.Claim(ctx, claimOf("order_2")); !errors.Is(err, context.Canceled) {
		t.Errorf("claim: %v", err)
	}
	if _, err := b.Release(ctx, idemstore.Release{Fence: f}); !errors.Is(err, context.Canceled) || errors.Is(err, idemstore.ErrLost) {
		t.Errorf("release: %v", err)
	}
}

// D-21: the statements work in every exec mode of the driver, so also behind a pooler.
func TestD21ExecModes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRefusingTables(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			pool := newPool(t, b.pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			m := bench{idemstore.New(pool, time.Minute), pool}
			m.everything(t, mode.String())
		})
	}
}

// everything runs each statement of the store once.
func (b bench) everything(t *testing.T, name string) {
	t.Helper()
	c := claimOf(name)
	c.Refs = []idemstore.Ref{{Name: "customer", Value: "c_1"}}
	first := b.expect(t, idemstore.Inserted, c).Task.Fence
	if confirmed, err := b.Renew(t.Context(), idemstore.Renewal{Fence: first, Lease: time.Second}); err != nil || !confirmed[first] {
		t.Errorf("renew: %v (%v)", confirmed, err)
	}
	b.expire(t, first.TaskID)
	second := b.expect(t, idemstore.Ask, claimOf(name)).Task.Fence
	if _, err := b.Arm(t.Context(), armOf(second)); err != nil {
		t.Errorf("arm: %v", err)
	}
	if status, err := b.Release(t.Context(), idemstore.Release{Fence: second, Reason: "drained", Trace: trace}); err != nil || status != idemstore.Unknown {
		t.Errorf("release: %q (%v)", status, err)
	}
	third := b.expect(t, idemstore.Ask, claimOf(name)).Task.Fence
	if err := b.SaveExternalID(t.Context(), third, "ch_1", trace); err != nil {
		t.Errorf("save external id: %v", err)
	}
	s := finished(third)
	s.Reason = "found"
	s.Writes = []idemstore.Statement{local(name)}
	s.Emits = []idemstore.Emit{{Subject: "events.paid", Key: name, Payload: []byte(`{}`)}}
	s.Applied = &idemstore.Entity{Kind: kind, ID: name, Version: idemstore.Version{Number: number(7), Time: "2026-11-29T10:00:00.1"}}
	if g := b.guard(t, idemstore.Guard{Entity: *s.Applied, TaskID: third.TaskID}); g.Found != idemstore.GuardTaken {
		t.Errorf("guard: %+v", g)
	}
	bad := s
	bad.Writes = []idemstore.Statement{local("refused")}
	var refused *idemstore.LocalRowsError
	if _, err := b.Save(t.Context(), bad); !errors.As(err, &refused) {
		t.Errorf("save of refused rows: %v", err)
	}
	bad.Writes = []idemstore.Statement{{SQL: `insert into public.rows values ($1)`, Args: []any{make(chan int)}}}
	if _, err := b.Save(t.Context(), bad); !errors.As(err, &refused) {
		t.Errorf("save of rows that cannot be sent: %v", err)
	}
	b.save(t, s)
	if got := b.expect(t, idemstore.Final, claimOf(name)); string(got.Task.Result) != `{"id":"ch_1"}` {
		t.Errorf("replayed %q", got.Task.Result)
	}
	b.save(t, s) // once more
	s.Attempt++
	if _, err := b.Save(t.Context(), s); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("save of a stale attempt: %v", err)
	}
	r := refusalOf(name)
	r.TaskID = third.TaskID
	if err := b.Refuse(t.Context(), r); err != nil {
		t.Errorf("refuse: %v", err)
	}
	if err := b.OwnPrefix(t.Context(), idemstore.Prefix{Provider: name, Prefix: "p_", Kind: kind}); err != nil {
		t.Errorf("own prefix: %v", err)
	}
	if err := b.OwnPrefix(t.Context(), idemstore.Prefix{Provider: name, Prefix: "p_1", Kind: "other"}); !errors.Is(err, idemstore.ErrPrefixTaken) {
		t.Errorf("own prefix: %v", err)
	}
	if page, err := b.List(t.Context(), idemstore.Filter{Kind: kind, Status: idemstore.Finished}); err != nil || len(page) == 0 {
		t.Errorf("list: %d tasks (%v)", len(page), err)
	}
	if len(b.reasons(t, first.TaskID)) != 4 {
		t.Errorf("audit %q", b.reasons(t, first.TaskID))
	}
	if err := b.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
}

// D-21: a column that is added under running workers costs one repetition at most.
func TestD21ColumnAddedMidway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := newPool(t, b.pool.Config().ConnString())
	one := bench{idemstore.New(pool, time.Minute), pool}
	for i := range 3 {
		one.liveOnce(t, fmt.Sprint("order_", i))
		b.exec(t, fmt.Sprintf(`alter table settle.tasks add column extra_%d text`, i))
	}
}

// liveOnce takes a key from its claim to its replay.
func (b bench) liveOnce(t *testing.T, key string) {
	t.Helper()
	f := b.performing(t, key)
	b.expect(t, idemstore.Busy, claimOf(key))
	b.task(t, f.TaskID)
	b.save(t, finished(f))
	b.expect(t, idemstore.Final, claimOf(key))
}
