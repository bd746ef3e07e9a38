package provider

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Trace returns a wrapper for [Options.Wrap] that makes one server span per request, a child of the caller's. The span
// has the key, and the id of the effect that the request made, also where the caller never learnt it.
func Trace(from trace.TracerProvider) func(http.Handler) http.Handler {
	tracer := from.Tracer("github.com/settlemq/settle/internal/provider")
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			ctx, span := tracer.Start(ctx, r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer),
				trace.WithAttributes(
					attribute.String("http.request.method", r.Method),
					attribute.String("url.path", r.URL.Path),
				))
			defer span.End()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// describe puts what became of a call on the span of ctx.
func (c Call) describe(ctx context.Context) {
	span := trace.SpanFromContext(ctx)
	if c.Key != "" {
		span.SetAttributes(attribute.String("settle.provider_key", c.Key))
	}
	if c.ExternalID != "" {
		span.SetAttributes(attribute.String("settle.external_id", c.ExternalID))
	}
	if c.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", c.Status))
	}
}
