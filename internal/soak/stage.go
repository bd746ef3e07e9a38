package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
)

// The workers' clocks are short, so that a lease that is lost costs seconds and not minutes.
const (
	lease       = 2 * time.Second
	callTimeout = time.Second
	drain       = 5 * time.Second
)

// stage is the real parts of a run. The provider has a server of its own: it must remember while the other one is
// killed.
type stage struct {
	postgres      *devenv.Postgres
	nats          *devenv.NATSProcess
	url           string
	pool, effects *pgxpool.Pool
	conn          *nats.Conn
	js            jetstream.JetStream
	store         *idemstore.Store
	provider      *provider.Server
	address       string
	program       string
	logs          io.WriteCloser

	crew struct {
		sync.Mutex
		all     []*devenv.Program
		closed  bool
		err     error
		minders sync.WaitGroup
	}
	closers []func() error
}

func setUp(ctx context.Context, o Options) (s *stage, err error) {
	s = &stage{program: o.Program}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.tearDown())
		}
	}()
	for _, step := range []func(context.Context) error{s.openLog(o.WorkLogs), s.startPostgres, s.startNATS, s.startProvider} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	s.later(s.dismiss)
	for range o.Workers {
		if err := s.hire(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stage) openLog(name string) func(context.Context) error {
	return func(context.Context) (err error) {
		if name == "" {
			name = os.DevNull
		}
		s.logs, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			s.later(s.logs.Close)
		}
		return err
	}
}

func (s *stage) startPostgres(ctx context.Context) (err error) {
	if s.postgres, s.url, s.pool, err = s.database(ctx, "settle"); err != nil {
		return err
	}
	s.store = idemstore.New(s.pool, lease)
	_, _, s.effects, err = s.database(ctx, "provider")
	return err
}

func (s *stage) database(ctx context.Context, name string) (server *devenv.Postgres, url string, pool *pgxpool.Pool, err error) {
	// Processes are killed, the machine is not, so nothing has to wait for the disk.
	if server, err = devenv.StartPostgres(ctx, devenv.PostgresOptions{}); err != nil {
		return nil, "", nil, err
	}
	s.later(server.Stop)
	if url, err = server.CreateDatabase(ctx, name); err != nil {
		return nil, "", nil, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, "", nil, err
	}
	if err := errors.Join(idemstore.Migrate(ctx, conn), conn.Close(ctx)); err != nil {
		return nil, "", nil, err
	}
	if pool, err = pgxpool.New(ctx, url); err == nil {
		s.later(func() error { pool.Close(); return nil })
	}
	return server, url, pool, err
}

func (s *stage) startNATS(ctx context.Context) (err error) {
	if s.nats, err = devenv.StartNATSProcess(ctx, devenv.NATSOptions{}); err != nil {
		return err
	}
	s.later(s.nats.Stop)
	if s.conn, err = nats.Connect(s.nats.URL(), nats.Name("settle-soak"), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond)); err != nil {
		return err
	}
	s.later(func() error { s.conn.Close(); return nil })
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	return consumer.EnsureStreams(ctx, s.js, consumer.Config{})
}

func (s *stage) startProvider(context.Context) (err error) {
	s.provider = provider.New(s.effects, provider.Options{Logger: slog.New(slog.DiscardHandler)})
	if s.address, err = s.provider.Listen("127.0.0.1:0"); err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.provider.Run(serving) }()
	s.later(func() error {
		stop()
		s.provider.Close()
		return <-ended
	})
	return nil
}

// hire starts one worker, and another one when it ends, as an orchestrator would.
func (s *stage) hire() error {
	c := &s.crew
	c.Lock()
	defer c.Unlock()
	if c.closed {
		return nil
	}
	cmd := exec.Command(s.program, "work", "--kind", "payment.charge", "--kind", "receipt.send", "--kind", "contact.sync") //nolint:gosec,noctx // our own program; dismiss ends it
	cmd.Env = append(devenv.OwnEnvironment(), "OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=",
		"DATABASE_URL="+s.url, "NATS_URL="+s.nats.URL(), "SETTLE_PROVIDER_URL="+s.address,
		"SETTLE_ACK_WAIT="+lease.String(), "SETTLE_LEASE="+lease.String(), "SETTLE_DEADLINE=4s", "SETTLE_PROVIDER_TIMEOUT="+callTimeout.String(),
		"SETTLE_BACKOFF_MIN=100ms", "SETTLE_BACKOFF_MAX=2s", "SETTLE_DRAIN_TIMEOUT="+drain.String(), "SETTLE_RECOVER_EVERY=2s",
		// Faults come far closer together than in any production, and none of them may need a person.
		"SETTLE_MAX_FAILURES=1000", "SETTLE_CREATE_ORDERS=true", "SETTLE_HTTP_ADDR=off", "SETTLE_LOG_FORMAT=text")
	cmd.Stdout, cmd.Stderr = s.logs, s.logs
	w, err := devenv.StartProgram(cmd)
	if err != nil {
		return err
	}
	c.all = append(c.all, w)
	c.minders.Go(func() { s.mind(w) })
	return nil
}

func (s *stage) mind(w *devenv.Program) {
	<-w.Exited()
	c := &s.crew
	c.Lock()
	for i, x := range c.all {
		if x == w {
			c.all = append(c.all[:i:i], c.all[i+1:]...)
			break
		}
	}
	c.Unlock()
	if err := s.hire(); err != nil {
		c.Lock()
		c.err = err
		c.Unlock()
	}
}

// workers are those that are there now.
func (s *stage) workers() []*devenv.Program {
	s.crew.Lock()
	defer s.crew.Unlock()
	return append([]*devenv.Program(nil), s.crew.all...)
}

// dismiss drains all workers and waits for them.
func (s *stage) dismiss() error {
	c := &s.crew
	c.Lock()
	c.closed = true
	all := append([]*devenv.Program(nil), c.all...)
	c.Unlock()
	var stopping sync.WaitGroup
	for _, w := range all {
		stopping.Go(func() {
			w.Signal(syscall.SIGCONT)
			w.Stop(drain + 15*time.Second)
		})
	}
	stopping.Wait()
	c.minders.Wait()
	return c.err
}

// later adds something to undo; the last is undone first.
func (s *stage) later(f func() error) { s.closers = append(s.closers, f) }

func (s *stage) tearDown() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *stage) number(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (n int, err error) {
	if err = pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return n, nil
}
