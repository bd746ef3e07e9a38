package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// receiver is a trace collector on the loopback interface that keeps what it is sent.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu  sync.Mutex
	got []*tracepb.ResourceSpans
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, req.ResourceSpans...)
	return &collector.ExportTraceServiceResponse{}, nil
}

// names gives each span's name with the service.name it came with.
func (r *receiver) names() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]string{}
	for _, rs := range r.got {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				names[s.Name] = attributeOf(rs, "service.name")
			}
		}
	}
	return names
}

func (r *receiver) attribute(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) == 0 {
		return ""
	}
	return attributeOf(r.got[0], name)
}

// all is everything that was received, as text.
func (r *receiver) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.got)
}

// spanAttributes are the texts on the last span that was received.
func (r *receiver) spanAttributes() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for _, rs := range r.got {
		for _, ss := range rs.ScopeSpans {
			for _, a := range ss.Spans[len(ss.Spans)-1].Attributes {
				out[a.Key] = a.Value.GetStringValue()
			}
		}
	}
	return out
}

func attributeOf(rs *tracepb.ResourceSpans, name string) string {
	for _, a := range rs.Resource.Attributes {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// overGRPC starts the receiver and returns its URL.
func overGRPC(t *testing.T, r *receiver) string {
	t.Helper()
	listener := listen(t)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return "http://" + listener.Addr().String()
}

// overHTTP starts the receiver as OTLP over HTTP and returns its base URL.
func overHTTP(t *testing.T, r *receiver) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		message := &collector.ExportTraceServiceRequest{}
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, message) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = r.Export(req.Context(), message)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// closedPort is the URL of a port where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + address
}

// silentPort is the URL of a port that accepts connections and never says a word.
func silentPort(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	var held []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
		for _, c := range held {
			_ = c.Close()
		}
	})
	return "http://" + listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// logBuffer is a log that a test can read while others write to it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLog() (*slog.Logger, *logBuffer) {
	b := &logBuffer{}
	return Logger(b, false, slog.LevelInfo), b
}
