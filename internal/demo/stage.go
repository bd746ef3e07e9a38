package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
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

// stage is the real parts of a run: servers, connections, worker processes. The provider has a database of its
// own: its tables are not the workers' to write.
type stage struct {
	options Options
	logs    *os.File // what the workers say

	postgres    *devenv.Postgres
	nats        *devenv.NATS
	settleURL   string
	providerURL string

	tasks    *pgxpool.Pool
	provided *pgxpool.Pool
	store    *idemstore.Store
	conn     *nats.Conn
	js       jetstream.JetStream
	provider *provider.Server
	address  string // of the provider

	workers *crew
	woken   bool // the frozen worker was continued
	closers []func() error
}

// setUp starts everything but the workers. What has been started is in closers, also on an error.
func (s *stage) setUp(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.startServers, s.makeDatabases, s.connect, s.startProvider} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) startServers(ctx context.Context) (err error) {
	if s.logs, err = os.CreateTemp("", "settle-demo-*.log"); err != nil {
		return err
	}
	s.later(func() error { return errors.Join(s.logs.Close(), os.Remove(s.logs.Name())) })
	if s.postgres, err = devenv.StartPostgres(ctx, devenv.PostgresOptions{Durable: true}); err != nil {
		return err
	}
	s.later(s.postgres.Stop)
	if s.nats, err = devenv.StartNATS(devenv.NATSOptions{}); err != nil {
		return err
	}
	s.later(s.nats.Stop)
	return nil
}

func (s *stage) makeDatabases(ctx context.Context) (err error) {
	if s.settleURL, err = s.database(ctx, "settle"); err != nil {
		return err
	}
	s.providerURL, err = s.database(ctx, "provider")
	return err
}

func (s *stage) database(ctx context.Context, name string) (url string, err error) {
	if url, err = s.postgres.CreateDatabase(ctx, name); err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return url, idemstore.Migrate(ctx, conn)
}

func (s *stage) connect(ctx context.Context) (err error) {
	if s.tasks, err = s.pool(ctx, s.settleURL); err != nil {
		return err
	}
	if s.provided, err = s.pool(ctx, s.providerURL); err != nil {
		return err
	}
	s.store = idemstore.New(s.tasks, workerLease)
	if s.conn, err = nats.Connect(s.nats.URL(), nats.Name("settle-demo")); err != nil {
		return err
	}
	s.later(func() error { s.conn.Close(); return nil })
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	if err := consumer.EnsureStreams(ctx, s.js, consumer.Config{}); err != nil {
		return err
	}
	if s.options.Sabotage == NoFence {
		_, err = s.tasks.Exec(ctx, dropFence)
	}
	return err
}

// dropFence makes a save that matched no row pass: its local rows commit as if the task were still held.
const dropFence = `create or replace function settle.fence(held boolean, task bigint) returns boolean
language sql immutable as 'select true'`

func (s *stage) pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, url)
	if err == nil {
		s.later(func() error { pool.Close(); return nil })
	}
	return pool, err
}

func (s *stage) startProvider(context.Context) (err error) {
	quiet := slog.New(slog.NewTextHandler(s.logs, nil))
	s.provider = provider.New(s.provided, provider.Options{Logger: quiet, OnPoint: s.onPoint, Wrap: s.options.Traced})
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

// onPoint is the provider's callback: the aim of the kills.
func (s *stage) onPoint(_ context.Context, at provider.Point, call provider.Call) {
	if at == provider.AfterCommit {
		s.workers.killInMidCall(call)
	}
}

// later adds something to undo; the last is undone first.
func (s *stage) later(f func() error) { s.closers = append(s.closers, f) }

// tearDown stops what was started, in the reverse order: workers drain before their servers go.
func (s *stage) tearDown() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// environment is what a worker process, or a person by hand, needs to use these parts.
func (s *stage) environment() []string {
	return []string{
		"DATABASE_URL=" + s.settleURL,
		"NATS_URL=" + s.nats.URL(),
		"SETTLE_PROVIDER_URL=" + s.address,
		"SETTLE_CREATE_ORDERS=true",
	}
}

// tell prints how to use a stage by hand.
func (s *stage) tell(w io.Writer, at screen) {
	fmt.Fprintf(w, "\nEverything keeps running until Ctrl-C.\n\n")
	fmt.Fprintf(w, "  screen       %s    (user %s, password %s; look for order_18452)\n", at.url, at.user, at.password)
	fmt.Fprintf(w, "  provider     %s    (its database: %s)\n", s.address, s.providerURL)
	fmt.Fprintf(w, "  JetStream    %s    (monitoring: %s)\n", s.nats.URL(), s.nats.MonitorURL())
	fmt.Fprintf(w, "  worker logs  %s\n\nTo use it from another terminal:\n\n", s.logs.Name())
	for _, e := range s.environment() {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(w, "  export %s='%s'\n", name, value)
	}
	fmt.Fprintf(w, "\n  settle tasks list\n  settle tasks show payment.charge/order_18452\n")
}

const (
	workerLease   = 2 * time.Second
	workerAckWait = 2 * time.Second
	callTimeout   = time.Second
)
