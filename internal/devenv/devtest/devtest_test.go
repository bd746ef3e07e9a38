package devtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/devenv"
)

func TestMain(m *testing.M) { Main(m) }

func TestDatabaseHoldsTheSchemaAndIsAlone(t *testing.T) {
	t.Parallel()
	one, other := Pool(t), Pool(t)
	if _, err := one.Exec(t.Context(), "create table public.mine ()"); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}{one, other} {
		var version int
		if err := pool.QueryRow(t.Context(), "select version from settle.schema_version").Scan(&version); err != nil {
			t.Fatal(err)
		}
		if version != settle.SchemaVersion {
			t.Errorf("schema version %d, want %d", version, settle.SchemaVersion)
		}
	}
	var shares bool
	const seen = "select to_regclass('public.mine') is not null"
	if err := other.QueryRow(t.Context(), seen).Scan(&shares); err != nil || shares {
		t.Errorf("two tests share a database (%v)", err)
	}
}

func TestDatabasesInParallel(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			if err := Pool(t).Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The cleanup drops the database, with a connection that the test forgot still open to it.
func TestDatabaseIsDroppedWithTheTest(t *testing.T) {
	t.Parallel()
	var url string
	var forgotten *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		url = Database(t)
		var err error
		if forgotten, err = pgx.Connect(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	})
	if err := forgotten.Ping(t.Context()); err == nil {
		t.Error("the forgotten connection still works")
	}
	_ = forgotten.Close(t.Context())
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the database is still there")
	}
}

// Test binaries run side by side on one server: each finds or makes the template, and all use it.
func TestServersOfSeveralBinariesShareTheTemplate(t *testing.T) {
	own := startPostgres(t)
	t.Setenv("TEST_DATABASE_URL", own.URL())
	var wg sync.WaitGroup
	failures := make([]error, 4)
	for i := range failures {
		wg.Go(func() { failures[i] = useServer(t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), own.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, _ := conn.Query(t.Context(), "select datname from pg_database where datname like 'settle%'")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) != 1 || !strings.HasPrefix(names[0], "settle_template_") {
		t.Errorf("left on the server: %q (%v), want one template", names, err)
	}
}

// useServer is what one test binary does.
func useServer(ctx context.Context) error {
	var s server
	if err := s.start(); err != nil {
		return errors.Join(err, s.stop())
	}
	name := newDatabaseName()
	if _, err := s.create(ctx, name); err != nil {
		return errors.Join(err, s.stop())
	}
	return errors.Join(s.drop(ctx, name), s.stop())
}

func TestServerOfTheEnvironmentThatIsGoneFails(t *testing.T) {
	own := startPostgres(t)
	own.Kill()
	t.Setenv("TEST_DATABASE_URL", "")
	t.Setenv("DATABASE_URL", own.URL())
	if err := useServer(t.Context()); err == nil {
		t.Error("a server that does not answer was replaced silently")
	}
}

func TestJetStreamIsAloneAndEndsWithTheTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		var js jetstream.JetStream
		url, js = JetStream(t)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MINE"}); err != nil {
			t.Fatal(err)
		}
		_, other := JetStream(t)
		if _, err := other.Stream(t.Context(), "MINE"); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("two servers share a stream (%v)", err)
		}
	})
	if nc, err := nats.Connect(url); err == nil {
		nc.Close()
		t.Error("the server answers after the test")
	}
}

// Main has called RunChild.
func TestNATSProcessWorksInTests(t *testing.T) {
	t.Parallel()
	n, err := devenv.StartNATSProcess(t.Context(), devenv.NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
}

func BenchmarkDatabase(b *testing.B) {
	for b.Loop() {
		name := newDatabaseName()
		if err := shared.start(); err != nil {
			b.Fatal(err)
		}
		if _, err := shared.create(b.Context(), name); err != nil {
			b.Fatal(err)
		}
		if err := shared.drop(b.Context(), name); err != nil {
			b.Fatal(err)
		}
	}
}

func startPostgres(t *testing.T) *devenv.Postgres {
	t.Helper()
	own, err := devenv.StartPostgres(t.Context(), devenv.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	return own
}
