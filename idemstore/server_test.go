package idemstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
)

// What streams from a server is a standby only if there is something to fail over to: a backup, an archive of WAL and a
// logical subscriber are none, whatever a user is allowed to see of them.
func TestServerCountsStandbysOnly(t *testing.T) {
	t.Parallel()
	server, err := devenv.StartPostgres(t.Context(), devenv.PostgresOptions{Settings: map[string]string{"wal_level": "logical"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool := newPool(t, server.URL())
	b := bench{idemstore.New(pool, time.Minute), pool}
	b.exec(t, `create role plain`)
	b.exec(t, `select pg_create_logical_replication_slot('subscriber', 'pgoutput')`)
	from := ""
	if err := pool.QueryRow(t.Context(), `select pg_current_wal_lsn()::text`).Scan(&from); err != nil {
		t.Fatal(err)
	}
	plain := newPool(t, server.URL(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = "plain" })
	sees := func(store *idemstore.Store, standbys ...string) {
		t.Helper()
		got, err := store.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Standbys != len(standbys) || !slices.Equal(got.NamesOfStandbys, standbys) {
			t.Errorf("%s sees %d standbys, %q; want %q", got.User, got.Standbys, got.NamesOfStandbys, standbys)
		}
	}
	stream(t, server.URL(), "pg_receivewal", "true", `START_REPLICATION PHYSICAL `+from)
	stream(t, server.URL(), "reports", "database", `START_REPLICATION SLOT subscriber LOGICAL 0/0 (proto_version '1', publication_names 'none')`)
	unprivileged := idemstore.New(plain, time.Minute)
	sees(b.Store)
	sees(unprivileged)
	stream(t, server.URL(), "nightly", "true", `BASE_BACKUP (LABEL 'nightly', MAX_RATE 32, CHECKPOINT 'fast')`)
	sees(b.Store)
	sees(unprivileged, "nightly") // is not shown what that session does, and goes by its name
	stream(t, server.URL(), "west", "true", `START_REPLICATION PHYSICAL `+from)
	stream(t, server.URL(), "east", "true", `START_REPLICATION PHYSICAL `+from)
	sees(b.Store, "east", "west")
	sees(unprivileged, "east", "nightly", "west")
}

// stream lets the server stream to a session of that name until the end of the test.
func stream(t *testing.T, url, name, replication, command string) {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"], config.RuntimeParams["replication"] = name, replication
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Conn().Close(); err != nil {
			t.Error(err)
		}
	})
	conn.Frontend().SendQuery(&pgproto3.Query{String: command})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		answer, err := conn.Frontend().Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch answer := answer.(type) {
		case *pgproto3.CopyBothResponse, *pgproto3.CopyOutResponse:
			return
		case *pgproto3.ErrorResponse:
			t.Fatalf("%s: %s", command, answer.Message)
		}
	}
}

// What lacks is named with who needs it, and an index with what makes it anew.
func TestServerLacks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lacks := func() (all string) {
		t.Helper()
		found, err := b.Lacks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range found {
			all += strings.TrimSpace(fmt.Sprintln(l.What, l.Name, l.On, l.Use, l.Invalid, l.Columns)) + "\n"
		}
		return all
	}
	if got := lacks(); got != "" {
		t.Errorf("a new schema lacks %s", got)
	}
	b.exec(t, `drop index settle.tasks_asked, settle.refusals_recent`)
	b.exec(t, `insert into settle.refusals (reason, detail, stream, sequence, stored_at, subject, headers, body, body_size, cut, digest)
		select 'malformed', '', 'JOBS', n, clock_timestamp(), 'jobs.x', '{}', '', 0, false, '' from generate_series(1, 2) n`)
	if _, err := b.pool.Exec(t.Context(), `create unique index concurrently refusals_recent on settle.refusals (reason)`); err == nil {
		t.Fatal("an index that cannot be unique was made")
	}
	const want = `index refusals_recent settle  true on settle.refusals (at)
index tasks_asked settle  false on settle.tasks (next_attempt_at, id) where status = 'needs_review' and review_cause in ('budget', 'age')
`
	if got := lacks(); got != want {
		t.Errorf("lacks\n%swant\n%s", got, want)
	}
	// What is proposed works, for both.
	b.exec(t, `drop index concurrently settle.refusals_recent`)
	for _, l := range strings.Split(strings.TrimSpace(want), "\n") {
		name, columns := strings.Fields(l)[1], l[strings.Index(l, " on settle.")+1:]
		b.exec(t, "create index concurrently "+name+" "+columns)
	}
	if got := lacks(); got != "" {
		t.Errorf("after the fix it lacks %s", got)
	}
}
