package image

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/deploy"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

const (
	soon  = 3 * time.Minute
	drain = 3 * time.Second
)

// standstill is a provider that takes charges and answers them only when it is let.
type standstill struct {
	mu      sync.Mutex
	arrived map[string]chan struct{} // closed by who lets it answer
}

func (p *standstill) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusServiceUnavailable) // look-ups cannot tell
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client has gone
	p.mu.Lock()
	let := make(chan struct{})
	p.arrived[r.Header.Get("Idempotency-Key")] = let
	p.mu.Unlock()
	select {
	case <-let:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"charge_id": "ch_1", "status": "succeeded", "replayed": false}`)
	case <-r.Context().Done():
	}
}

func (p *standstill) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.arrived)
}

// answer lets a call go.
func (p *standstill) answer(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.arrived[key])
}

// A worker that is told to stop with calls under way saves what is answered within its drain time, cuts the rest short, and
// has ended within the time after which it may be killed.
func TestAWorkerWithCallsUnderWayStopsInTime(t *testing.T) {
	binary, err := deploy.Build(t.TempDir(), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	provider := &standstill{arrived: map[string]chan struct{}{}}
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	pool := devtest.Pool(t)
	broker, _ := devtest.JetStream(t)
	env := []string{
		"DATABASE_URL=" + pool.Config().ConnString(), "NATS_URL=" + broker, "SETTLE_PROVIDER_URL=" + server.URL, "SETTLE_CREATE_ORDERS=true",
		"SETTLE_HTTP_ADDR=127.0.0.1:0", "SETTLE_DRAIN_TIMEOUT=" + drain.String(), "SETTLE_DEADLINE=10m", "SETTLE_PROVIDER_TIMEOUT=10m",
		// Telemetry that goes nowhere takes all the time that it is given.
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://192.0.2.1:4317",
	}
	jobs := filepath.Join(t.TempDir(), "jobs")
	if err := os.WriteFile(jobs, []byte(order(1)+order(2)), 0o600); err != nil {
		t.Fatal(err)
	}
	publish := rig.StartWorker(t, rig.WorkerOptions{Name: "publish", Binary: binary, Args: []string{"publish", "--kind", "payment.charge", jobs}, Env: env[:2]})
	if e := publish.Wait(soon); e.Code != 0 {
		t.Fatalf("publish ended with %s", e)
	}
	worker := rig.StartWorker(t, rig.WorkerOptions{Name: "work", Binary: binary, Args: []string{"work"}, Env: env})
	rig.Eventually(t, soon, "both charges are under way", func() bool { return provider.calls() == 2 })

	worker.Signal(syscall.SIGTERM)
	began := time.Now()
	rig.Eventually(t, soon, "the worker drains", func() bool { return strings.Contains(worker.Output(), `"msg":"draining"`) })
	provider.answer("order_1")
	if e := worker.Wait(soon); e.Code != 0 {
		t.Errorf("the worker ended with %s", e)
	}
	took := time.Since(began)
	t.Logf("ended %s after SIGTERM; it may take %s", took.Round(time.Millisecond), drain+deploy.BeyondDrain)
	if took > drain+deploy.BeyondDrain {
		t.Errorf("it took %s, more than %s", took, drain+deploy.BeyondDrain)
	}
	store := idemstore.New(pool, time.Second)
	for key, want := range map[string]idemstore.Status{"order_1": idemstore.Finished, "order_2": idemstore.Unknown} {
		task, err := store.Find(t.Context(), "payment.charge", key)
		if err != nil || task.Status != want {
			t.Errorf("%s is %s (%v), want %s", key, task.Status, err, want)
		}
	}
}

func order(n int) string {
	return fmt.Sprintf(`{"order_id":"%d","customer_id":"c_1","amount":1200,"currency":"EUR"}`+"\n", n)
}
