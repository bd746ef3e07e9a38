package cases

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// workerName is the application_name of the sessions of a worker in this process.
const workerName = "worker-in-process"

// inProcess is a worker in the test's own process, for faults that need no process to die: its pool and its spans
// can be looked at.
type inProcess struct {
	pool  *pgxpool.Pool
	spans *tracetest.SpanRecorder
	// stop drains the worker. The end of the test does it at the latest.
	stop func()
}

// serve starts a worker in this process with the stage's settings. tune, if any, changes its pool.
func (s *stage) serve(kinds kindsOf, tune ...func(*pgxpool.Config)) *inProcess {
	s.t.Helper()
	p := &inProcess{pool: s.workerPool(tune), spans: tracetest.NewSpanRecorder()}
	api, err := handlers.NewClient(handlers.ClientOptions{URL: s.settings.ProviderURL, Timeout: s.settings.Timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(api.Close)
	config := s.settings.Config
	config.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans))
	config.Logger = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	engine, err := consumer.New(p.pool, s.connect(), config, kinds(api, s.settings)...)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("worker in process: %v", err)
		}
	})
	s.t.Cleanup(p.stop)
	return p
}

func (s *stage) workerPool(tune []func(*pgxpool.Config)) *pgxpool.Pool {
	s.t.Helper()
	config, err := pgxpool.ParseConfig(s.settings.DatabaseURL)
	if err != nil {
		s.t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = workerName
	for _, f := range tune {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(pool.Close)
	return pool
}

// connect is a client of the broker with the settings of a worker.
func (s *stage) connect() jetstream.JetStream {
	s.t.Helper()
	return connectTo(s.t, s.settings.NATSURL)
}

// connectTo is a client that stays, whatever becomes of the broker.
func connectTo(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	closed := make(chan struct{})
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); <-closed })
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// clientSpans counts the spans of requests to the provider, by method.
func (p *inProcess) clientSpans(method string) (n int) {
	for _, span := range p.spans.Ended() {
		if span.Name() == "HTTP "+method {
			n++
		}
	}
	return n
}

// settled counts what a worker behind the proxy said to the broker.
func settled(p *rig.NATSProxy, is func(rig.Publication) bool) (n int) {
	for _, x := range p.Settling() {
		if is(x) {
			n++
		}
	}
	return n
}

// firstUnknown checks that the first thing written down about a task is that its outcome is unknown, and that it
// was never called failed.
func (s *stage) firstUnknown(task idemstore.Task) {
	s.t.Helper()
	events := s.events(task)
	if len(events) == 0 || events[0].NewStatus != idemstore.Unknown {
		s.t.Errorf("%s: the audit does not begin with unknown: %+v", task.Key, events)
	}
	for _, e := range events {
		if e.NewStatus == idemstore.Failed {
			s.t.Errorf("%s was called failed: %s", task.Key, e.Reason)
		}
	}
}

// sent checks how many requests for an effect a job's attempts made, and how many attempts there were.
func (s *stage) sent(j job, wantW, wantAttempts int) {
	s.t.Helper()
	task, _ := s.find(j)
	if w, _ := s.requests(j); w != wantW || task.Attempt != wantAttempts {
		s.t.Errorf("%s: W=%d in %d attempts, want %d in %d", j.key, w, task.Attempt, wantW, wantAttempts)
	}
}

// refusals are the reasons of all messages that were not accepted, in their order.
func (s *stage) refusals() []string {
	s.t.Helper()
	return query[string](s, `select reason from settle.refusals order by sequence`)
}

// exec runs a statement in the stage's database.
func (s *stage) exec(sql string) {
	s.t.Helper()
	if _, err := s.pool.Exec(context.WithoutCancel(s.t.Context()), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// each runs a subtest for every case, all at once.
func each[C any](t *testing.T, cases map[string]C, run func(*testing.T, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}
