package pooler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

// D-21 (a): behind a pooler that hands out two sessions by transaction, the modes that prepare nothing do all the work,
// never now and then; nothing is tried twice and nobody complains.
func TestD21Pooler(t *testing.T) {
	const charges, contacts = 500, 200
	settle := buildSettle(t)
	for _, mode := range []string{"exec", "simple_protocol", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			s := newStage(t, settle, "transaction")
			s.publish(charges, contacts)
			worker := s.run(s.pooler.url("default_query_exec_mode="+mode), "work")
			s.holds(charges, contacts)
			var sessions int
			s.scan(`select count(*) from pg_stat_activity where application_name = 'settle-worker' and datname = current_database()`, &sessions)
			s.drain(worker)
			if sessions < 1 || sessions > 2 {
				t.Errorf("the worker had %d sessions; the pooler has two", sessions)
			}
			for line := range strings.Lines(worker.Output()) {
				if strings.Contains(line, "see settle doctor") {
					continue // one broker, and a database without fsync
				}
				// A level, or what the server answers. The bare words stand in random ids now and then.
				if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "SQLSTATE") {
					t.Errorf("the worker complains: %s", line)
				}
			}
		})
	}
}

// D-21 (a): the modes that prepare statements end at the start with what to set, not now and then with what is missing.
func TestD21PreparedStatementsAreRefused(t *testing.T) {
	settle := buildSettle(t)
	for name, mode := range map[string]string{"default": "", "cache_statement": "default_query_exec_mode=cache_statement",
		"describe_exec": "default_query_exec_mode=describe_exec"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, settle, "transaction")
			s.publish(1, 1)
			worker := s.run(s.pooler.url(mode), "work")
			s.ends(worker, 2)
			if !strings.Contains(worker.Output(), "default_query_exec_mode=exec") {
				t.Error("the message does not say what to set")
			}
			if n := rig.StreamMessages(t, s.js, "JOBS"); n != 2 {
				t.Errorf("%d messages are left, want both", n)
			}
		})
	}
}

// D-21 (a): whichever session the pooler hands out next, the last one given back or each in turn, it is noticed.
func TestD21EveryTransactionPoolerIsNoticed(t *testing.T) {
	direct := devtest.Pool(t)
	for _, sessions := range []int{1, 2, 3, 5} {
		for name, order := range map[string]string{"last": "server_round_robin = 0", "in turn": "server_round_robin = 1"} {
			t.Run(fmt.Sprint(sessions, " ", name), func(t *testing.T) {
				p := startPgBouncer(t, direct.Config().ConnString(), sessions, "pool_mode = transaction", order)
				openSessions(t, openPool(t, p.url("default_query_exec_mode=exec")), sessions)
				for _, mode := range []string{"cache_statement", "describe_exec"} {
					store := idemstore.New(openPool(t, p.url("default_query_exec_mode="+mode)), time.Second)
					for range 20 {
						if err := store.CheckExecMode(t.Context()); !errors.Is(err, idemstore.ErrExecMode) {
							t.Fatalf("%s: %v, want ErrExecMode", mode, err)
						}
					}
				}
			})
		}
	}
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url+"&pool_max_conns=5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openSessions makes the pooler open n sessions, by as many transactions at once.
func openSessions(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	held := make([]pgx.Tx, n)
	for i := range held {
		var err error
		if held[i], err = pool.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, tx := range held {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A pooler that leaves each connection its session is no reason to refuse anything.
func TestD21SessionPoolerIsServed(t *testing.T) {
	s := newStage(t, buildSettle(t), "session")
	s.publish(20, 10)
	worker := s.run(s.pooler.url("pool_max_conns=2"), "work")
	s.holds(20, 10)
	s.drain(worker)
}

// D-21: a pooler refuses start-up parameters that it does not know. Waiting does not help.
func TestD21StartUpParameterIsRefused(t *testing.T) {
	s := newStage(t, buildSettle(t), "transaction")
	worker := s.run(s.pooler.url("default_query_exec_mode=exec", "statement_timeout=5000"), "work")
	s.ends(worker, 2)
	if !strings.Contains(worker.Output(), "statement_timeout") {
		t.Error("the message does not name the parameter")
	}
}

// The commands that come and go work behind a pooler as they are, however often.
func TestD21ShortCommands(t *testing.T) {
	s := newStage(t, buildSettle(t), "transaction")
	for range 3 {
		s.ends(s.run(s.pooler.url(), "migrate"), 0)
		s.ends(s.run(s.pooler.url(), "tasks", "list", "--kind", "payment.charge"), 0)
	}
}
