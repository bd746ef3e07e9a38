package browser

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

const chargeKind = "payment.charge"

// stage is the real parts of a test: database, broker, provider and program.
type stage struct {
	t        *testing.T
	settle   string // the program
	pool     *pgxpool.Pool
	store    *idemstore.Store
	js       jetstream.JetStream
	provider *provider.Server
	settings []string // of the program, as environment variables

	killing chan struct{} // closed when the call of the job to be killed stands still, its effect committed
	killed  chan struct{} // closed to let it go on
}

// newStage starts everything but workers and the screen. The first call with the key doomed stands still after its effect.
func newStage(t *testing.T, doomed string) *stage {
	t.Helper()
	pool := devtest.Pool(t)
	natsURL, js := devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, settle: buildSettle(t), pool: pool, store: idemstore.New(pool, time.Second), js: js,
		killing: make(chan struct{}), killed: make(chan struct{})}
	s.provider = provider.New(pool, provider.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), OnPoint: s.holdOnce(doomed)})
	s.settings = []string{
		"DATABASE_URL=" + pool.Config().ConnString(), "NATS_URL=" + natsURL, "SETTLE_PROVIDER_URL=" + s.serveProvider(),
		"SETTLE_CREATE_ORDERS=true", "SETTLE_HTTP_ADDR=off", "SETTLE_PROVIDER_TIMEOUT=3s", "SETTLE_BACKOFF_MIN=50ms", "SETTLE_BACKOFF_MAX=500ms",
		// The message of a killed worker comes again when its lease is over, so that the answer is never "wait".
		"SETTLE_LEASE=2s", "SETTLE_ACK_WAIT=3s",
		"SETTLE_ADMIN_ADDR=127.0.0.1:0", "SETTLE_ADMIN_USERS=" + filepath.Join(t.TempDir(), "users"),
		"SETTLE_TRACE_URL=http://jaeger.example/trace/{trace_id}",
	}
	return s
}

// program is built once for all tests.
var program struct {
	once   sync.Once
	binary string
	err    error
}

// buildSettle builds the program from this tree. It stays in bin, like what make build makes.
func buildSettle(t *testing.T) string {
	t.Helper()
	program.once.Do(func() {
		if program.binary, program.err = filepath.Abs("../../bin/settle-browser-test"); program.err != nil {
			return
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program.binary, "./cmd/settle")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			program.err = errors.Join(err, errors.New(string(out)))
		}
	})
	if program.err != nil {
		t.Fatalf("build settle: %v", program.err)
	}
	return program.binary
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
		if key == "" || at != provider.AfterCommit || call.Method != http.MethodPost || call.Key != key {
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

func (s *stage) faults(faults ...provider.Fault) {
	s.t.Helper()
	if err := s.provider.SetFaults(faults); err != nil {
		s.t.Fatal(err)
	}
}

// run starts the program.
func (s *stage) run(arguments ...string) *rig.Worker {
	s.t.Helper()
	return rig.StartWorker(s.t, rig.WorkerOptions{Name: "settle", Binary: s.settle, Args: arguments, Env: s.settings})
}

// does runs the program to its end.
func (s *stage) does(arguments ...string) (output string) {
	s.t.Helper()
	process := s.run(arguments...)
	if e := process.Wait(soon); e.Code != 0 {
		s.t.Fatalf("settle %s ended with %s:\n%s", strings.Join(arguments, " "), e, process.Output())
	}
	return process.Output()
}

// drain ends a process that serves.
func (s *stage) drain(process *rig.Worker) {
	s.t.Helper()
	process.Signal(syscall.SIGTERM)
	if e := process.Wait(soon); e.Code != 0 {
		s.t.Errorf("a process ended with %s", e)
	}
}

// person is somebody who may sign in.
type person struct{ name, password string }

// person lets somebody sign in.
func (s *stage) person(name, role string) person {
	s.t.Helper()
	lines := strings.Fields(s.does("admin", "user", "add", "--generate", "--role", role, name))
	return person{name, lines[len(lines)-1]}
}

var listens = regexp.MustCompile(`the support screen listens.*(http://127\.0\.0\.1:[0-9]+)`)

// serve starts settle admin. It ends with the test, by the signal that ends it in production.
func (s *stage) serve() (url string) {
	s.t.Helper()
	process := s.run("admin")
	s.t.Cleanup(func() { s.drain(process) })
	rig.Eventually(s.t, soon, "settle admin listens", func() bool {
		select {
		case <-process.Exited():
			s.t.Fatalf("settle admin ended:\n%s", process.Output())
		default:
		}
		found := listens.FindStringSubmatch(process.Output())
		if found != nil {
			url = found[1]
		}
		return found != nil
	})
	return url
}

// publish sends a message as somebody does who knows nothing of the program.
func (s *stage) publish(subject, body string, headers ...string) {
	s.t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// reaches waits until a charge stands as it should, and returns its row.
func (s *stage) reaches(key, what string, holds func(idemstore.Task) bool) (task idemstore.Task) {
	s.t.Helper()
	rig.Eventually(s.t, soon, key+" is "+what, func() bool {
		var err error
		task, err = s.store.Find(s.t.Context(), chargeKind, key)
		return err == nil && holds(task)
	})
	return task
}

// becomes waits until a charge has a status.
func (s *stage) becomes(key string, status idemstore.Status) idemstore.Task {
	s.t.Helper()
	return s.reaches(key, string(status), func(t idemstore.Task) bool { return t.Status == status })
}

// exec changes rows that are not the engine's.
func (s *stage) exec(sql string, arguments ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, arguments...); err != nil {
		s.t.Fatal(err)
	}
}

// refused waits until so many messages were refused.
func (s *stage) refused(n int) {
	s.t.Helper()
	rig.Eventually(s.t, soon, "the refusals are stored", func() bool {
		var found int
		return s.pool.QueryRow(s.t.Context(), `select count(*) from settle.refusals`).Scan(&found) == nil && found == n
	})
}
