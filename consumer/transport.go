package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Names of client spans and their attributes: the OpenTelemetry semantic conventions for HTTP.
const (
	spanHTTP = "HTTP " // and the method

	attrMethod     = "http.request.method"
	attrURL        = "url.full"
	attrServer     = "server.address"
	attrPort       = "server.port"
	attrStatusCode = "http.response.status_code"
	attrErrorType  = "error.type"
)

// Transport is the http.RoundTripper for requests to providers. Perform's requests pass the attempt's send gate
// in it, immediately before they leave and once more when they have a connection; the engine learns from it
// which of them can have had an effect. A look-up passes freely, and so does a request made outside the engine.
//
// One call is one request: net/http's own transport would send a request with an Idempotency-Key header again,
// without a word, when a kept connection closes before the answer (golang/go#19943). Here the call fails
// instead, and the engine asks the provider. Only GET, HEAD, OPTIONS and TRACE may be repeated.
//
// A refusal at the gate matches ErrLost, ErrDraining, ErrPaused or ErrDeadline. Where the provider has a cap, each
// further request of one Perform or Lookup waits for its turn. Every request that leaves makes one client
// span and carries its traceparent. A Transport retries nothing, and sends nothing that an http.Client makes of a redirect: that
// fails with an error of Misconfigured, and the redirect was an answer without an outcome. It must not be copied after its
// first use.
type Transport struct {
	// Base sends the requests. Nil is a private copy of http.DefaultTransport that keeps up to 100 idle
	// connections to one host. A Base that does not report to net/http/httptrace is safe, but then every
	// failed request counts as possibly applied.
	Base http.RoundTripper

	once    sync.Once
	private http.RoundTripper
}

// errRedirected is what a request gets that an http.Client makes of a redirect: of a POST it would make a GET, whose answer says
// nothing about the effect.
var errRedirected = Misconfigured(errors.New("the provider redirects: the address is wrong; a redirect is not followed"))

// errNotRepeated says that a connection broke before the answer. The request may have had its effect.
var errNotRepeated = errors.New("connection closed before the answer; the request is not repeated")

// RoundTrip sends req once. It blocks until the answer's header has arrived, ctx of req is done, or the request
// has failed.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Response != nil { // the redirect that it was made of
		closeBody(req)
		return nil, errRedirected
	}
	g := gateFrom(req.Context())
	err := awaitPace(req.Context())
	if err == nil {
		err = leave(req.Context(), g)
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	ctx, span := startClientSpan(req)
	ctx, cancel := context.WithCancelCause(ctx)
	p := &passage{gate: g, span: span, cancel: cancel, repeatable: isSafe(req.Method)}

	out := req.Clone(httptrace.WithClientTrace(ctx, p.hooks()))
	out.GetBody = nil // what cannot be rewound is not sent twice
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(out.Header))

	resp, err := t.base().RoundTrip(out)
	if err != nil {
		return nil, p.failed(err)
	}
	p.answered(resp)
	return resp, nil
}

// CloseIdleConnections closes the kept connections of Base that nobody uses.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	t.once.Do(func() {
		own := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
		if std, ok := http.DefaultTransport.(*http.Transport); ok {
			own = std.Clone()
		}
		// All of a kind's slots talk to one host; net/http would keep two of their connections.
		own.MaxIdleConnsPerHost = 100
		t.private = own
	})
	return t.private
}

// leave asks whether the request may leave at all. A context that is done is a refusal, not a request.
func leave(ctx context.Context, g *gate) error {
	if ctx.Err() != nil {
		if g != nil {
			g.wasRefused.Store(true)
		}
		return fmt.Errorf("nothing sent: %w", context.Cause(ctx))
	}
	if g == nil {
		return nil
	}
	return g.pass()
}

// passage is one request after the gate.
type passage struct {
	gate       *gate // nil for a look-up
	span       trace.Span
	cancel     context.CancelCauseFunc
	repeatable bool

	asked     atomic.Bool           // a connection was asked for: Base reports to httptrace
	connected atomic.Bool           // the request got one, and from then on may have arrived
	stopped   atomic.Pointer[error] // why it was held back on a connection
	over      sync.Once
}

// hooks watches the request's connections. GotConn is called after the TLS handshake and before the first byte
// of the request, so without it surely nothing was sent. A second GotConn for one request is net/http's repeat.
func (p *passage) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.asked.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			if err := p.mayUse(); err != nil {
				p.stop(err, info.Conn)
				return
			}
			p.connected.Store(true)
		},
	}
}

// mayUse asks whether the request may go out on the connection that it has just got. Dialling takes its time,
// so the gate is asked again: a process may have been frozen in it past its lease.
func (p *passage) mayUse() error {
	if p.connected.Load() && !p.repeatable {
		return errNotRepeated
	}
	if p.gate == nil {
		return nil
	}
	return p.gate.recheck()
}

// stop keeps the request from being written. HTTP/2 looks at the context before it writes, and shares its
// connection with others. HTTP/1 does not look, but this connection is ours alone.
func (p *passage) stop(err error, conn net.Conn) {
	p.stopped.Store(&err)
	p.cancel(err)
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	_ = conn.Close() // nothing of ours is on it
}

// failed ends a passage that got no answer.
func (p *passage) failed(err error) error {
	if stopped := p.stopped.Load(); stopped != nil {
		err = *stopped
	}
	// Without asked, a Base that reports nothing would look as if it had sent nothing.
	p.report(p.connected.Load() || !p.asked.Load(), 0)
	p.end(err)
	return err
}

// answered reports the answer's status and leaves the span open until the body has been read.
func (p *passage) answered(resp *http.Response) {
	p.report(true, resp.StatusCode)
	p.span.SetAttributes(attribute.Int(attrStatusCode, resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		p.span.SetAttributes(attribute.String(attrErrorType, strconv.Itoa(resp.StatusCode)))
		p.span.SetStatus(codes.Error, "")
	}
	resp.Body = &passageBody{resp.Body, p}
}

func (p *passage) report(connected bool, status int) {
	if p.gate != nil {
		p.gate.ended(connected, status)
	}
}

// end closes the span and gives the context free, once.
func (p *passage) end(err error) {
	p.over.Do(func() {
		if err != nil {
			p.span.SetAttributes(attribute.String(attrErrorType, errorType(err)))
			p.span.SetStatus(codes.Error, "") // the text may quote what the provider sent
		}
		p.span.End()
		p.cancel(nil)
	})
}

// passageBody ends the passage with the body: at its end, at an error, or when it is closed.
type passageBody struct {
	io.ReadCloser
	p *passage
}

func (b *passageBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	switch {
	case errors.Is(err, io.EOF):
		b.p.end(nil)
	case err != nil:
		b.p.end(err)
	}
	return n, err
}

func (b *passageBody) Close() error {
	err := b.ReadCloser.Close()
	b.p.end(nil)
	return err
}

// isSafe tells the methods that by their definition have no effect (RFC 9110, 9.2.1).
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // a RoundTripper owes this also where it sends nothing
	}
}

// startClientSpan starts the span of a request that is about to leave, with the provider of the span it is in.
func startClientSpan(req *http.Request) (context.Context, trace.Span) {
	ctx := req.Context()
	l, _ := ctx.Value(labelsKey{}).(*labels)
	if l != nil && l.unrecorded {
		return ctx, noSpan
	}
	provider := otel.GetTracerProvider()
	if parent := trace.SpanFromContext(ctx); parent.SpanContext().IsValid() {
		provider = parent.TracerProvider()
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	//nolint:spancheck // the passage ends it, with the answer's body
	return provider.Tracer(scopeName).Start(ctx, spanHTTP+method,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(l.all([]attribute.KeyValue{
			attribute.String(attrMethod, method),
			attribute.String(attrURL, maskURL(req.URL)),
			attribute.String(attrServer, req.URL.Hostname()),
			attribute.Int(attrPort, portOf(req.URL)),
		})...))
}

// maskURL shows a URL without its credentials and without the values of its query.
func maskURL(u *url.URL) string {
	shown := *u
	if shown.User != nil {
		shown.User = url.UserPassword("REDACTED", "REDACTED")
	}
	query := shown.Query()
	for name := range query {
		query[name] = []string{"REDACTED"}
	}
	shown.RawQuery = query.Encode()
	return shown.String()
}

func portOf(u *url.URL) int {
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = 80
		if u.Scheme == "https" {
			port = 443
		}
	}
	return port
}

// errorType is a low-cardinality name of a transport error.
func errorType(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, ErrLost), errors.Is(err, ErrDraining), errors.Is(err, ErrPaused), errors.Is(err, ErrDeadline):
		return "send_gate"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return fmt.Sprintf("%T", err)
}
