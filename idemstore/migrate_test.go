package idemstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// catalog describes columns, constraints, indexes and functions of the database, in a fixed order.
const catalog = `select string_agg(line, E'\n' order by line) from (
	select concat_ws(' ', 'column', table_schema, table_name, column_name, data_type, is_nullable, column_default) from information_schema.columns
	where table_schema in ('settle', 'shop', 'provider')
	union all select concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
	where connamespace::regnamespace::text in ('settle', 'shop', 'provider')
	union all select concat_ws(' ', 'index', indexdef) from pg_indexes where schemaname in ('settle', 'shop', 'provider')
	union all select concat_ws(' ', 'options', oid::regclass, reloptions::text) from pg_class
	where relnamespace::regnamespace::text in ('settle', 'shop', 'provider') and relkind = 'r'
	union all select pg_get_functiondef(oid) from pg_proc where pronamespace::regnamespace::text in ('settle', 'shop', 'provider')
) as x(line)`

// emptied is a bench on a database without the schema.
func emptied(t *testing.T) bench {
	t.Helper()
	b := newBench(t)
	b.exec(t, `drop schema settle, shop, provider cascade`)
	return b
}

func (b bench) migrate(t *testing.T) error {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), b.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	return idemstore.Migrate(t.Context(), conn)
}

func TestMigrateIsIdempotent(t *testing.T) {
	t.Parallel()
	b := emptied(t)
	if err := b.migrate(t); err != nil {
		t.Fatal(err)
	}
	f := b.performing(t, "order_1")
	before := query[string](t, b.pool, catalog)
	applied := query[string](t, b.pool, `select t::text from settle.schema_version t`)
	if err := b.migrate(t); err != nil {
		t.Fatal(err)
	}
	if query[string](t, b.pool, catalog) != before || query[string](t, b.pool, `select t::text from settle.schema_version t`) != applied {
		t.Error("the second run changed something")
	}
	if task := b.task(t, f.TaskID); task.Key != "order_1" {
		t.Errorf("the task became %+v", task)
	}
}

func TestMigrateAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := emptied(t)
	var done []<-chan result[bool]
	for range 4 {
		done = append(done, async(func() (bool, error) { return true, b.migrate(t) }))
	}
	for _, d := range done {
		if r := <-d; r.err != nil {
			t.Error(r.err)
		}
	}
	if err := b.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
}

// A transaction that writes to the tasks keeps a migration waiting. Other writers do not wait for both of them.
func TestMigrateGivesWritersWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	slow, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Rollback(t.Context())
	if _, err := slow.Exec(t.Context(), `update settle.tasks set duplicates = 1 where id = $1`, f.TaskID); err != nil {
		t.Fatal(err)
	}
	migrated := async(func() (bool, error) { return true, b.migrate(t) })
	waiting := `select exists (select from pg_locks l join pg_database d on d.oid = l.database
		where d.datname = current_database() and l.relation = 'settle.tasks'::regclass and not l.granted)`
	for !query[bool](t, b.pool, waiting) {
	}
	b.performing(t, "order_2") // comes behind the migration, and not behind the slow transaction
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-migrated; r.err != nil {
		t.Error(r.err)
	}
}

// A build never runs its script over the schema of a newer one.
func TestMigrateRefusesNewerVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `update settle.schema_version set version = $1, usable_from = $1`, settle.SchemaVersion+1)
	b.exec(t, `drop table settle.key_prefixes`) // the script would make it again
	if err := b.migrate(t); !errors.Is(err, idemstore.ErrSchema) || !strings.Contains(err.Error(), "newer build") {
		t.Errorf("%v, want ErrSchema and what to do", err)
	}
	if query[bool](t, b.pool, `select to_regclass('settle.key_prefixes') is not null`) {
		t.Error("the script was run")
	}
	if err := b.CheckSchema(t.Context()); !errors.Is(err, idemstore.ErrSchema) || !strings.Contains(err.Error(), "newer build") {
		t.Errorf("%v, want ErrSchema and what to do", err)
	}
}

// A newer build that only added things leaves workers of this one at work, and lets more of them start. Their migrate
// still does not touch what it does not know.
func TestAnOlderBuildGoesOnAfterANewerOneHasExpanded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.exec(t, `update settle.schema_version set version = $1`, settle.SchemaVersion+1)
	b.exec(t, `alter table settle.tasks add column added text; alter table settle.outbox add column added int not null default 0`)
	if err := b.CheckSchema(t.Context()); err != nil {
		t.Errorf("a worker of this build does not start: %v", err)
	}
	if task := b.task(t, f.TaskID); task.Key != "order_1" {
		t.Errorf("the task is %+v", task)
	}
	b.performing(t, "order_2")
	if err := b.migrate(t); !errors.Is(err, idemstore.ErrSchema) {
		t.Errorf("migrate of the older build: %v, want ErrSchema", err)
	}
}

// A worker that finds no schema, or an old one, says what to run.
func TestCheckSchema(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"no schema":       `drop schema settle cascade`,
		"no version":      `drop table settle.schema_version`,
		"no version line": `delete from settle.schema_version`,
		"an older one":    `update settle.schema_version set version = version - 1, usable_from = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(t, sql)
			if err := b.CheckSchema(t.Context()); !errors.Is(err, idemstore.ErrSchema) || !strings.Contains(err.Error(), "run: settle migrate") {
				t.Errorf("%v, want ErrSchema and what to run", err)
			}
			if err := b.migrate(t); err != nil {
				t.Fatal(err)
			}
			if err := b.CheckSchema(t.Context()); err != nil {
				t.Errorf("after migrate: %v", err)
			}
		})
	}
}

// A database that cannot be asked is not a database without schema.
func TestCheckSchemaOfNoDatabase(t *testing.T) {
	t.Parallel()
	pool := newPool(t, devtest.Database(t))
	pool.Close()
	if err := idemstore.New(pool, 0).CheckSchema(t.Context()); err == nil || errors.Is(err, idemstore.ErrSchema) {
		t.Errorf("%v", err)
	}
}

// oldData is what a release may have left behind. It names no column that is not in every release.
const oldData = `
insert into settle.tasks (kind, key, status, token, sending, give_up_at, payload, payload_hash, hash_algorithm, result, external_id, finished_at)
values ('test.pay', 'order_1', 'finished', gen_random_uuid(), false, now(), '{"order":"order_1"}', $1, 'v1', '{"id":"ch_1"}', 'ch_1', now()),
       ('test.pay', 'order_2', 'started', gen_random_uuid(), false, now() + interval '1 day', '{"order":"order_2"}', $2, 'v1', null, null, null)`

var oldRows = []string{
	`insert into settle.task_refs values ('customer', 'c_1', 1)`,
	`insert into settle.task_events (task_id, actor, attempt, reason) values (1, 'worker', 1, 'found')`,
	`insert into settle.refusals (reason, body, body_size, digest) values ('malformed', '{', 1, 'x')`,
	`insert into settle.outbox (task_id, name, subject, key, payload) values (1, 'events.paid 1', 'events.paid', '1', '{}')`,
	`insert into settle.key_prefixes values ('p', 'order_', 'test.pay')`,
	`insert into shop.orders (order_id, customer_id, amount, currency) values ('1', 'c_1', 12, 'EUR')`,
}

// Each release leaves its schema in testdata. From all of them, migrating keeps the data and leads to the same
// schema as a new database has.
func TestMigrateFromEveryRelease(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/schema-*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no schema of a release (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b := emptied(t)
			b.exec(t, string(script))
			b.exec(t, oldData, claimOf("order_1").Hash, claimOf("order_2").Hash)
			for _, sql := range oldRows {
				b.exec(t, sql)
			}
			if err := b.migrate(t); err != nil {
				t.Fatal(err)
			}
			if err := b.CheckSchema(t.Context()); err != nil {
				t.Fatal(err)
			}
			fresh := newBench(t)
			if got, want := query[string](t, b.pool, catalog), query[string](t, fresh.pool, catalog); got != want {
				t.Errorf("the schema differs from a new one; a change of schema.sql needs an alter for databases that are there:\n%s",
					difference(got, want))
			}
			got := b.expect(t, idemstore.Final, claimOf("order_1"))
			if string(got.Task.Result) != `{"id":"ch_1"}` || got.Task.ExternalID != "ch_1" {
				t.Errorf("replayed %+v", got.Task)
			}
			b.expect(t, idemstore.Perform, claimOf("order_2"))
			for _, table := range []string{"settle.task_refs", "settle.task_events", "settle.refusals", "settle.outbox", "settle.key_prefixes", "shop.orders"} {
				if n := query[int](t, b.pool, `select count(*) from `+table); n != 1 {
					t.Errorf("%s has %d rows, want 1", table, n)
				}
			}
		})
	}
}

// difference lists the lines that only one of two texts has.
func difference(got, want string) string {
	var out bytes.Buffer
	for _, side := range []struct{ mark, text, other string }{{"+ ", got, want}, {"- ", want, got}} {
		for line := range strings.Lines(side.text) {
			if !strings.Contains(side.other, strings.TrimSpace(line)) {
				out.WriteString(side.mark + line)
			}
		}
	}
	return out.String()
}
