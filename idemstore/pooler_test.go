package idemstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// D-21: nothing is refused at a server without a pooler, however often it is looked into, and nothing is left behind.
// What a pooler does to it is tested with a real one, in internal/e2e/pooler.
func TestD21DirectConnectionsTakeEveryMode(t *testing.T) {
	t.Parallel()
	url := devtest.Database(t)
	for _, connections := range []int32{1, 2, 4} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(fmt.Sprint(mode, " on ", connections), func(t *testing.T) {
				pool := newPool(t, url, func(c *pgxpool.Config) {
					c.MaxConns, c.ConnConfig.DefaultQueryExecMode = connections, mode
				})
				store := idemstore.New(pool, 0)
				for range 3 {
					if err := store.CheckExecMode(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for _, conn := range pool.AcquireAllIdle(t.Context()) {
					var left int
					err := conn.QueryRow(t.Context(), `select count(*) from pg_prepared_statements where name like 'settle_look%'`).Scan(&left)
					conn.Release()
					if err != nil || left != 0 {
						t.Errorf("%d prepared statements are left behind (%v)", left, err)
					}
				}
			})
		}
	}
}

// A database that cannot be asked says nothing about poolers.
func TestCheckExecModeOfNoDatabase(t *testing.T) {
	t.Parallel()
	pool := newPool(t, devtest.Database(t))
	pool.Close()
	if err := idemstore.New(pool, 0).CheckExecMode(t.Context()); err == nil || errors.Is(err, idemstore.ErrExecMode) {
		t.Errorf("%v", err)
	}
}

// What a start costs where there is no pooler.
func BenchmarkCheckExecMode(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), devtest.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	store := idemstore.New(pool, 0)
	for b.Loop() {
		if err := store.CheckExecMode(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
