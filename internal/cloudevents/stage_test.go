package cloudevents

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	cejetstream "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// soon bounds every wait: far more than anything here takes, even on a loaded machine.
const soon = 60 * time.Second

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

// stage is real servers, the stand-in provider, and processes of the program.
type stage struct {
	t      *testing.T
	js     jetstream.JetStream
	store  *idemstore.Store
	binary string   // the program
	env    []string // of the program
	effect func(key string) (requests, effects int)
}

func newStage(t *testing.T) *stage {
	t.Helper()
	pool := devtest.Pool(t)
	url, js := devtest.JetStream(t)
	s := &stage{t: t, js: js, store: idemstore.New(pool, time.Second), binary: buildSettle(t)}
	p := provider.New(pool, provider.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	s.env = []string{"DATABASE_URL=" + pool.Config().ConnString(), "NATS_URL=" + url, "SETTLE_PROVIDER_URL=" + s.serve(p),
		"SETTLE_CREATE_ORDERS=true", "SETTLE_HTTP_ADDR=off", "SETTLE_EVENT_SOURCE=https://shop.example/settle",
		"SETTLE_EVENT_TYPE_PREFIX=com.acme.",
		// A repeat that meets its task at work waits for as long as that has it.
		"SETTLE_LEASE=5s"}
	s.effect = func(key string) (requests, effects int) {
		t.Helper()
		err := pool.QueryRow(t.Context(), `select (select count(*) from provider.requests where key = $1 and method = 'POST'),
			(select count(*) from provider.charges where idempotency_key = $1)`, key).Scan(&requests, &effects)
		if err != nil {
			t.Fatal(err)
		}
		return requests, effects
	}
	return s
}

// serve runs the provider until the test ends.
func (s *stage) serve(p *provider.Server) (url string) {
	s.t.Helper()
	url, err := p.Listen("127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			s.t.Errorf("provider: %v", err)
		}
	})
	s.t.Cleanup(func() { stop(); p.Close(); running.Wait() })
	return url
}

// settle starts the program; it ends with the test.
func (s *stage) settle(args ...string) *rig.Worker {
	s.t.Helper()
	return rig.StartWorker(s.t, rig.WorkerOptions{Name: args[0], Binary: s.binary, Args: args, Env: s.env})
}

// run runs the program to its end and returns what it printed.
func (s *stage) run(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.binary, args...)
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("settle %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// stream makes somebody else's stream.
func (s *stage) stream(name string, subjects ...string) {
	s.t.Helper()
	if _, err := s.js.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects}); err != nil {
		s.t.Fatal(err)
	}
}

// send publishes an event with the client of the SDK.
func (s *stage) send(stream, subject string, e event.Event, structured bool) {
	s.t.Helper()
	sender, err := cejetstream.NewSenderFromConn(s.js.Conn(), stream, subject, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := client.New(sender)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx := s.t.Context()
	if structured {
		ctx = binding.WithForceStructured(ctx)
	}
	if result := c.Send(ctx, e); protocol.IsUndelivered(result) {
		s.t.Fatalf("send: %v", result)
	}
}

// receive takes n events with the client of the SDK.
func (s *stage) receive(stream, subject string, n int) (events []event.Event) {
	s.t.Helper()
	consumer, err := cejetstream.NewConsumerFromConn(s.js.Conn(), stream, subject, nil, []nats.SubOpt{nats.DeliverAll()})
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := client.New(consumer)
	if err != nil {
		s.t.Fatal(err)
	}
	got := make(chan event.Event, n)
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.StartReceiver(ctx, func(e event.Event) { got <- e })
	}()
	for range n {
		events = append(events, rig.Await(s.t, got, soon, "an event"))
	}
	stop()
	if err := rig.Await(s.t, ended, soon, "the end of the receiver"); err != nil {
		s.t.Errorf("receiver: %v", err)
	}
	return events
}

// finished waits for the task of an order.
func (s *stage) finished(order string) (task idemstore.Task) {
	s.t.Helper()
	rig.Eventually(s.t, soon, "order "+order+" is paid", func() bool {
		var err error
		task, err = s.store.Find(s.t.Context(), "payment.charge", "order_"+order)
		return err == nil && task.Status == idemstore.Finished
	})
	return task
}
