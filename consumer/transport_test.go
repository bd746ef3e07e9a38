package consumer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

// newTransport is a Transport whose connections end with the test. It trusts server's certificate, if it has one.
func newTransport(t *testing.T, server *httptest.Server) *Transport {
	t.Helper()
	base := &http.Transport{ForceAttemptHTTP2: true}
	if server != nil && server.Certificate() != nil {
		base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	}
	tr := &Transport{Base: base}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// send makes one request through the gate and reads its answer to the end.
func send(ctx context.Context, rt http.RoundTripper, method, url string, body io.Reader) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Idempotency-Key", "order_1")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// server answers with handle and ends with the test.
func server(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

func TestTransportJudgement(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, c := range []struct {
		name   string
		handle http.HandlerFunc
		want   judgement
	}{
		{"201", status(201), maybeApplied},
		{"401", status(401), appliedNothing},
		{"403", status(403), maybeApplied},
		{"405", status(405), appliedNothing},
		{"429", status(429), appliedNothing},
		{"500", status(500), maybeApplied},
		{"reset after the request was read", func(w http.ResponseWriter, _ *http.Request) { dropRequest(w, 0) }, maybeApplied},
		{"closed after the request was read", func(w http.ResponseWriter, _ *http.Request) { dropRequest(w, 1) }, maybeApplied},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := openGate()
			s := server(t, c.handle)
			_, err := send(withGate(t.Context(), g), newTransport(t, s), "POST", s.URL, strings.NewReader("{}"))
			if got := g.judgement(); got != c.want {
				t.Errorf("judgement %v, want %v (error %v)", got, c.want, err)
			}
		})
	}
}

// A request that never had a connection was not sent, whatever went wrong on the way to one.
func TestTransportNotSent(t *testing.T) {
	var arrived atomic.Int32
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(secure.Close)
	plain := server(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	wrongName := newTransport(t, secure)
	wrongName.Base.(*http.Transport).TLSClientConfig.ServerName = "provider.test"
	for _, c := range []struct {
		name string
		rt   *Transport
		url  string
	}{
		{"connection refused", newTransport(t, nil), "http://" + closed.Addr().String()},
		{"no such host", newTransport(t, nil), "http://nowhere.invalid"},
		{"certificate of another name", wrongName, secure.URL},
		{"certificate of an unknown authority", newTransport(t, nil), secure.URL},
		{"no TLS on the other side", newTransport(t, nil), "https" + strings.TrimPrefix(plain.URL, "http")},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := openGate()
			_, err := send(withGate(t.Context(), g), c.rt, "POST", c.url, strings.NewReader("{}"))
			if err == nil || g.judgement() != appliedNothing || !g.sent() {
				t.Errorf("error %v, judgement %v, sent %v", err, g.judgement(), g.sent())
			}
		})
	}
	if n := arrived.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestTransportRequestUnderWay(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	s := server(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-answer
		w.WriteHeader(http.StatusTooManyRequests)
	})
	g := openGate()
	done := make(chan error)
	go func() {
		_, err := send(withGate(t.Context(), g), newTransport(t, s), "POST", s.URL, strings.NewReader("{}"))
		done <- err
	}()
	<-arrived
	if got := g.judgement(); got != maybeApplied {
		t.Errorf("judgement while the request is under way: %v", got)
	}
	close(answer)
	if err := <-done; err != nil || g.judgement() != appliedNothing {
		t.Errorf("error %v, judgement %v", err, g.judgement())
	}
}

// silentBase fails after it may have sent, and reports nothing to httptrace.
type silentBase struct{}

func (silentBase) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("broken pipe")
}

func TestTransportTrustsNoSilentBase(t *testing.T) {
	g := openGate()
	_, err := send(withGate(t.Context(), g), &Transport{Base: silentBase{}}, "POST", "http://provider.test", nil)
	if err == nil || g.judgement() != maybeApplied {
		t.Errorf("error %v, judgement %v", err, g.judgement())
	}
}

// closeWatch is a body that tells whether it was closed.
type closeWatch struct {
	io.Reader
	closed bool
}

func (c *closeWatch) Close() error { c.closed = true; return nil }

func TestTransportGateShut(t *testing.T) {
	var arrived atomic.Int32
	s := server(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
	for _, cause := range []error{ErrLost, ErrDraining, ErrDeadline} {
		t.Run(cause.Error(), func(t *testing.T) {
			g := openGate()
			g.shut(cause)
			spans, ctx := recordSpans(t, t.Context())
			body := &closeWatch{Reader: strings.NewReader("{}")}
			_, err := send(withGate(ctx, g), newTransport(t, s), "POST", s.URL, body)
			if !errors.Is(err, cause) {
				t.Errorf("error %v", err)
			}
			if !body.closed || !g.refused() || g.judgement() != sentNothing || len(spans.Ended()) != 0 {
				t.Errorf("body closed %v, refused %v, judgement %v, %d spans",
					body.closed, g.refused(), g.judgement(), len(spans.Ended()))
			}
		})
	}
	if _, err := send(t.Context(), newTransport(t, s), "POST", s.URL, nil); err != nil {
		t.Errorf("a request without a gate: %v", err)
	}
	if n := arrived.Load(); n != 1 {
		t.Errorf("%d requests arrived, want the one without a gate", n)
	}
}

func TestTransportContextDone(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrLost)
	g := openGate()
	_, err := send(withGate(ctx, g), newTransport(t, nil), "POST", "http://127.0.0.1:1", nil)
	if !errors.Is(err, ErrLost) || g.sent() || !g.refused() {
		t.Errorf("error %v, sent %v, refused %v", err, g.sent(), g.refused())
	}
}

// thawed is a gate that holds when the request passes it, and whose lease is over once there is a connection:
// the process was frozen in between.
func thawed() *gate {
	start := time.Now()
	g := newGate(start.Add(time.Minute), start.Add(time.Hour), nil)
	var asked atomic.Int32
	g.now = func() time.Time {
		if asked.Add(1) == 1 {
			return start
		}
		return start.Add(2 * time.Minute)
	}
	return g
}

func TestTransportLeaseLostWhileDialling(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/1.1 with TLS", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			var arrived atomic.Int32
			waiting, answer := make(chan struct{}), make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(waiting)
					<-answer
					return
				}
				arrived.Add(1)
			}))
			s.EnableHTTP2 = proto == "HTTP/2.0"
			if proto == "HTTP/1.1" {
				s.Start()
			} else {
				s.StartTLS()
			}
			t.Cleanup(s.Close)
			tr := newTransport(t, s)

			other := make(chan error)
			go func() { // over HTTP/2, somebody else's request is on the same connection
				_, err := send(t.Context(), tr, "GET", s.URL+"/slow", nil)
				other <- err
			}()
			<-waiting
			for i := range 10 {
				var body io.Reader
				if i%2 == 0 {
					body = strings.NewReader("{}")
				}
				g := thawed()
				closed := false
				ctx := httptrace.WithClientTrace(withGate(t.Context(), g), &httptrace.ClientTrace{
					GotConn: func(info httptrace.GotConnInfo) { // after the Transport's own hook
						closed = errors.Is(info.Conn.SetDeadline(time.Time{}), net.ErrClosed)
					},
				})
				_, err := send(ctx, tr, "POST", s.URL, body)
				if shared := proto == "HTTP/2.0"; closed == shared {
					t.Errorf("connection closed before anything is written: %v", closed)
				}
				if !errors.Is(err, ErrLost) || !g.refused() || g.judgement() != appliedNothing {
					t.Errorf("error %v, refused %v, judgement %v", err, g.refused(), g.judgement())
				}
			}
			close(answer)
			if err := <-other; err != nil {
				t.Errorf("the other request failed: %v", err)
			}
			s.Close() // waits for requests that may still be on their way
			if n := arrived.Load(); n != 0 {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
}

func TestTransportLeavesTheRequestAlone(t *testing.T) {
	s := server(t, func(http.ResponseWriter, *http.Request) {})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := newTransport(t, s).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if req.GetBody == nil || len(req.Header) != 0 {
		t.Errorf("the caller's request was changed: %v", req.Header)
	}
}

// A zero Transport works, and keeps to itself.
func TestTransportZero(t *testing.T) {
	var tr Transport
	t.Cleanup(tr.CloseIdleConnections)
	s := server(t, func(http.ResponseWriter, *http.Request) {})
	if code, err := send(t.Context(), &tr, "POST", s.URL, nil); err != nil || code != http.StatusOK {
		t.Errorf("status %d, error %v", code, err)
	}
	if tr.base() == http.DefaultTransport {
		t.Error("it shares http.DefaultTransport")
	}
}

// A kind whose results come without a request at the gate may have sent what it says it did not: it is asked about.
func TestAKindThatDoesNotPassTheGateIsNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var out lockedBuffer
	b.conf.Logger = telemetry.Logger(&out, false, slog.LevelWarn)
	b.kind.Provider.AbsentAfter = time.Hour
	b.kind.Perform = func(_ context.Context, a *Attempt[payJob]) (paid, error) {
		if a.Key == "pay_1" {
			return paid{ID: "pay_1"}, nil
		}
		return paid{}, NotSent(errors.New("so it says"))
	}
	b.kind.Lookup = func(context.Context, *Attempt[payJob]) (paid, Verdict, error) { return paid{}, CannotTell, nil }
	stop := b.run()
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.publish(`{"order":"2"}`)
	if task := b.awaitStatus("pay_2", idemstore.Unknown); !task.Unsure || task.Failures == 0 {
		t.Errorf("unsure %t, %d failures", task.Unsure, task.Failures)
	}
	stop()
	if n := strings.Count(out.b.String(), "no request passed the send gate"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
}
