package telemetry

import (
	"context"
	"log/slog"
	"net/url"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/internal/build"
)

// newExporter returns nil where the environment names no collector.
func newExporter(ctx context.Context, log *slog.Logger) (sdktrace.SpanExporter, error) {
	name, endpoint := setting("ENDPOINT")
	if endpoint == "" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	// The SDK takes "collector:4317" for a URL with the scheme "collector" and sends to localhost.
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" {
		log.Warn(name + " is not a URL such as http://127.0.0.1:4317; no traces are sent")
		return nil, nil //nolint:nilerr // said; a worker runs without traces too
	}
	name, protocol := setting("PROTOCOL")
	switch protocol {
	case "", "grpc":
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		log.Warn(name+" is not a protocol that is spoken here; using grpc", "known", "grpc, http/protobuf")
	}
	return otlptracegrpc.New(ctx)
}

// setting reads OTEL_EXPORTER_OTLP_TRACES_<what>, else OTEL_EXPORTER_OTLP_<what>, and says which one it was.
func setting(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + what
	if value = os.Getenv(name); value != "" {
		return name, value
	}
	name = "OTEL_EXPORTER_OTLP_" + what
	return name, os.Getenv(name)
}

// describe makes the resource: what is the same on every span of this process. The environment wins.
func describe(ctx context.Context, service string) *resource.Resource {
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithProcessPID(),
		resource.WithService(), // service.instance.id tells workers of one host apart
		resource.WithAttributes(
			attribute.String("service.name", service),
			attribute.String("service.version", build.Read().Version),
		),
		resource.WithFromEnv(),
	)
	if err != nil {
		otel.Handle(err) // the rest of the resource is usable
	}
	return r
}
