package kindbreak

import (
	"context"
	"errors"
	"fmt"
	"io"
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
)

// The workers' clocks are short, so that a lease that is lost costs seconds and not minutes.
const (
	lease = 2 * time.Second
	drain = 5 * time.Second
)

// stage is the real parts of a run.
type stage struct {
	url    string
	broker string
	store  *idemstore.Store
	js     jetstream.JetStream
	worker func() *exec.Cmd
	logs   io.Writer

	mu      sync.Mutex
	at      string // where the workers' provider is
	now     *devenv.Program
	closed  bool
	minders sync.WaitGroup
	failed  chan error
	closers []func() error
}

func (s *stage) later(f func() error) { s.closers = append(s.closers, f) }

// tearDown undoes what was set up, the last first.
func (s *stage) tearDown() (err error) {
	for i := len(s.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closers[i]())
	}
	return err
}

func (s *stage) setUp(ctx context.Context) error {
	s.failed = make(chan error, 1)
	postgres, err := devenv.StartPostgres(ctx, devenv.PostgresOptions{})
	if err != nil {
		return err
	}
	s.later(postgres.Stop)
	if s.url, err = postgres.CreateDatabase(ctx, "settle"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	if err := errors.Join(idemstore.Migrate(ctx, conn), conn.Close(ctx)); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.url)
	if err != nil {
		return err
	}
	s.later(func() error { pool.Close(); return nil })
	s.store = idemstore.New(pool, lease)
	return s.startNATS(ctx)
}

func (s *stage) startNATS(ctx context.Context) error {
	broker, err := devenv.StartNATSProcess(ctx, devenv.NATSOptions{})
	if err != nil {
		return err
	}
	s.later(broker.Stop)
	s.broker = broker.URL()
	conn, err := nats.Connect(s.broker, nats.Name("settle-break"))
	if err != nil {
		return err
	}
	s.later(func() error { conn.Close(); return nil })
	if s.js, err = jetstream.New(conn); err != nil {
		return err
	}
	return consumer.EnsureStreams(ctx, s.js, consumer.Config{})
}

// hire starts a worker, and another one when it is killed, as an orchestrator would. One that ends by itself cannot work.
func (s *stage) hire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	cmd := s.worker()
	// Later ones count. The file's own variables are among those of this process.
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=", "OTEL_METRICS_EXPORTER=",
		"DATABASE_URL="+s.url, "NATS_URL="+s.broker, "SETTLE_PROVIDER_URL="+s.at, "SETTLE_ACK_WAIT="+lease.String(), "SETTLE_LEASE="+lease.String(),
		"SETTLE_BACKOFF_MIN=100ms", "SETTLE_BACKOFF_MAX=1s", "SETTLE_RECOVER_EVERY=2s", "SETTLE_DRAIN_TIMEOUT="+drain.String(),
		"SETTLE_HTTP_ADDR=off", "SETTLE_LOG_FORMAT=text")
	cmd.Stdout, cmd.Stderr = s.logs, s.logs
	w, err := devenv.StartProgram(cmd)
	if err != nil {
		return err
	}
	s.now = w
	s.minders.Go(func() { s.mind(w) })
	return nil
}

func (s *stage) mind(w *devenv.Program) {
	<-w.Exited()
	err := errors.New("the worker ended by itself; its log says why")
	if w.ExitCode() < 0 { // it was killed
		err = s.hire()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !s.closed && len(s.failed) == 0 {
		s.failed <- err
	}
}

func (s *stage) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Signal(syscall.SIGKILL)
}

func (s *stage) dismiss() error {
	s.mu.Lock()
	s.closed = true
	w := s.now
	s.mu.Unlock()
	if w != nil {
		w.Stop(drain + 15*time.Second)
	}
	s.minders.Wait()
	return nil
}

// publish stores a job under a message id of its own.
func (s *stage) publish(ctx context.Context, kind string, job []byte, id string) error {
	if _, err := s.js.Publish(ctx, "jobs."+kind, job, jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("publish a job: %w", err)
	}
	return nil
}

const lookEvery = 50 * time.Millisecond

// await looks until f says so. It gives up when limit is over, without an error, or when nobody can work.
func (s *stage) await(ctx context.Context, limit time.Duration, f func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := f(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case err := <-s.failed:
			return err
		case <-limited.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}
