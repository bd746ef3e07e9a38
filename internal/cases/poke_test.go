package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/provider"
)

const pokeKind = "test.poke"

type pokeJob struct {
	Name string          `json:"name"`
	List json.RawMessage `json:"list,omitempty"`
}

type pokeResult struct {
	ID   string `json:"id"`
	Note string `json:"note,omitempty"`
}

// poker is a kind of the tests' own with its provider, for what the reference kinds never send or are never
// answered. The provider ignores keys: every request makes an effect.
type poker struct {
	method, body string                                       // of the request for an effect
	answer       func(job string, w http.ResponseWriter) bool // answers instead of the honest way, if it returns true

	server *httptest.Server
	client *http.Client

	mu      sync.Mutex
	effects map[string][]string // by key
	from    []string            // the client's address, per request for an effect
	lookups int
}

func newPoker(t *testing.T, method, body string) *poker {
	t.Helper()
	p := &poker{method: method, body: body, effects: map[string][]string{}, client: &http.Client{Transport: &consumer.Transport{}}}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() { p.client.CloseIdleConnections(); p.server.Close() })
	return p
}

// poke is a job of the kind.
func poke(name string) job { return job{pokeKind, name, fmt.Sprintf(`{"name":%q}`, name)} }

// kinds are the reference kinds and this one.
func (p *poker) kinds(api *handlers.Client, s settings) []consumer.Definition {
	return append(referenceKinds(api, s), consumer.Kind[pokeJob, pokeResult]{
		Name: pokeKind, Contract: consumer.Contract{Effect: "one poke"}, Content: consumer.Content{Volatile: []string{"sent_at"}},
		Provider:   consumer.Provider{Identity: p.server.URL, Unkeyed: true, AbsentAfter: time.Second},
		Key:        func(j pokeJob) (string, error) { return j.Name, nil },
		ExternalID: func(r pokeResult) string { return r.ID },
		Perform: func(ctx context.Context, a *consumer.Attempt[pokeJob]) (pokeResult, error) {
			r, status, err := p.send(ctx, p.method, a.Job.Name, a.ProviderKey)
			if status == http.StatusBadRequest {
				return pokeResult{}, consumer.Refused(errors.New(r.Note))
			}
			return r, err
		},
		Lookup: func(ctx context.Context, a *consumer.Attempt[pokeJob]) (pokeResult, consumer.Verdict, error) {
			r, status, err := p.send(ctx, http.MethodGet, a.Job.Name, a.ProviderKey)
			if status == http.StatusNotFound {
				return r, consumer.Absent, nil
			}
			return r, consumer.Found, err
		},
	})
}

func (p *poker) send(ctx context.Context, method, name, key string) (r pokeResult, status int, err error) {
	var body io.Reader
	if method != http.MethodGet && p.body != "" {
		body = strings.NewReader(p.body)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.server.URL+"/"+name, body)
	if err != nil {
		return r, 0, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := p.client.Do(req)
	if err != nil {
		return r, 0, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&r)
	return r, resp.StatusCode, err
}

// ServeHTTP is the provider.
func (p *poker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a body that is not read would reset the connection
	name, key := strings.TrimPrefix(r.URL.Path, "/"), r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	if r.Method == http.MethodGet {
		p.lookups++
	} else {
		p.from = append(p.from, r.RemoteAddr)
		p.effects[key] = append(p.effects[key], fmt.Sprintf("poke_%d", len(p.from)))
	}
	made := p.effects[key]
	p.mu.Unlock()
	switch {
	case len(made) == 0:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "{}")
	case r.Method == http.MethodGet, p.answer == nil, !p.answer(name, w):
		_ = json.NewEncoder(w).Encode(pokeResult{ID: made[0]}) // the client may be gone
	}
}

// counts are W, E of one key, the addresses that W came from, and the look-ups.
func (p *poker) counts(key string) (w, e int, from []string, lookups int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.from), len(p.effects[key]), append([]string{}, p.from...), p.lookups
}

// faults sets the provider's faults.
func (s *stage) faults(faults ...provider.Fault) {
	s.t.Helper()
	if err := s.provider.SetFaults(faults); err != nil {
		s.t.Fatal(err)
	}
}

// hangUp closes the connection without a byte of an answer.
func hangUp(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}
