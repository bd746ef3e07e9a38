package consumer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
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

// dropRequest closes the connection of a request without an answer; with linger 0 it is reset.
func dropRequest(w http.ResponseWriter, linger int) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(linger)
	_ = conn.Close()
}

// D-26: the provider has its effect and closes a kept connection without a byte. net/http alone would send the
// request again, because of the key header.
func TestD26NoReplay(t *testing.T) {
	bodies := map[string]func() io.Reader{
		"POST with a body":   func() io.Reader { return strings.NewReader("x") },
		"DELETE without one": func() io.Reader { return nil },
		"POST without one":   func() io.Reader { return http.NoBody },
	}
	for name, body := range bodies {
		method, _, _ := strings.Cut(name, " ")
		// warmThenClosed makes the same call through rt and counts the effects, W.
		warmThenClosed := func(t *testing.T, ctx context.Context, rt http.RoundTripper) (effects int, err error) {
			var count atomic.Int32
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/warm" {
					return
				}
				if len(r.TransferEncoding) > 0 || method == "POST" && r.Header.Get("Content-Length") == "" {
					t.Errorf("request with transfer encoding %v, header %v", r.TransferEncoding, r.Header)
				}
				count.Add(1)
				dropRequest(w, 1)
			})
			if _, err := send(t.Context(), rt, "GET", s.URL+"/warm", nil); err != nil {
				t.Fatal(err)
			}
			_, err = send(ctx, rt, method, s.URL+"/effect", body())
			return int(count.Load()), err
		}
		t.Run(name, func(t *testing.T) {
			g := openGate()
			spans, ctx := recordSpans(t, t.Context())
			effects, err := warmThenClosed(t, withGate(ctx, g), newTransport(t, nil))
			if effects != 1 || err == nil {
				t.Errorf("%d effects, error %v; want 1 effect and an error", effects, err)
			}
			if g.judgement() != maybeApplied {
				t.Error("the engine would believe that nothing was applied")
			}
			if n := len(spans.Ended()); n != 1 {
				t.Errorf("%d spans for the one request", n)
			}
		})
		t.Run(name+", net/http alone", func(t *testing.T) {
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			if effects, _ := warmThenClosed(t, t.Context(), base); effects < 2 {
				t.Errorf("%d effects: the rig no longer shows the fault", effects)
			}
		})
	}
}

// D-26 over HTTP/2: the transport of net/http sends a bodiless request again after some stream errors.
func TestD26NoReplayHTTP2(t *testing.T) {
	url, requests := refusingHTTP2(t)
	g := openGate()
	tr := &Transport{Base: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate is not the point here
	}}
	t.Cleanup(tr.CloseIdleConnections)
	_, err := send(withGate(t.Context(), g), tr, "POST", url, nil)
	if !errors.Is(err, errNotRepeated) {
		t.Errorf("error %v, want %v", err, errNotRepeated)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests arrived", n)
	}
	if g.judgement() != maybeApplied {
		t.Error("the engine would believe that nothing was applied")
	}
}

// mute hides httptrace from the transport below: a Base that somebody wrapped carelessly.
type mute struct{ http.RoundTripper }

func (m mute) RoundTrip(r *http.Request) (*http.Response, error) {
	return m.RoundTripper.RoundTrip(r.WithContext(context.Background()))
}

// D-26 where the connections cannot be watched: a request with a body is still sent once.
func TestD26NoReplayThroughMuteBase(t *testing.T) {
	var effects atomic.Int32
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/effect" {
			effects.Add(1)
			dropRequest(w, 1)
		}
	})
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	tr := &Transport{Base: mute{base}}
	if _, err := send(t.Context(), tr, "GET", s.URL+"/warm", nil); err != nil {
		t.Fatal(err)
	}
	g := openGate()
	_, err := send(withGate(t.Context(), g), tr, "POST", s.URL+"/effect", strings.NewReader("x"))
	if err == nil || effects.Load() != 1 || g.judgement() != maybeApplied {
		t.Errorf("error %v, %d effects, judgement %v", err, effects.Load(), g.judgement())
	}
}

// refusingHTTP2 speaks just enough HTTP/2 to answer each request with RST_STREAM, code PROTOCOL_ERROR.
func refusingHTTP2(t *testing.T) (url string, requests *atomic.Int32) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int32)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() })
			serving.Go(func() {
				defer stop()
				refuseStreams(conn, requests)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return "https://" + listener.Addr().String(), requests
}

func refuseStreams(conn net.Conn, requests *atomic.Int32) {
	defer conn.Close()
	const preface, header, headers, reset, settings = 24, 9, 1, 3, 4
	if _, err := io.CopyN(io.Discard, conn, preface); err != nil {
		return
	}
	_, _ = conn.Write([]byte{0, 0, 0, settings, 0, 0, 0, 0, 0})
	for {
		var h [header]byte
		if _, err := io.ReadFull(conn, h[:]); err != nil {
			return
		}
		length := int64(h[0])<<16 | int64(h[1])<<8 | int64(h[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		if h[3] == headers {
			requests.Add(1)
			frame := append([]byte{0, 0, 4, reset, 0}, h[5:9]...)
			_, _ = conn.Write(binary.BigEndian.AppendUint32(frame, 1))
		}
	}
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

// recordSpans gives a context inside a span, and the spans that end in it.
func recordSpans(t *testing.T, ctx context.Context) (*tracetest.SpanRecorder, context.Context) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, span := provider.Tracer("test").Start(ctx, "perform")
	t.Cleanup(func() { span.End() })
	return spans, ctx
}

func TestTransportSpan(t *testing.T) {
	var parent string
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		parent = r.Header.Get("traceparent")
		w.WriteHeader(http.StatusBadGateway)
	})
	spans, ctx := recordSpans(t, t.Context())
	url := strings.Replace(s.URL, "http://", "http://user:pa55@", 1) + "/charges?idempotency_key=order_1"
	if _, err := send(ctx, newTransport(t, s), "POST", url, nil); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	span := ended[0]
	if want := span.SpanContext().SpanID().String(); !strings.Contains(parent, want) {
		t.Errorf("the provider got traceparent %q, want span %s", parent, want)
	}
	got := map[string]string{"name": span.Name(), "kind": span.SpanKind().String(), "status": span.Status().Code.String()}
	for _, a := range span.Attributes() {
		got[string(a.Key)] = a.Value.String()
	}
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"name": "HTTP POST", "kind": "client", "status": "Error", "error.type": "502",
		"http.request.method": "POST", "http.response.status_code": "502",
		"server.address": host, "server.port": port,
		"url.full": fmt.Sprintf("http://REDACTED:REDACTED@%s:%s/charges?idempotency_key=REDACTED", host, port),
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("attributes %v", got)
	}
}

func TestTransportSpanOfFailures(t *testing.T) {
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	for _, c := range []struct {
		name   string
		handle http.HandlerFunc
		want   string
	}{
		{"cut body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"id": "ch_1`))
			panic(http.ErrAbortHandler)
		}, "*errors.errorString"},
		{"timeout", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-stuck:
			}
		}, "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server(t, c.handle)
			spans, ctx := recordSpans(t, t.Context())
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if _, err := send(ctx, newTransport(t, s), "GET", s.URL, nil); err == nil {
				t.Fatal("no error")
			}
			ended := spans.Ended()
			if len(ended) != 1 {
				t.Fatalf("%d spans", len(ended))
			}
			for _, a := range ended[0].Attributes() {
				if a.Key == "error.type" && a.Value.String() == c.want {
					return
				}
			}
			t.Errorf("attributes %v, want error.type %s", ended[0].Attributes(), c.want)
		})
	}
}
