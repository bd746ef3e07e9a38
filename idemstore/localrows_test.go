package idemstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// refusedRows are local rows that no repetition will make acceptable.
var refusedRows = []struct {
	name string
	rows idemstore.Statement
}{
	{"check", local("refused")},
	{"not null", idemstore.Statement{SQL: `insert into public.rows values (null)`}},
	{"unique", local("there already")},
	{"foreign key", idemstore.Statement{SQL: `insert into public.children values ('nobody')`}},
	{"division by zero", idemstore.Statement{SQL: `insert into public.rows select 1 / $1::int`, Args: []any{0}}},
	{"not a number", idemstore.Statement{SQL: `insert into public.rows select $1::text::int`, Args: []any{"x"}}},
	{"NUL", local("a\x00b")},
	{"bad UTF-8", local("a\xffb")},
	{"constraint checked at commit", idemstore.Statement{SQL: `insert into public.late values (1), (1)`}},
	{"raised by a trigger", idemstore.Statement{SQL: `insert into public.guarded values (1)`}},
	{"one row twice in one statement", idemstore.Statement{
		SQL: `insert into public.rows values ('x'), ('x') on conflict (name) do update set name = 'y'`}},
	{"too long for an index", idemstore.Statement{SQL: `insert into public.rows select string_agg(md5(i::text), '') from generate_series(1, 2000) i`}},
	{"syntax", idemstore.Statement{SQL: `insert into public.rows valued ('x')`}},
	{"no such table", idemstore.Statement{SQL: `insert into public.nowhere values ('x')`}},
	{"no such column", idemstore.Statement{SQL: `update public.rows set colour = 'x'`}},
	{"argument that cannot be sent", idemstore.Statement{SQL: `insert into public.rows values ($1)`, Args: []any{make(chan int)}}},
	{"too few arguments", idemstore.Statement{SQL: `insert into public.rows values ($1)`}},
	{"named argument that cannot be sent", idemstore.Statement{SQL: `insert into public.rows values (@name)`, Args: []any{pgx.NamedArgs{"name": make(chan int)}}}},
}

func (b bench) makeRefusingTables(t *testing.T) {
	t.Helper()
	b.makeRows(t)
	b.exec(t, `insert into public.rows values ('there already')`)
	b.exec(t, `create table public.children (parent text references public.rows (name))`)
	b.exec(t, `create table public.late (n int, unique (n) deferrable initially deferred)`)
	b.exec(t, `create table public.guarded (n int)`)
	b.exec(t, `create function public.guard() returns trigger language plpgsql as
		$$ begin raise exception 'the period is closed'; end $$`)
	b.exec(t, `create trigger guard before insert on public.guarded for each row execute function public.guard()`)
}

// "Done at the provider, not booked here": the caller hears of it at once and can park the task.
func TestLocalRowsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRefusingTables(t)
	const before = 1
	for _, c := range refusedRows {
		t.Run(c.name, func(t *testing.T) {
			s := finished(b.performing(t, c.name))
			s.Writes = []idemstore.Statement{local("good"), c.rows, local("good too")}
			row := b.row(t, s.TaskID)
			saved, err := b.Save(t.Context(), s)
			var refused *idemstore.LocalRowsError
			if !errors.As(err, &refused) || errors.Is(err, idemstore.ErrLost) {
				t.Fatalf("saved %+v (%v), want *LocalRowsError", saved, err)
			}
			if b.row(t, s.TaskID) != row || b.rows(t) != before {
				t.Errorf("something was written: %d local rows", b.rows(t))
			}
			s.Status, s.Writes, s.LastError = idemstore.NeedsReview, nil, err.Error()
			if saved := b.save(t, s); saved.Status != idemstore.NeedsReview {
				t.Errorf("parked as %s", saved.Status)
			}
		})
	}
}

// In a group the refusal of one is the refusal of all, until they go one by one.
func TestLocalRowsRefusedInAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	good, bad := finished(b.performing(t, "good")), finished(b.performing(t, "bad"))
	good.Writes, bad.Writes = []idemstore.Statement{local("good")}, []idemstore.Statement{local("refused")}
	var refused *idemstore.LocalRowsError
	if saved, err := b.Save(t.Context(), good, bad); !errors.As(err, &refused) {
		t.Fatalf("saved %+v (%v), want *LocalRowsError", saved, err)
	}
	if b.rows(t) != 0 || b.task(t, good.TaskID).Status != idemstore.Started {
		t.Error("something was written")
	}
	b.save(t, good)
	if saved, err := b.Save(t.Context(), bad); !errors.As(err, &refused) {
		t.Errorf("saved %+v (%v), want *LocalRowsError", saved, err)
	}
}

// A refusal of the save's own row is not the handler's, and not worth a repetition.
func TestRefusalOfTheSaveItselfIsNotTheHandlers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	s := finished(b.performing(t, "order_1"))
	s.Status, s.Writes = "nonsense", []idemstore.Statement{local("x")}
	saved, err := b.Save(t.Context(), s)
	var refused *idemstore.LocalRowsError
	if err == nil || errors.As(err, &refused) || errors.Is(err, idemstore.ErrLost) {
		t.Errorf("saved %+v (%v)", saved, err)
	}
}

// A stale attempt is told that it is stale, whatever is wrong with its rows.
func TestFenceComesBeforeLocalRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	s := finished(b.performing(t, "order_1"))
	b.expire(t, s.TaskID)
	b.expect(t, idemstore.Ask, claimOf("order_1"))
	s.Writes = []idemstore.Statement{local("refused")}
	if saved, err := b.Save(t.Context(), s); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("saved %+v (%v), want ErrLost", saved, err)
	}
}

// What every transaction of the store runs under, whatever the server's defaults are.
func TestTransactionSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `create table public.seen (isolation text, durable text, lock_timeout text)`)
	look := idemstore.Statement{SQL: `insert into public.seen values (current_setting('transaction_isolation'),
		current_setting('synchronous_commit'), current_setting('lock_timeout'))`}
	for _, c := range []struct {
		lease                 time.Duration
		durable, want, waited string
	}{
		{time.Minute, "off", "on", "1s"},
		{3 * time.Second, "local", "on", "1s"},
		{time.Second, "remote_write", "on", "333ms"},
		{30 * time.Millisecond, "remote_apply", "remote_apply", "10ms"},
		{time.Millisecond, "on", "on", "1ms"},
		{0, "local", "on", "1s"}, // claims nothing
	} {
		t.Run(fmt.Sprintf("%s, lease of %s", c.durable, c.lease), func(t *testing.T) {
			b.exec(t, `truncate public.seen`)
			url := b.pool.Config().ConnString()
			separator := "?"
			if strings.Contains(url, "?") {
				separator = "&"
			}
			pool := newPool(t, url+separator+"synchronous_commit="+c.durable+"&default_transaction_isolation=serializable&lock_timeout=1min")
			odd := bench{idemstore.New(pool, c.lease), pool}
			s := finished(odd.performing(t, c.durable+c.lease.String()))
			s.Writes = []idemstore.Statement{look}
			odd.save(t, s)
			got := query[string](t, b.pool, `select concat_ws(', ', isolation, durable, lock_timeout) from public.seen`)
			if want := "read committed, " + c.want + ", " + c.waited; got != want {
				t.Errorf("ran under %s, want %s", got, want)
			}
			if left := query[string](t, pool, `select current_setting('lock_timeout')`); left != "1min" {
				t.Errorf("the connection keeps lock_timeout %s", left)
			}
		})
	}
}
