package devenv

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func startPostgresFor(t *testing.T, options PostgresOptions) *Postgres {
	t.Helper()
	pg, err := StartPostgres(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func TestPostgresServesAndIsGoneAfterStop(t *testing.T) {
	pg := startPostgresFor(t, PostgresOptions{})
	if got := queryText(t, pg.URL(), "show fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
	if got := queryText(t, pg.URL(), "show max_connections"); got != "200" {
		t.Errorf("max_connections is %s, want 200", got)
	}
	server := pg.server
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.exited:
	default:
		t.Error("the server still runs after Stop")
	}
	assertNoFolder(t, pg.folder.path)
	if err := pg.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := pg.Restart(t.Context()); err == nil {
		t.Error("Restart after Stop worked")
	}
	pg.Kill()
}

func TestPostgresKeepsCommittedRowsOverCrashAndRestart(t *testing.T) {
	pg := startPostgresFor(t, PostgresOptions{
		Durable:  true,
		Settings: map[string]string{"max_connections": "17"},
	})
	db, err := pg.CreateDatabase(t.Context(), `odd "name"`)
	if err != nil {
		t.Fatal(err)
	}
	queryText(t, db, "create table kept as select 'row' as t; select 'done'")
	pg.Kill()
	if conn, err := pgx.Connect(t.Context(), db); err == nil {
		conn.Close(t.Context())
		t.Fatal("the server answers after Kill")
	}
	for range 2 { // after a crash, and while it runs
		if err := pg.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := queryText(t, db, "select t from kept"); got != "row" {
			t.Errorf("got %q", got)
		}
	}
	if got := queryText(t, db, "show fsync"); got != "on" {
		t.Errorf("fsync is %s in a durable server", got)
	}
	if got := queryText(t, db, "show max_connections"); got != "17" {
		t.Errorf("max_connections is %s, want our own setting", got)
	}
	if _, err := pg.CreateDatabase(t.Context(), `odd "name"`); err == nil {
		t.Error("the same database was created twice")
	}
}

func TestPostgresWantsThePassword(t *testing.T) {
	pg := startPostgresFor(t, PostgresOptions{})
	u, err := url.Parse(pg.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []*url.Userinfo{url.User(superuser), url.UserPassword(superuser, "guess")} {
		u.User = user
		conn, err := pgx.Connect(t.Context(), u.String())
		if err == nil {
			conn.Close(t.Context())
			t.Fatal("connected without the password")
		}
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "28P01" {
			t.Errorf("got %v, want a refused password", err)
		}
	}
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil || host != "127.0.0.1" {
		t.Errorf("listens on %s", u.Host)
	}
}

// A taken port is found again on Restart only when it is free; the error names the cause and not the password.
func TestPostgresRestartOnTakenPortFails(t *testing.T) {
	pg := startPostgresFor(t, PostgresOptions{})
	pg.Kill()
	taken, err := net.Listen("tcp", localAddr(pg.port))
	if err != nil {
		t.Fatal(err)
	}
	err = pg.Restart(t.Context())
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("got %v, want the log of a server that found its port taken", err)
	}
	if err != nil && strings.Contains(err.Error(), pg.password) {
		t.Error("the password is in the error text")
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pg.Restart(t.Context()); err != nil {
		t.Errorf("after the port was free again: %v", err)
	}
}

func TestPostgresStartTellsWhatInitdbSaid(t *testing.T) {
	bin := fakeBinaries(t, "echo 'no space for the catalog' >&2; exit 3")
	tmp := openDir(t)
	t.Setenv("TMPDIR", tmp)
	_, err := StartPostgres(t.Context(), PostgresOptions{Binaries: bin})
	if err == nil || !strings.Contains(err.Error(), "no space for the catalog") {
		t.Errorf("got %v", err)
	}
	assertEmpty(t, tmp)
}

func TestPostgresStartIsCancelled(t *testing.T) {
	started := filepath.Join(openDir(t), "started")
	if err := os.WriteFile(started, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(started, 0o666); err != nil {
		t.Fatal(err)
	}
	bin := fakeBinaries(t, "echo x > "+started+"; exec sleep 1000")
	tmp := openDir(t)
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("changed my mind")
	go func() {
		defer cancel(reason)
		_ = poll(ctx, func() bool { info, err := os.Stat(started); return err != nil || info.Size() > 0 })
	}()
	if _, err := StartPostgres(ctx, PostgresOptions{Binaries: bin}); !errors.Is(err, reason) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	assertEmpty(t, tmp)
}

// fakeBinaries is a folder with an initdb that runs script, for servers that do not start.
func fakeBinaries(t *testing.T, script string) string {
	t.Helper()
	dir := openDir(t)
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openDir is a temporary folder that the server's account can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devenv-test-") //nolint:usetesting // only we can enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func queryText(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return string(results[len(results)-1].Rows[0][0])
}

func assertNoFolder(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func assertEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}
