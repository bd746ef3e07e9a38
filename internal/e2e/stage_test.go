package e2e

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
	"github.com/settlemq/settle/internal/telemetry"
)

// callTimeout is how long a worker waits for the provider.
const callTimeout = 3 * time.Second

// stage is the real parts of a test. Each process of the program sends its spans to Jaeger.
type stage struct {
	t        *testing.T
	jaeger   *jaeger
	settle   string // the program
	store    *idemstore.Store
	js       jetstream.JetStream
	provider *provider.Server
	settings []string // of the program, as environment variables

	killing chan struct{} // closed when the call of the job to be killed stands still, its effect committed
	killed  chan struct{} // closed to let it go on
}

// newStage starts everything but workers. The first call with the key doomed stands still after its effect.
func newStage(t *testing.T, doomed string) *stage {
	t.Helper()
	s := &stage{t: t, jaeger: startJaeger(t), settle: buildSettle(t), killing: make(chan struct{}), killed: make(chan struct{})}
	// For this process, whose spans are the provider's, and for all that it starts. The SDK sends every five seconds by
	// default; what a killed process has not sent by then is lost with it.
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.jaeger.otlp)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	pool := devtest.Pool(t)
	s.store = idemstore.New(pool, time.Second)
	natsURL, js := devtest.JetStream(t)
	s.js = js
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	tracing, err := telemetry.Setup(t.Context(), "settle-provider", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tracing.Shutdown(context.Background()) })
	s.provider = provider.New(pool, provider.Options{Logger: log, OnPoint: s.holdOnce(doomed), Wrap: provider.Trace(tracing.TracerProvider())})
	s.settings = []string{
		"DATABASE_URL=" + pool.Config().ConnString(), "NATS_URL=" + natsURL, "SETTLE_PROVIDER_URL=" + s.serveProvider(),
		"SETTLE_CREATE_ORDERS=true", "SETTLE_HTTP_ADDR=off", "SETTLE_PROVIDER_TIMEOUT=" + callTimeout.String(),
		"SETTLE_BACKOFF_MIN=50ms", "SETTLE_BACKOFF_MAX=500ms",
		// The message comes again when the lease is over, so that the answer is never "wait".
		"SETTLE_LEASE=3s", "SETTLE_ACK_WAIT=4s",
	}
	return s
}

// buildSettle builds the program from this tree.
func buildSettle(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "settle")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/settle")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build settle: %v\n%s", err, out)
	}
	return binary
}

func (s *stage) serveProvider() (url string) {
	s.t.Helper()
	url, err := s.provider.Listen("127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		if err := s.provider.Run(ctx); err != nil {
			s.t.Errorf("provider: %v", err)
		}
	})
	s.t.Cleanup(func() { stop(); s.provider.Close(); running.Wait() })
	return url
}

func (s *stage) holdOnce(key string) func(context.Context, provider.Point, provider.Call) {
	var once sync.Once
	return func(ctx context.Context, at provider.Point, call provider.Call) {
		if at != provider.AfterCommit || call.Method != http.MethodPost || call.Key != key {
			return
		}
		once.Do(func() {
			close(s.killing)
			select {
			case <-s.killed:
			case <-ctx.Done():
			}
		})
	}
}

// run starts the program.
func (s *stage) run(arguments ...string) *rig.Worker {
	s.t.Helper()
	return rig.StartWorker(s.t, rig.WorkerOptions{Name: "settle", Binary: s.settle, Args: arguments, Env: s.settings})
}

// work starts a worker and returns what drains it: it gives up its spans as it ends.
func (s *stage) work() (worker *rig.Worker, drain func()) {
	s.t.Helper()
	worker = s.run("work", "--kind", chargeKind)
	return worker, func() {
		s.t.Helper()
		worker.Signal(syscall.SIGTERM)
		s.succeeds(worker)
	}
}

func (s *stage) succeeds(process *rig.Worker) {
	s.t.Helper()
	if e := process.Wait(soon); e.Code != 0 {
		s.t.Fatalf("a process ended with %s", e)
	}
}

// kill ends a worker while its call stands still: the effect is there, and nobody has saved it.
func (s *stage) kill(worker *rig.Worker) {
	s.t.Helper()
	worker.Signal(syscall.SIGKILL)
	if e := worker.Wait(soon); !e.Killed() {
		s.t.Fatalf("the worker ended with %s, want SIGKILL", e)
	}
	close(s.killed)
}

// purge takes all messages from the stream of jobs.
func (s *stage) purge() {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "JOBS")
	if err == nil {
		err = stream.Purge(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// publish sends a job with settle publish, which begins its trace.
func (s *stage) publish(j job) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "jobs")
	if err := os.WriteFile(file, []byte(j.body+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.succeeds(s.run("publish", "--kind", chargeKind, file))
}

// publishUntraced sends a job as a publisher does that knows nothing of traces.
func (s *stage) publishUntraced(j job) {
	s.t.Helper()
	if err := consumer.EnsureStreams(s.t.Context(), s.js, consumer.Config{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.js.PublishMsg(s.t.Context(), &nats.Msg{Subject: "jobs." + chargeKind, Data: []byte(j.body)}); err != nil {
		s.t.Fatal(err)
	}
}

// finished waits until a job has its result, and returns its row.
func (s *stage) finished(j job) (task idemstore.Task) {
	s.t.Helper()
	rig.Eventually(s.t, soon, j.key+" is finished", func() bool {
		var err error
		task, err = s.store.Find(s.t.Context(), chargeKind, j.key)
		return err == nil && task.Status == idemstore.Finished
	})
	return task
}
