package cases

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// recorder stands before the provider and keeps what passes, byte for byte. It cannot pass on that a connection is
// closed: the client sees 502 instead.
type recorder struct {
	mu   sync.Mutex
	seen []request
}

// request is one that came to the recorder.
type request struct {
	at     time.Time
	method string
	keys   []string // all values of Idempotency-Key
	body   string
	uri    string
	header http.Header
}

// throughRecorder puts a recorder before the provider of the workers that are started from now on.
func (s *stage) throughRecorder() *recorder {
	s.t.Helper()
	behind, err := url.Parse(s.settings.ProviderURL)
	if err != nil {
		s.t.Fatal(err)
	}
	rec := &recorder{}
	transport := &http.Transport{}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }, Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec.keep(request{time.Now(), r.Method, r.Header.Values("Idempotency-Key"), string(body), r.RequestURI, r.Header.Clone()})
		pass.ServeHTTP(w, r)
	}))
	s.t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	s.settings.ProviderURL = server.URL
	return rec
}

func (r *recorder) keep(x request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, x)
}

// posts are the requests for an effect with a key, in their order.
func (r *recorder) posts(key string) (posts []request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.seen {
		if x.method == http.MethodPost && len(x.keys) == 1 && x.keys[0] == key {
			posts = append(posts, x)
		}
	}
	return posts
}

// strays are the requests for an effect that came without a key, or with several.
func (r *recorder) strays() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.seen {
		if x.method == http.MethodPost && len(x.keys) != 1 {
			n++
		}
	}
	return n
}
