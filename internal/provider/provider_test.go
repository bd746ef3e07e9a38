package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const (
	monthly = `{"task_id": 42, "report_type": "monthly"}`
	order   = `{"order_id": "18452", "customer_id": "c_17", "amount": 1200, "currency": "EUR"}`
)

// rig is a provider on a port of its own, a database of its own, and a client that hides nothing.
type rig struct {
	t      *testing.T
	server *Server
	pool   *pgxpool.Pool
	client *http.Client
	url    string
}

// start serves until the test is over. The client follows no redirects and keeps no connection, so that each
// request is one.
func start(t *testing.T, options Options) *rig {
	t.Helper()
	r := &rig{t: t, pool: devtest.Pool(t), client: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	r.server = New(r.pool, options)
	url, err := r.server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = url
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return r
}

// reply is an answer as the client saw it; err is what reading it ended with.
type reply struct {
	status int
	header http.Header
	text   string
	fields map[string]any // of a JSON body, with numbers as written
	err    error
}

// send makes one request. Header pairs with an empty value are left out. It is safe in goroutines.
func (r *rig) send(ctx context.Context, method, path, body string, header ...string) reply {
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] != "" {
			request.Header.Add(header[i], header[i+1])
		}
	}
	response, err := r.client.Do(request)
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	got := reply{status: response.StatusCode, header: response.Header, text: string(text), err: err}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&got.fields) != nil {
		got.fields = nil
	}
	return got
}

// field returns a field as text.
func (got reply) field(name string) string { return fmt.Sprint(got.fields[name]) }

// post and get fail the test where no whole answer comes.
func (r *rig) post(path, key, body, fault string) reply {
	r.t.Helper()
	return r.whole(r.send(r.t.Context(), http.MethodPost, path, body, "Idempotency-Key", key, "Settle-Fault", fault))
}

func (r *rig) get(path string) reply {
	r.t.Helper()
	return r.whole(r.send(r.t.Context(), http.MethodGet, path, ""))
}

func (r *rig) whole(got reply) reply {
	r.t.Helper()
	if got.err != nil {
		r.t.Fatalf("no whole answer: %v", got.err)
	}
	return got
}

// rules sets rules over HTTP.
func (r *rig) rules(list string) {
	r.t.Helper()
	if got := r.whole(r.send(r.t.Context(), http.MethodPut, "/faults", list)); got.status != http.StatusOK {
		r.t.Fatalf("PUT /faults %s: %d %s", list, got.status, got.text)
	}
}

// counts fails unless /stats shows these W and E, for the key or, with an empty one, for all.
func (r *rig) counts(key string, requests, effects int) {
	r.t.Helper()
	path := "/stats"
	if key != "" {
		path += "?idempotency_key=" + key
	}
	want := fmt.Sprintf(`{"requests":%d,"effects":%d}`, requests, effects)
	if got := r.get(path); got.text != want {
		r.t.Errorf("stats of key %q: %s, want %s", key, got.text, want)
	}
}

// expect fails unless the answer has this status and these fields (name, value, …).
func (r *rig) expect(got reply, status int, fields ...any) {
	r.t.Helper()
	if got.status != status {
		r.t.Fatalf("status %d, want %d: %s", got.status, status, got.text)
	}
	for i := 0; i < len(fields); i += 2 {
		if name := fmt.Sprint(fields[i]); fmt.Sprint(got.fields[name]) != fmt.Sprint(fields[i+1]) {
			r.t.Errorf("%s is %v, want %v: %s", name, got.fields[name], fields[i+1], got.text)
		}
	}
}

// one reads a single value from the provider's tables.
func one[T any](r *rig, sql string, args ...any) T {
	r.t.Helper()
	var value T
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&value); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return value
}
