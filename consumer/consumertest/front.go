package consumertest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// front stands before the fake and breaks what passes.
type front struct {
	provider http.Handler
	isLookup func(*http.Request) bool
	server   *httptest.Server

	mu    sync.Mutex
	rules []rule
	keys  []string // Idempotency-Key of each request for an effect, oldest first
}

// rule is what happens to the next requests of a sort.
type rule struct {
	lookups bool
	times   int // so many of them; below 0: all
	do      http.HandlerFunc
}

func newFront(provider http.Handler, isLookup func(*http.Request) bool) *front {
	f := &front{provider: provider, isLookup: isLookup}
	f.server = httptest.NewServer(f)
	return f
}

// onSend does something instead of the next request for an effect; onLookups of the next look-ups.
func (f *front) onSend(do http.HandlerFunc) { f.add(rule{times: 1, do: do}) }

func (f *front) onLookups(times int, do http.HandlerFunc) {
	f.add(rule{lookups: true, times: times, do: do})
}

func (f *front) add(r rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
}

// clear ends all rules.
func (f *front) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// ServeHTTP lets a request through to the fake, unless a rule says otherwise.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	do := f.next(r)
	if do == nil {
		do = f.provider.ServeHTTP
	}
	do(w, r)
}

func (f *front) next(r *http.Request) http.HandlerFunc {
	f.mu.Lock()
	defer f.mu.Unlock()
	lookup := f.isLookup(r)
	if !lookup {
		f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	}
	for i := range f.rules {
		x := &f.rules[i]
		if x.lookups != lookup || x.times == 0 {
			continue
		}
		x.times--
		return x.do
	}
	return nil
}

// sent are the idempotency keys of the requests for an effect.
func (f *front) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys)
}

// happen lets the fake do what a request asks for, and keeps its answer back.
func (f *front) happen(r *http.Request) { f.provider.ServeHTTP(httptest.NewRecorder(), r) }

// hangUp ends a connection without an answer.
func hangUp() { panic(http.ErrAbortHandler) }

// answer is a handler that answers so and does nothing.
func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}
