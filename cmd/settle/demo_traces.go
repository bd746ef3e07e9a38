//go:build !nodemo

package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"

	"go.opentelemetry.io/otel"

	"github.com/settlemq/settle/internal/demo"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/telemetry"
)

// Jaeger's ports, as it comes.
const (
	jaegerHTTP  = "4318" // OTLP over HTTP; any other port is taken for gRPC
	jaegerQuery = "16686"
)

// traceDemo makes publisher, provider and workers of the demo send their spans to a collector. stop flushes those of
// this process. Without a collector it does nothing.
func traceDemo(ctx context.Context, otlp string, o *demo.Options) (stop func(), err error) {
	if otlp == "" {
		return func() {}, nil
	}
	collector, err := url.Parse(otlp)
	if err != nil || collector.Hostname() == "" {
		return nil, wrongUse("--otlp is not a URL such as http://127.0.0.1:4317")
	}
	if err := aimTraces(collector); err != nil {
		return nil, err
	}
	log := telemetry.Logger(os.Stderr, isTerminal(os.Stderr), slog.LevelWarn)
	published, err := telemetry.Setup(ctx, "settle-publisher", log)
	if err != nil {
		return nil, wrongUse("%w", err)
	}
	provided, err := telemetry.Setup(ctx, "settle-provider", log)
	if err != nil {
		published.Shutdown(ctx)
		return nil, wrongUse("%w", err)
	}
	otel.SetTracerProvider(published.TracerProvider())
	o.Traced = provider.Trace(provided.TracerProvider())
	o.Jaeger = "http://" + net.JoinHostPort(collector.Hostname(), jaegerQuery)
	return func() {
		published.Shutdown(context.WithoutCancel(ctx))
		provided.Shutdown(context.WithoutCancel(ctx))
	}, nil
}

// aimTraces sets the standard variables, for this process and for the workers, who inherit them.
func aimTraces(collector *url.URL) error {
	protocol := "grpc"
	if collector.Port() == jaegerHTTP {
		protocol = "http/protobuf"
	}
	var failed error
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector.String(), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "",
		"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "",
		// Several services make up the story, so none may be renamed.
		"OTEL_SERVICE_NAME": "",
		// The usual five seconds would lose most of what a worker did before it was killed.
		"OTEL_BSP_SCHEDULE_DELAY": cmp.Or(os.Getenv("OTEL_BSP_SCHEDULE_DELAY"), "100"),
	} {
		failed = errors.Join(failed, os.Setenv(name, value))
	}
	return failed
}
