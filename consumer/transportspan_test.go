package consumer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

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
