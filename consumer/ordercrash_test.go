package consumer

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// crmWorker is a worker process for crm.push at a provider elsewhere. It acts on itself at its points.
func crmWorker(ctx context.Context) error {
	var s crmSettings
	if err := json.Unmarshal([]byte(os.Getenv(crmVariable)), &s); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := nats.Connect(s.NATS)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	kind := crmKind(nil)
	kind.Perform = func(ctx context.Context, a *Attempt[pushJob]) (paid, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.CRM, http.NoBody)
		if err != nil {
			return paid{}, err
		}
		req.Header.Set("Idempotency-Key", a.ProviderKey)
		res, err := (&http.Client{Transport: &Transport{}}).Do(req)
		if err != nil {
			return paid{}, err
		}
		defer func() { _ = res.Body.Close() }()
		var out paid
		err = json.NewDecoder(res.Body).Decode(&out)
		return out, err
	}
	s.Config.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rig.ChildPoints()))
	s.Config.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
	e, err := New(pool, js, s.Config, kind)
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

const crmVariable = "SETTLE_CRM_WORKER"

// crmSettings are what a worker process is told.
type crmSettings struct {
	Database, NATS, CRM string
	Config              Config
}

// A worker that dies while it holds the guard: nothing of the contact is sent until its task was taken over and the CRM
// asked, whether or not its request had left.
func TestD35WorkerDiesHoldingTheGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		span     string
		requests int // in the end
	}{
		"before it sends":  {spanGuard, 2},
		"after the effect": {spanPerform, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCRM(t)
			s := crmSettings{b.pool.Config().ConnString(), b.js.Conn().ConnectedUrl(), b.pay.server.URL, b.conf}
			s.Config.Logger, s.Config.Lease = nil, 5*time.Second // time in which the next event finds its task held
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			seven := b.event(7)
			w := rig.StartWorker(t, rig.WorkerOptions{Name: "crm", Env: []string{crmVariable + "=" + string(text)},
				Points: []rig.Point{{Span: c.span, Edge: rig.End, Action: rig.Kill}}})
			if exit := w.Wait(30 * time.Second); !exit.Killed() {
				t.Fatalf("the worker ended with %s", exit)
			}
			eight := b.event(8)
			b.serve(b.push)
			b.awaitHeld(eight)
			b.awaitStatus(seven, idemstore.Finished)
			b.awaitStatus(eight, idemstore.Finished)
			b.inCRM(c.requests, seven, eight)
		})
	}
}
