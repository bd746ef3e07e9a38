package rig

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

const insert = `/* rig:insert */ insert into public.entries (name) values ($1)`

// ways are the ways in which a client can commit one insert.
var ways = map[string]func(ctx context.Context, c *pgx.Conn, name string) error{
	"one round trip each": func(ctx context.Context, c *pgx.Conn, name string) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert, name)
			return err
		})
	},
	"all in one flush": func(ctx context.Context, c *pgx.Conn, name string) error {
		b := &pgx.Batch{}
		b.Queue("begin isolation level read committed")
		b.Queue(insert, name)
		b.Queue("/* done */ commit")
		return c.SendBatch(ctx, b).Close()
	},
	"unnamed statements": func(ctx context.Context, c *pgx.Conn, name string) error {
		for _, sql := range []string{"begin", insert, "commit"} {
			args := [][]byte{[]byte(name)}[:min(1, len(sql)/10)]
			if _, err := c.PgConn().ExecParams(ctx, sql, args, nil, nil, nil).Close(); err != nil {
				return err
			}
		}
		return nil
	},
	"simple protocol": func(ctx context.Context, c *pgx.Conn, name string) error {
		_, err := c.PgConn().Exec(ctx, "begin; /* rig:insert */ insert into public.entries values ('"+name+"'); commit;").ReadAll()
		return err
	},
	"without begin, batch": func(ctx context.Context, c *pgx.Conn, name string) error {
		b := &pgx.Batch{}
		b.Queue("select 1")
		b.Queue(insert, name)
		return c.SendBatch(ctx, b).Close()
	},
	"without begin, one statement": func(ctx context.Context, c *pgx.Conn, name string) error {
		_, err := c.Exec(ctx, insert, name)
		return err
	},
	"without begin, simple protocol": func(ctx context.Context, c *pgx.Conn, name string) error {
		_, err := c.PgConn().Exec(ctx, "/* rig:insert */ insert into public.entries values ('"+name+"')").ReadAll()
		return err
	},
}

// entries makes the table and returns a proxy before its database, and a look past the proxy.
func entries(t *testing.T) (*PostgresProxy, func(name string) bool) {
	t.Helper()
	url := devtest.Database(t)
	direct, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	if _, err := direct.Exec(t.Context(), `create table public.entries (name text,
		constraint entries_name unique (name) deferrable initially deferred)`); err != nil {
		t.Fatal(err)
	}
	return NewPostgresProxy(t, url), func(name string) (found bool) {
		t.Helper()
		if err := direct.QueryRow(t.Context(), "select exists (select from public.entries where name = $1)",
			name).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	}
}

func connect(t *testing.T, p *PostgresProxy) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func TestCutAroundCommit(t *testing.T) {
	p, exists := entries(t)
	for way, commit := range ways {
		for fault, arm := range map[string]func(*PostgresProxy, CommitCut) *Shot{
			"drop the answer": (*PostgresProxy).DropCommitAnswer,
			"cut before":      (*PostgresProxy).CutBeforeCommit,
		} {
			name := way + ", " + fault
			t.Run(name, func(t *testing.T) {
				c := connect(t, p)
				if err := commit(t.Context(), c, "earlier: "+name); err != nil { // and prepares the statements
					t.Fatalf("commit while nothing is armed: %v", err)
				}
				shot := arm(p, CommitCut{Containing: "/* rig:insert */"})
				if _, err := c.Exec(t.Context(), "select 'no insert'"); err != nil {
					t.Fatalf("statement that the shot is not meant for: %v", err)
				}
				if err := commit(t.Context(), c, name); err == nil {
					t.Error("the client was told that it had committed")
				}
				Await(t, shot.Fired(), soon, "the shot has fired")
				if got, want := exists(name), fault == "drop the answer"; got != want {
					t.Errorf("committed: %v, want %v", got, want)
				}
				if err := commit(t.Context(), connect(t, p), "later: "+name); err != nil {
					t.Errorf("commit after the shot: %v", err)
				}
			})
		}
	}
}

func TestCommitCutChoosesItsCommit(t *testing.T) {
	p, exists := entries(t)
	commit := ways["all in one flush"]
	c := connect(t, p)
	var doneAtCut bool
	shot := p.DropCommitAnswer(CommitCut{Skip: 1, Do: func() { doneAtCut = exists("second") }})
	if _, err := c.Exec(t.Context(), insert, "no begin, no text: not meant"); err != nil {
		t.Fatal(err)
	}
	if err := commit(t.Context(), c, "first"); err != nil {
		t.Fatalf("skipped commit: %v", err)
	}
	if err := commit(t.Context(), c, "second"); err == nil {
		t.Fatal("the client was told that it had committed")
	}
	Await(t, shot.Fired(), soon, "the shot has fired")
	if !doneAtCut {
		t.Error("Do ran before the server had committed")
	}
}

// A COMMIT that fails is answered as without the proxy, and does not use up the shot.
func TestFailedCommitIsNoCommit(t *testing.T) {
	p, exists := entries(t)
	for way, commit := range ways {
		t.Run(way, func(t *testing.T) {
			c := connect(t, p)
			if err := commit(t.Context(), c, "taken by "+way); err != nil {
				t.Fatal(err)
			}
			shot := p.DropCommitAnswer(CommitCut{Containing: "rig:insert"})
			var refused *pgconn.PgError
			if err := commit(t.Context(), c, "taken by "+way); !errors.As(err, &refused) || refused.Code != "23505" {
				t.Fatalf("commit of a duplicate: %v, want SQLSTATE 23505", err)
			}
			if _, err := c.Exec(t.Context(), "rollback"); err != nil { // after a failed batch the transaction may be open
				t.Fatal(err)
			}
			if err := commit(t.Context(), c, "free for "+way); err == nil {
				t.Error("the client was told that it had committed")
			}
			Await(t, shot.Fired(), soon, "the shot has fired")
			if !exists("free for " + way) {
				t.Error("not committed")
			}
		})
	}
}

// A COMMIT in a transaction that has failed rolls back, says so, and does not use up the shot.
func TestCommitThatRollsBackIsNoCommit(t *testing.T) {
	p, _ := entries(t)
	c := connect(t, p)
	shot := p.DropCommitAnswer(CommitCut{Containing: "rig:insert"})
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), insert, "rolled back"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select 1/0"); err == nil {
		t.Fatal("divided by zero")
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Fatalf("commit: %v, want %v", err, pgx.ErrTxCommitRollback)
	}
	if err := ways["all in one flush"](t.Context(), c, "next"); err == nil {
		t.Error("the client was told that it had committed")
	}
	Await(t, shot.Fired(), soon, "the shot has fired")
}

// Two transactions under way at once: the answer to the first COMMIT is not taken for that to the second.
func TestDropCommitAnswerInAPipeline(t *testing.T) {
	p, exists := entries(t)
	c := connect(t, p)
	var secondAtCut bool
	shot := p.DropCommitAnswer(CommitCut{Skip: 1, Do: func() { secondAtCut = exists("second") }})
	pipe := c.PgConn().StartPipeline(t.Context())
	for _, name := range []string{"first", "second"} {
		pipe.SendQueryParams("begin", nil, nil, nil, nil)
		pipe.SendQueryParams("/* rig:insert */ insert into public.entries values ('"+name+"')", nil, nil, nil, nil)
		if name == "second" {
			pipe.SendQueryParams("select pg_sleep(0.1)", nil, nil, nil, nil)
		}
		pipe.SendQueryParams("commit", nil, nil, nil, nil)
		if err := pipe.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := pipe.Close(); err == nil {
		t.Error("the client was told that both had committed")
	}
	Await(t, shot.Fired(), soon, "the shot has fired")
	if !secondAtCut {
		t.Error("cut before the second COMMIT had run")
	}
}

func TestRollbackIsNoCommit(t *testing.T) {
	p, exists := entries(t)
	c := connect(t, p)
	shot := p.CutBeforeCommit(CommitCut{Containing: "rig:insert"})
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), insert, "rolled back"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), "select 1"); return err }); err != nil {
		t.Fatalf("commit of another transaction: %v", err)
	}
	select {
	case <-shot.Fired():
		t.Error("the shot fired at another transaction than the one with its text")
	default:
	}
	if exists("rolled back") {
		t.Error("rolled back, but there")
	}
}

// The proxy must not stand in the way of a client that asks for encryption.
func TestPostgresProxyPassesRequestForTLS(t *testing.T) {
	p, _ := entries(t)
	config, err := pgx.ParseConfig(p.URL() + "&sslmode=prefer")
	if err != nil {
		t.Fatal(err)
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBoundary(t *testing.T) {
	for sql, want := range map[string]bound{
		"":                                   within,
		"-- only a comment":                  within,
		"BEGIN ISOLATION LEVEL serializable": begins,
		"start transaction":                  begins,
		"start":                              within,
		"/* a */ -- b\n /* c */COMMIT":       commits,
		"end":                                commits,
		"commit prepared 'x'":                within,
		"rollback":                           rollsBack,
		"rollback to savepoint a":            within,
		"abort":                              rollsBack,
		"select 'commit'":                    within,
		"/* never ends":                      within,
	} {
		if got := boundary(sql); got != want {
			t.Errorf("boundary(%q) = %v, want %v", sql, got, want)
		}
	}
}
