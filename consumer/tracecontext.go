package consumer

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// headers carries a trace context in message headers. NATS keeps the letter case of header names, publishers do
// not agree on one, so reading ignores it.
type headers nats.Header

// Get prefers the standard's spelling. Of several others it takes always the same one.
func (h headers) Get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	var best, value string
	for k, v := range h {
		if strings.EqualFold(k, name) && len(v) > 0 && (best == "" || k < best) {
			best, value = k, v[0]
		}
	}
	return value
}

func (h headers) Set(name, value string) { nats.Header(h).Set(name, value) }

func (h headers) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

// tracing finds the trace context of a message, which a CloudEvent in binary mode may have as an extension alone.
type tracing struct{ headers }

func (t tracing) Get(name string) string {
	return or(t.headers.Get(name), t.headers.Get(attributePrefix+name))
}

var propagator propagation.TraceContext

// What a link leads to.
const (
	linkPrevious = "previous attempt"
	linkOrigin   = "origin" // the publisher, or the first delivery where the publisher had no trace
)

// linkTo links a delivery to the attempt before its own, which may be days and processes away.
func linkTo(span trace.Span, previous string) {
	if previous != "" && span.IsRecording() {
		addLink(span, spanContextOf(previous), linkPrevious)
	}
}

func addLink(span trace.Span, to trace.SpanContext, what string) {
	if to.IsValid() && span.IsRecording() {
		span.AddLink(trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String(attrLink, what)}})
	}
}

func spanContextOf(parent string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	ctx := propagator.Extract(context.Background(), propagation.MapCarrier{headerTraceparent: parent})
	return trace.SpanContextFromContext(ctx)
}

// traceparent is the trace context of ctx as it is stored on a row.
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagator.Inject(ctx, c)
	return c[headerTraceparent]
}

// originTrace is the publisher's trace context, if it is a valid one.
func originTrace(h nats.Header) string { return knownTrace(tracing{headers(h)}.Get(headerTraceparent)) }

// traceparentLength is that of all that the first version of the standard knows.
const traceparentLength = 55

// knownTrace is what is kept of a traceparent: nothing of one that is not valid. Later versions of the standard may append to
// it whatever they like, and whoever publishes may claim to be one: that part is as long as a header, and no column takes a
// NUL.
func knownTrace(parent string) string {
	if parent == "" || !spanContextOf(parent).IsValid() {
		return ""
	}
	return parent[:min(len(parent), traceparentLength)]
}

// outcomeTrace is the trace context that an attempt leaves on its row with its outcome. A span may be recorded without
// being sampled: somebody decides at its end whether it is kept. What ends in trouble will be, and so will what
// follows: the sampled flag on the row tells the attempts to come, wherever they run.
func (a *attempt) outcomeTrace(status idemstore.Status) string {
	if !a.span.IsRecording() || a.span.SpanContext().IsSampled() || len(a.trace) < 2 {
		return a.trace
	}
	if status == idemstore.Unknown || status == idemstore.NeedsReview || a.kept {
		return a.trace[:len(a.trace)-2] + "01"
	}
	return a.trace
}
