package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// Job and Paid are the job and the result of the test kind "test.pay".
type payJob struct {
	Order ID     `json:"order"`
	Note  string `json:"note,omitempty"`
}

type paid struct {
	ID string `json:"id"`
}

// bench is a real database, a real JetStream, a provider on a real socket, and engines on them.
type bench struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *idemstore.Store
	js    jetstream.JetStream
	pay   *payProvider
	kind  Kind[payJob, paid]
	conf  Config
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, pool: devtest.Pool(t), pay: newPayProvider(t)}
	_, b.js = devtest.JetStream(t)
	b.store = idemstore.New(b.pool, time.Second)
	b.kind = b.pay.kind()
	b.conf = Config{Slots: 4, AckWait: 2 * time.Second, Lease: 2 * time.Second, DrainTimeout: 5 * time.Second,
		NoRecovery: true, // most tests are about messages, and count what each of them came to
		Logger:     slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		// The deadline is for the tests of it to shorten: the others hold calls, on busy machines too.
		Policy: Policy{Deadline: 20 * time.Second, BackoffMin: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond,
			MisconfiguredWait: 200 * time.Millisecond}}
	if err := EnsureStreams(t.Context(), b.js, b.conf); err != nil {
		t.Fatal(err)
	}
	return b
}

// testWriter sends log lines to the test that they belong to.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// run starts an engine; the returned function drains it and fails the test if Run failed.
func (b *bench) run() (stop func()) {
	b.t.Helper()
	_, stop = b.serve(b.kind)
	return stop
}

// serve is run for kinds of the test's own, and also returns the engine.
func (b *bench) serve(kinds ...Definition) (e *Engine, stop func()) {
	b.t.Helper()
	e = b.engine(kinds...)
	return e, b.runEngine(e)
}

// engine makes an engine that a test may still change before it runs.
func (b *bench) engine(kinds ...Definition) *Engine {
	b.t.Helper()
	e, err := New(b.pool, b.js, b.conf, kinds...)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

func (b *bench) runEngine(e *Engine) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				b.t.Errorf("run: %v", err)
			}
		})
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) publish(body string) {
	b.t.Helper()
	if _, err := b.js.Publish(b.t.Context(), subject(b.kind.Name), []byte(body)); err != nil {
		b.t.Fatal(err)
	}
}

// await polls until the task of a key satisfies f, and returns it.
func (b *bench) await(key, what string, f func(idemstore.Task) bool) idemstore.Task {
	b.t.Helper()
	var last idemstore.Task
	if !eventually(b.t, 20*time.Second, func() bool {
		task, err := b.store.Find(b.t.Context(), b.kind.Name, key)
		if errors.Is(err, idemstore.ErrNotFound) {
			return false
		}
		if err != nil {
			b.t.Fatal(err)
		}
		last = task
		return f(task)
	}) {
		b.t.Fatalf("task %s never was %s; it is %s: attempts=%d failures=%d unsure=%v error=%q", key, what, last.Status,
			last.Attempt, last.Failures, last.Unsure, last.LastError)
	}
	return last
}

func (b *bench) awaitStatus(key string, s idemstore.Status) idemstore.Task {
	b.t.Helper()
	return b.await(key, string(s), func(t idemstore.Task) bool { return t.Status == s })
}

// awaitSettled waits until the stream holds no message: each was acked or termed.
func (b *bench) awaitSettled() {
	b.t.Helper()
	var left uint64
	if !eventually(b.t, 20*time.Second, func() bool {
		left = b.messages()
		return left == 0
	}) {
		b.t.Fatalf("%d messages are still in the stream", left)
	}
}

// published waits until the outbox is empty and returns what the stream of events holds, oldest first.
func (b *bench) published() (events []*jetstream.RawStreamMsg) {
	b.t.Helper()
	ctx := context.WithoutCancel(b.t.Context())
	if !eventually(b.t, 20*time.Second, func() bool {
		left, err := b.store.OutboxState(ctx)
		return err == nil && left.Rows == 0
	}) {
		b.t.Fatal("the outbox never was empty")
	}
	stream, err := b.js.Stream(ctx, eventStream)
	if err != nil {
		b.t.Fatal(err)
	}
	state := stream.CachedInfo().State
	for n := state.FirstSeq; n <= state.LastSeq && state.Msgs > 0; n++ {
		m, err := stream.GetMsg(ctx, n)
		if err != nil {
			b.t.Fatal(err)
		}
		events = append(events, m)
	}
	return events
}

func (b *bench) messages() uint64 { return b.stream().CachedInfo().State.Msgs }

func (b *bench) stream() jetstream.Stream { return b.streamNamed(jobStream) }

func (b *bench) streamNamed(name string) jetstream.Stream {
	b.t.Helper()
	s, err := b.js.Stream(context.WithoutCancel(b.t.Context()), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// eventually polls f on a ticker.
func eventually(t *testing.T, limit time.Duration, f func() bool) bool {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !f() {
		select {
		case <-tick.C:
		case <-end:
			return f()
		}
	}
	return true
}

// payProvider is a provider on a socket whose answers a test scripts. It counts the requests that reached it and
// the effects that it performed.
type payProvider struct {
	server *httptest.Server
	client *http.Client

	poll time.Duration // that a 202 asks for

	mu       sync.Mutex
	posts    int
	lookups  int
	asked    []string          // ids that look-ups asked for
	effects  map[string]string // provider key to id
	made     int
	script   []http.HandlerFunc // for the next POSTs; then the honest answer
	onPost   http.HandlerFunc   // instead of the honest answer
	onLookup http.HandlerFunc   // instead of the honest look-up

	front func(http.ResponseWriter, *http.Request) (answered bool) // before all of that
}

func newPayProvider(t *testing.T) *payProvider {
	p := &payProvider{poll: 20 * time.Millisecond, effects: map[string]string{}, client: &http.Client{Transport: &Transport{}}}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		p.server.Close()
	})
	return p
}

// then adds answers to the next POSTs, in order.
func (p *payProvider) then(h ...http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = append(p.script, h...)
}

// answerLookups answers look-ups with h from now on.
func (p *payProvider) answerLookups(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onLookup = h
}

// counts returns requests for an effect, effects, and look-ups.
func (p *payProvider) counts() (w, e, lookups int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.posts, p.made, p.lookups
}

// effect performs the effect of a key, once.
func (p *payProvider) effect(key string) (id string, replayed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.effects[key]; ok {
		return id, true
	}
	p.made++
	id = fmt.Sprintf("pay_%d", p.made)
	p.effects[key] = id
	return id, false
}

func (p *payProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	p.mu.Lock()
	front := p.front
	p.mu.Unlock()
	if front == nil || !front(w, r) {
		p.next(r)(w, r)
	}
}

func (p *payProvider) next(r *http.Request) http.HandlerFunc {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		p.lookups++
		p.asked = append(p.asked, r.URL.Query().Get("id"))
		if p.onLookup != nil {
			return p.onLookup
		}
		return p.honestLookup
	}
	p.posts++
	if len(p.script) > 0 {
		h := p.script[0]
		p.script = p.script[1:]
		return h
	}
	if p.onPost != nil {
		return p.onPost
	}
	return p.honest
}

func (p *payProvider) honest(w http.ResponseWriter, r *http.Request) {
	id, replayed := p.effect(r.Header.Get("Idempotency-Key"))
	status := http.StatusCreated
	if replayed {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(paid{ID: id})
}

func (p *payProvider) honestLookup(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	id, ok := p.effects[r.URL.Query().Get("key")]
	p.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(paid{ID: id})
}

// effectThen performs the effect and then answers as h does.
func (p *payProvider) effectThen(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.effect(r.Header.Get("Idempotency-Key"))
		h(w, r)
	}
}

// hold lets the next POST wait, once it has entered, until it is released or its client has gone. Then it is answered
// honestly.
func (p *payProvider) hold() (entered <-chan struct{}, release func()) { return p.holdThen(p.honest) }

// holdThen is hold with another answer.
func (p *payProvider) holdThen(h http.HandlerFunc) (entered <-chan struct{}, release func()) {
	in, out := make(chan struct{}), make(chan struct{})
	p.then(func(w http.ResponseWriter, r *http.Request) {
		close(in)
		select {
		case <-out:
			h(w, r)
		case <-r.Context().Done():
		}
	})
	return in, sync.OnceFunc(func() { close(out) })
}

// status answers with a status and no body.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// noAnswer closes the connection without an answer.
func noAnswer(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func (p *payProvider) kind() Kind[payJob, paid] {
	return Kind[payJob, paid]{
		Name: "test.pay", Contract: Contract{Effect: "a payment at the test provider"}, Content: Content{IDs: []string{"order"}},
		Provider: Provider{Identity: "test", KeyPrefix: "pay_"},
		Key: func(j payJob) (string, error) {
			text, err := j.Order.Text()
			return "pay_" + text, err
		},
		ExternalID: func(r paid) string { return r.ID },
		Perform:    p.perform,
		Lookup:     p.lookup,
	}
}

func (p *payProvider) do(ctx context.Context, method, query, key string) (paid, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.server.URL+"/"+query, nil)
	if err != nil {
		return paid{}, 0, err
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := p.client.Do(req)
	if err != nil {
		return paid{}, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	var out paid
	err = json.NewDecoder(res.Body).Decode(&out)
	return out, res.StatusCode, err
}

func (p *payProvider) perform(ctx context.Context, a *Attempt[payJob]) (paid, error) {
	out, code, err := p.do(ctx, http.MethodPost, "", a.ProviderKey)
	switch {
	case code == http.StatusTooManyRequests:
		return out, NotSentAfter(0, errors.New("throttled"))
	case code == http.StatusPaymentRequired:
		return out, Refused(errors.New("declined"))
	case code == http.StatusForbidden, code == http.StatusUnauthorized:
		return out, Misconfigured(fmt.Errorf("status %d", code))
	case code == http.StatusAccepted:
		return out, Accepted(p.poll)
	case code == http.StatusConflict:
		return out, Conflict(errors.New("contradiction"))
	case err != nil:
		return out, err
	case code >= 300 || out.ID == "":
		return out, fmt.Errorf("status %d", code)
	}
	return out, nil
}

func (p *payProvider) lookup(ctx context.Context, a *Attempt[payJob]) (paid, Verdict, error) {
	out, code, err := p.do(ctx, http.MethodGet, "?key="+a.ProviderKey+"&id="+a.ExternalID, a.ProviderKey)
	switch {
	case code == http.StatusNotFound:
		return out, Absent, nil
	case code == http.StatusPaymentRequired:
		return out, FoundRefused, nil
	case code == http.StatusAccepted:
		return out, Running, nil
	case code == http.StatusConflict:
		return out, Contradictory, nil
	case err != nil || out.ID == "":
		return out, CannotTell, err
	}
	return out, Found, nil
}

// await waits for c to be closed or to give a value.
func await[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("never happened: %s", what)
	}
	return v
}

// performing is a handler that does f and then has nothing to say.
func performing(f func()) func(context.Context, *Attempt[payJob]) (paid, error) {
	return func(context.Context, *Attempt[payJob]) (paid, error) {
		f()
		return paid{}, errors.New("nothing to say")
	}
}
