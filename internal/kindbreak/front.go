package kindbreak

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/settlemq/settle/internal/kindfile"
)

const (
	mostOfAnswer  = 1 << 20 // bytes of an answer that are looked at
	providerLimit = 30 * time.Second
)

// front stands between the workers and the provider. One story is told at a time.
type front struct {
	kind  *kindfile.Kind
	proxy *httputil.ReverseProxy
	kill  func() // the worker

	mu    sync.Mutex
	next  act // for the next request for the effect
	blind int // look-ups that still fail
	sends int
	ids   []string // of the effects that the provider told of
	bad   []string // answers to requests that told of none
}

func newFront(kind *kindfile.Kind, provider *url.URL, kill func()) *front {
	f := &front{kind: kind, kill: kill}
	f.proxy = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(provider) },
		ModifyResponse: f.note,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // the workers tell
	}
	return f
}

// listen serves on the loopback interface until stop.
func (f *front) listen(ctx context.Context) (address string, stop func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: f, ReadHeaderTimeout: providerLimit, ErrorLog: f.proxy.ErrorLog}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }() // it returns when it is closed
	return "http://" + listener.Addr().String(), func() error { err := server.Close(); <-ended; return err }, nil
}

// begin forgets the story before.
func (f *front) begin(s story) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next, f.blind, f.sends, f.ids, f.bad = s.onSend, s.blind, 0, nil, nil
}

// ServeHTTP lets a request through, unless the story says otherwise. Kinds of a file look up by GET and send by other methods.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		if f.isBlind() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		f.proxy.ServeHTTP(w, r)
		return
	}
	f.mu.Lock()
	do := f.next
	f.next = nil
	f.sends++
	f.mu.Unlock()
	if do == nil {
		f.proxy.ServeHTTP(w, r)
		return
	}
	do(f, w, r)
}

func (f *front) isBlind() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind--
	return f.blind >= 0
}

// happen lets the provider do what a request asks for, whatever becomes of who asked, and keeps the answer back.
func (f *front) happen(r *http.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), providerLimit)
	defer cancel()
	f.proxy.ServeHTTP(&discard{}, r.Clone(ctx))
}

// note reads what the provider answers to a request for the effect.
func (f *front) note(resp *http.Response) error {
	if resp.Request.Method == http.MethodGet {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostOfAnswer))
	if err != nil {
		return err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	f.mu.Lock()
	defer f.mu.Unlock()
	if id := f.kind.EffectIn(resp.StatusCode, body); id == "" {
		f.bad = append(f.bad, resp.Status)
	} else if !slices.Contains(f.ids, id) {
		f.ids = append(f.ids, id)
	}
	return nil
}

// seen is what there was in this story.
func (f *front) seen() (sends int, ids, bad []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sends, append([]string{}, f.ids...), slices.Clone(f.bad)
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

// Header is where the proxy puts the header.
func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

// Write takes everything.
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader does nothing.
func (d *discard) WriteHeader(int) {}
