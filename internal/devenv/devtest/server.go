package devtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/devenv"
)

// statementLimit bounds the making and the dropping of a database. Each takes a tenth of a second, but both wait for
// a checkpoint, and tests in parallel wait for each other.
const statementLimit = 60 * time.Second

// lockTemplate is taken while the template is made: test binaries run side by side on one server. The number is
// arbitrary; only this package uses it.
const lockTemplate = "select pg_advisory_lock(5361746)"

const unlockTemplate = "select pg_advisory_unlock(5361746)"

const templateExists = "select exists (select from pg_catalog.pg_database where datname = $1)"

const serverVersion = "select current_setting('server_version_num')::int"

// shared is the server of this test binary.
var shared server

// server is a PostgreSQL with a template database. The databases of the tests are copies of it, so the schema is
// applied once for each version of it.
type server struct {
	startOnce sync.Once
	startErr  error

	own      *devenv.Postgres // nil: the server came from the environment
	url      string
	admin    *pgxpool.Pool // one connection, so that copies queue here
	template string
	copying  string // how to copy, as CREATE DATABASE takes it
}

// start starts or finds the server, once. When it failed every test is told.
func (s *server) start() error {
	s.startOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*statementLimit)
		defer cancel()
		s.startErr = s.boot(ctx)
	})
	return s.startErr
}

func (s *server) boot(ctx context.Context) (err error) {
	s.url = cmp.Or(os.Getenv("TEST_DATABASE_URL"), os.Getenv("DATABASE_URL"))
	if s.url == "" {
		if s.own, err = devenv.StartPostgres(ctx, devenv.PostgresOptions{}); err != nil {
			return err
		}
		s.url = s.own.URL()
	}
	config, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return err
	}
	config.MaxConns = 1
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	var version int
	if err := s.admin.QueryRow(ctx, serverVersion).Scan(&version); err != nil {
		return fmt.Errorf("read the server version: %w", err)
	}
	if version >= 150000 {
		s.copying = " strategy file_copy" // half the time of the default for a database of this size
	}
	return s.ensureTemplate(ctx)
}

// stop waits for a start under way, and stops the server if it is ours.
func (s *server) stop() error {
	s.startOnce.Do(func() {})
	if s.admin != nil {
		s.admin.Close()
	}
	if s.own == nil {
		return nil
	}
	return s.own.Stop()
}

// ensureTemplate makes the template unless it is there. Its name holds a hash of the schema: a server that serves
// several checkouts has one template for each.
func (s *server) ensureTemplate(ctx context.Context) error {
	hash := sha256.Sum256([]byte(settle.Schema()))
	s.template = "settle_template_" + hex.EncodeToString(hash[:6])
	conn, err := s.admin.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, lockTemplate); err != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	defer conn.Exec(ctx, unlockTemplate) //nolint:errcheck // the lock goes with the connection at the latest
	var exists bool
	if err := conn.QueryRow(ctx, templateExists, s.template).Scan(&exists); err != nil || exists {
		return err
	}
	if err := s.makeTemplate(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	return nil
}

// makeTemplate gives the database its name last, so that a half-made one is never copied.
func (s *server) makeTemplate(ctx context.Context, admin *pgx.Conn) error {
	unfinished := s.template + "_new"
	if err := execAll(ctx, admin,
		"drop database if exists "+quote(unfinished)+" with (force)",
		"create database "+quote(unfinished)+" template template0",
	); err != nil {
		return err
	}
	if err := s.applySchema(ctx, unfinished); err != nil {
		return err
	}
	return execAll(ctx, admin, "alter database "+quote(unfinished)+" rename to "+quote(s.template))
}

func (s *server) applySchema(ctx context.Context, database string) error {
	url, err := devenv.DatabaseURL(s.url, database)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, settle.Schema()); err != nil {
		return fmt.Errorf("apply the schema: %w", err)
	}
	return nil
}

// create copies the template and returns the connection string of the copy.
func (s *server) create(ctx context.Context, name string) (string, error) {
	statement := "create database " + quote(name) + " template " + quote(s.template) + s.copying
	if _, err := s.admin.Exec(ctx, statement); err != nil {
		return "", err
	}
	return devenv.DatabaseURL(s.url, name)
}

// drop cuts the connections that are still open.
func (s *server) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "drop database "+quote(name)+" with (force)")
	return err
}

func execAll(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func newDatabaseName() string { return "settle_test_" + strings.ToLower(rand.Text()[:16]) }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
