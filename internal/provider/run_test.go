package provider

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// The address is a real one before anything is served, and a second Listen is refused.
func TestListen(t *testing.T) {
	t.Parallel()
	s := New(devtest.Pool(t), Options{})
	defer s.Close()
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Listen first") {
		t.Errorf("Run without Listen: %v", err)
	}
	url, err := s.Listen("127.0.0.1:0")
	if err != nil || strings.HasSuffix(url, ":0") || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("Listen: %q, %v", url, err)
	}
	if _, err := s.Listen("127.0.0.1:0"); err == nil {
		t.Error("a second Listen is accepted")
	}
	if _, err := New(nil, Options{}).Listen(strings.TrimPrefix(url, "http://")); err == nil {
		t.Error("a taken address is accepted")
	}
}

// Stopping lets a request under way finish, and its client has the whole answer.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	reached, proceed := make(chan struct{}), make(chan struct{})
	s := New(devtest.Pool(t), Options{OnPoint: func(_ context.Context, at Point, _ Call) {
		if at == Received {
			close(reached)
			<-proceed
		}
	}})
	url, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()

	type result struct {
		text string
		err  error
	}
	answered := make(chan result, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		response, err := client.Post(url+"/reports", "application/json", strings.NewReader(monthly))
		if err != nil {
			answered <- result{err: err}
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		answered <- result{string(text), err}
	}()
	<-reached
	stop()
	close(proceed)
	if got := <-answered; got.err != nil || !strings.Contains(got.text, `"replayed":false`) {
		t.Errorf("the request under way got %q, %v", got.text, got.err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if response, err := client.Get(url + "/stats"); err == nil {
		response.Body.Close()
		t.Error("it still serves")
	}
}

// Close ends an endless delay at once, before the effect, and sends no answer.
func TestCloseEndsDelays(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{})
	r := start(t, Options{OnPoint: func(_ context.Context, at Point, _ Call) {
		if at == Received {
			close(reached)
		}
	}})
	answered := make(chan reply, 1)
	go func() {
		answered <- r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", "k", "Settle-Fault", "delay-before=1h")
	}()
	<-reached
	r.server.Close()
	if got := <-answered; got.err == nil {
		t.Errorf("answered %d", got.status)
	}
	if n := one[int](r, `select count(*) from provider.charges`); n != 0 {
		t.Errorf("%d effects", n)
	}
	if n := one[int](r, `select count(*) from provider.requests where status is null`); n != 1 {
		t.Errorf("%d requests without an answer, want 1", n)
	}
	if got := r.send(t.Context(), http.MethodGet, "/charges/x", ""); got.err == nil {
		t.Errorf("a closed server answers %d", got.status)
	}
}

// Wrap sees every request, and faults still reach the connection through it.
func TestWrap(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 2)
	r := start(t, Options{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.URL.Path
			next.ServeHTTP(w, r)
		})
	}})
	r.expect(r.post("/reports", "k", monthly, ""), 201)
	if got := r.send(t.Context(), http.MethodPost, "/charges", order, "Settle-Fault", "close=after"); got.err == nil {
		t.Error("the connection was not closed")
	}
	if a, b := <-seen, <-seen; a != "/reports" || b != "/charges" {
		t.Errorf("seen %s, %s", a, b)
	}
}

// A database that is gone is the provider's failure, and nothing is promised.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.pool.Close()
	r.expect(r.post("/charges", "k", order, ""), 500, "error", "internal")
	r.expect(r.get("/stats"), 500)
}
