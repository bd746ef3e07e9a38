package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
)

// stage is what the labs of one run share: a database, and the names that they use in it.
type stage struct {
	options Options
	words   words
	program string // this program, of which workers are made

	databaseURL string
	application string // the name of the lab's own sessions in the database
	pool        *pgxpool.Pool
	store       *idemstore.Store
	base        int64  // the first task id
	kind        string // of the jobs
	account     string // identity of the provider; empty: its URL

	undo
}

// The names in a database of the lab's own.
const (
	firstTask  = 42
	reportKind = "report.create"
)

// setUp finds or makes the database. What has been started is stopped by tearDown, also after an error.
func (s *stage) setUp(ctx context.Context) (err error) {
	if s.program, err = os.Executable(); err != nil {
		return err
	}
	s.base, s.kind = firstTask, reportKind
	s.databaseURL = s.options.DatabaseURL
	if s.databaseURL == "" {
		err = s.startDatabase(ctx)
	} else {
		s.shareDatabase()
	}
	if err != nil {
		return err
	}
	return s.connect(ctx)
}

// startDatabase starts a server for this run alone. It need not survive the machine, only the processes that die in it.
func (s *stage) startDatabase(ctx context.Context) error {
	server, err := devenv.StartPostgres(ctx, devenv.PostgresOptions{})
	if err != nil {
		return fmt.Errorf("%w (or set DATABASE_URL)", err)
	}
	s.later(server.Stop)
	if s.databaseURL, err = server.CreateDatabase(ctx, "settle"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return idemstore.Migrate(ctx, conn)
}

// shareDatabase takes names that nobody else has. The kind too: a worker of the database's owner must not take up the
// tasks of a lab, nor one lab's worker those of another.
func (s *stage) shareDatabase() {
	run := 1_000_000_000 + rand.Int64N(9_000_000_000)
	s.base = 100 * run
	s.kind = fmt.Sprintf("lab.report_%d", run)
	s.account = fmt.Sprintf("lab %d", run)
}

func (s *stage) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.databaseURL)
	if err != nil {
		return errors.New("the database URL cannot be read; it is not shown because it may hold a password")
	}
	s.application = fmt.Sprintf("settle-lab-%d", s.base)
	config.ConnConfig.RuntimeParams["application_name"] = s.application
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	s.later(func() error { s.pool.Close(); return nil })
	s.store = idemstore.New(s.pool, shortLease)
	return s.store.CheckSchema(ctx)
}

// undo is what is to be stopped: the last first.
type undo struct{ closers []func() error }

func (u *undo) later(f func() error) { u.closers = append(u.closers, f) }

func (u *undo) tearDown() error {
	var errs []error
	for i := len(u.closers) - 1; i >= 0; i-- {
		errs = append(errs, u.closers[i]())
	}
	return errors.Join(errs...)
}
