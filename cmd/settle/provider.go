package main

import (
	"context"
	"net/http"

	"github.com/urfave/cli/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/telemetry"
)

func providerCommand() *cli.Command {
	return &cli.Command{
		Name:  "provider",
		Usage: "serve the stand-in provider: charges and reports with idempotency keys, and faults on demand",
		Description: "For demos, labs and tests. Whoever reaches its address can set faults: keep it on loopback. " +
			"It never touches the tables of settle work.",
		Flags: []cli.Flag{
			databaseFlag(),
			stringFlag("provider-addr", "`HOST:PORT` to listen on", provider.DefaultAddr),
			logFlag(),
		},
		Action: action(0, 0, runProvider),
	}
}

func runProvider(ctx context.Context, cmd *cli.Command) error {
	log := newLog(cmd)
	tracing, err := telemetry.Setup(ctx, "settle-provider", log)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	pool, err := openPool(ctx, cmd, "settle-provider", true, log)
	if err != nil {
		return stopped(ctx, err)
	}
	defer pool.Close()
	server := provider.New(pool, provider.Options{Logger: log, Wrap: traceRequests(tracing.TracerProvider())})
	url, err := server.Listen(cmd.String("provider-addr"))
	if err != nil {
		return err
	}
	log.Info("the stand-in provider listens", "url", url)
	return server.Run(ctx)
}

// traceRequests makes one span per request, a child of the caller's.
func traceRequests(from trace.TracerProvider) func(http.Handler) http.Handler {
	tracer := from.Tracer("github.com/settlemq/settle/cmd/settle")
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			ctx, span := tracer.Start(ctx, r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer),
				trace.WithAttributes(
					attribute.String("http.request.method", r.Method),
					attribute.String("url.path", r.URL.Path),
					attribute.String("settle.provider_key", r.Header.Get("Idempotency-Key")),
				))
			defer span.End()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}
