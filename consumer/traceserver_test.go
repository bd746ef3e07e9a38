package consumer

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settlemq/settle/internal/devenv"
)

// peerOf are the attributes of every span that is about the broker: which server, and which connection to it.
func peerOf(t *testing.T, conn *nats.Conn) map[string]any {
	t.Helper()
	u, err := url.Parse(conn.ConnectedUrl())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(u.Port(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	client, err := conn.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	id := strconv.FormatUint(client, 10)
	if conn.Opts.Name != "" {
		id = conn.Opts.Name + "/" + id
	}
	return map[string]any{"server.address": u.Hostname(), "server.port": port, "messaging.client.id": id}
}

func TestSpansOfABrokerNameTheServerOfTheMoment(t *testing.T) {
	t.Parallel()
	first, second := startNATS(t), startNATS(t)
	moved := make(chan struct{})
	conn, err := nats.Connect(first.URL()+","+second.URL(), nats.Name("shop"), nats.DontRandomize(),
		nats.ReconnectHandler(func(*nats.Conn) { close(moved) }))
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{conn: conn}
	has(t, published(t, conn), peerOf(t, conn))
	before := p.now()
	if p.now() != before {
		t.Error("what is known of a server is worked out again")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	<-moved
	if p.now() == before {
		t.Error("spans name the server of before")
	}
	has(t, published(t, conn), peerOf(t, conn))
	conn.Close()
	if p.now() != noPeer || (&peer{}).now() != noPeer {
		t.Error("a connection that is closed, or none, has a server")
	}
}

func startNATS(t *testing.T) *devenv.NATS {
	t.Helper()
	s, err := devenv.StartNATS(devenv.NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// published is the span of one publish.
func published(t *testing.T, conn *nats.Conn) tracetest.SpanStub {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	_, span := startPublishing(context.WithoutCancel(t.Context()), provider, conn, attribute.String(attrKey, "pay_1"))
	span.End()
	return spans.GetSpans()[0]
}

func TestSpansShowNobodysPassword(t *testing.T) {
	t.Parallel()
	for server, want := range map[string][]attribute.KeyValue{
		"nats://ann:hunter2@nats.example:4222": {attribute.String(attrServer, "nats.example"), attribute.Int(attrPort, 4222)},
		"tls://token@[fd00::1]:4223":           {attribute.String(attrServer, "fd00::1"), attribute.Int(attrPort, 4223)},
		"":                                     nil,
		"nats://a b:hunter2":                   nil,
	} {
		want = append([]attribute.KeyValue{attribute.String(attrClient, "7")}, want...)
		if got := peerAttributes(server, "", 7); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", server, got, want)
		}
	}
}
