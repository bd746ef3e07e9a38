package pooler

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// soon bounds every wait: far more than anything here takes, even on a loaded machine.
const soon = 120 * time.Second

func TestMain(m *testing.M) { devtest.Main(m) }

// stage is the real parts of a test: the program behind a pooler, everything else directly at the server.
type stage struct {
	t        *testing.T
	pool     *pgxpool.Pool // past the pooler
	js       jetstream.JetStream
	settle   string // the program
	settings []string
	pooler   *pgbouncer
}

// newStage starts everything but workers, with a PgBouncer that has two connections to the server.
func newStage(t *testing.T, settle, poolMode string) *stage {
	t.Helper()
	s := &stage{t: t, pool: devtest.Pool(t), settle: settle}
	s.pooler = startPgBouncer(t, s.pool.Config().ConnString(), 2, "pool_mode = "+poolMode)
	natsURL, js := devtest.JetStream(t)
	s.js = js
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	s.settings = []string{"NATS_URL=" + natsURL, "SETTLE_PROVIDER_URL=" + s.startProvider(), "SETTLE_CREATE_ORDERS=true",
		"SETTLE_HTTP_ADDR=off", "SETTLE_SLOTS=64"}
	return s
}

func (s *stage) startProvider() (url string) {
	s.t.Helper()
	server := provider.New(s.pool, provider.Options{Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	url, err := server.Listen("127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			s.t.Errorf("provider: %v", err)
		}
	})
	s.t.Cleanup(func() { stop(); server.Close(); running.Wait() })
	return url
}

// buildSettle builds the program from this tree.
func buildSettle(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "settle")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/settle")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build settle: %v\n%s", err, out)
	}
	return binary
}

// run starts the program with a database.
func (s *stage) run(database string, arguments ...string) *rig.Worker {
	s.t.Helper()
	return rig.StartWorker(s.t, rig.WorkerOptions{Name: "settle", Binary: s.settle, Args: arguments,
		Env: append([]string{"DATABASE_URL=" + database}, s.settings...)})
}

// ends waits for the end of a process, which must have an exit code.
func (s *stage) ends(process *rig.Worker, code int) {
	s.t.Helper()
	if e := process.Wait(soon); e.Code != code || e.Signal != 0 {
		s.t.Fatalf("a process ended with %s, want exit code %d:\n%s", e, code, process.Output())
	}
}

// drain ends a worker that serves.
func (s *stage) drain(worker *rig.Worker) {
	s.t.Helper()
	worker.Signal(syscall.SIGTERM)
	s.ends(worker, 0)
}

// publish sends charges and contacts.
func (s *stage) publish(charges, contacts int) {
	s.t.Helper()
	send := func(kind, body string) {
		if _, err := s.js.PublishMsg(s.t.Context(), &nats.Msg{Subject: "jobs." + kind, Data: []byte(body)}); err != nil {
			s.t.Fatalf("publish: %v", err)
		}
	}
	for n := range charges {
		send("payment.charge", fmt.Sprintf(`{"order_id":"%d","customer_id":"c_1","amount":1200,"currency":"EUR"}`, n))
	}
	for n := range contacts {
		send("contact.sync", fmt.Sprintf(`{"source_id":"%d","version":1,"name":"Ada","email":"ada@example.com"}`, n))
	}
}

// scan reads one row, past the pooler.
func (s *stage) scan(sql string, into ...any) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), sql).Scan(into...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// holds waits until every message is settled, and checks that each job went through in one attempt, with one effect.
func (s *stage) holds(charges, contacts int) {
	s.t.Helper()
	rig.Eventually(s.t, soon, "every message is settled", func() bool { return rig.StreamMessages(s.t, s.js, "JOBS") == 0 })
	var e, w, rows, finished, smooth int
	s.scan(`select (select count(*) from provider.charges where status = 'succeeded'),
		(select count(*) from provider.requests where method = 'POST'),
		(select count(*) from shop.contacts),
		(select count(*) from settle.tasks where kind <> 'receipt.send' and status = 'finished'),
		(select count(*) from settle.tasks where kind <> 'receipt.send' and attempts = 1 and failures = 0)`, &e, &w, &rows, &finished, &smooth)
	jobs := charges + contacts
	if e != charges || w != charges || rows != contacts || finished != jobs || smooth != jobs {
		s.t.Errorf("E=%d and W=%d of %d charges, %d of %d contacts; of %d tasks %d finished, %d in one attempt",
			e, w, charges, rows, contacts, jobs, finished, smooth)
	}
}
