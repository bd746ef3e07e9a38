package consumer

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// headers carries a trace context in message headers. NATS keeps the letter case of header names, publishers do
// not agree on one, so reading ignores it.
type headers nats.Header

func (h headers) Get(name string) string {
	for k, v := range h {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

func (h headers) Set(name, value string) { nats.Header(h).Set(name, value) }

func (h headers) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

var propagator propagation.TraceContext

// start begins a child span.
func (e *Engine) start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return e.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
}

// startDelivery begins the span of one delivery, as a child of the publisher's span if the message has one.
func (e *Engine) startDelivery(ctx context.Context, d *delivery) (context.Context, trace.Span) {
	ctx = propagator.Extract(ctx, headers(d.msg.Headers()))
	return e.tracer.Start(ctx, spanDeliver, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String(attrSystem, "nats"), attribute.String(attrDestination, d.msg.Subject()),
		attribute.String(attrOperation, "process"), attribute.String(attrKind, d.kind.name),
		attribute.String(attrMessageID, headers(d.msg.Headers()).Get(headerMessageID)),
		attribute.Int64(attrDelivered, int64(d.meta.NumDelivered))))
}

// annotate adds attributes to the span of ctx.
func (e *Engine) annotate(ctx context.Context, attrs ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).SetAttributes(attrs...)
}

// describe puts what a claim found on the delivery's span.
func describe(span trace.Span, c idemstore.Claimed) {
	span.SetAttributes(attribute.String(attrFound, string(c.Found)))
	if c.Task.TaskID == 0 {
		return
	}
	span.SetAttributes(taskAttributes(c.Task)...)
	if c.Found == idemstore.Final || c.Found == idemstore.Parked {
		span.SetAttributes(attribute.Bool(attrDuplicate, true))
	}
}

// taskAttributes are what a trace is searched by.
func taskAttributes(t idemstore.Task) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String(attrTask, taskID(t.TaskID)), attribute.Int(attrAttempt, t.Attempt),
		attribute.String(attrProviderKey, t.ProviderKey), attribute.String(attrStatus, string(t.Status)),
	}
	if t.ExternalID != "" {
		attrs = append(attrs, attribute.String(attrExternalID, t.ExternalID))
	}
	return attrs
}

// linkTo links a delivery to the attempt before its own, which may be days and processes away.
func linkTo(span trace.Span, parent string) {
	sc := spanContextOf(parent)
	if sc.IsValid() {
		span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String("settle.link", "previous attempt")}})
	}
}

func spanContextOf(parent string) trace.SpanContext {
	ctx := propagator.Extract(context.Background(), propagation.MapCarrier{headerTraceparent: parent})
	return trace.SpanContextFromContext(ctx)
}

// traceparent is the trace context of ctx as it is stored on a row.
func traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	propagator.Inject(ctx, c)
	return c[headerTraceparent]
}

// originTrace is the publisher's trace context, if it is a valid one.
func originTrace(h nats.Header) string {
	parent := headers(h).Get(headerTraceparent)
	if !spanContextOf(parent).IsValid() {
		return ""
	}
	return parent
}

// replySubject is the subject that wants the result, if it is one that may be used.
func replySubject(h nats.Header) string {
	s := headers(h).Get(headerReply)
	if strings.HasPrefix(s, "_INBOX.") || strings.HasPrefix(s, "settle.reply.") {
		return s
	}
	return ""
}

// endSpan ends a span, with the error if there is one. A panic brings its stack, never its value.
func endSpan(span trace.Span, err error) {
	if err != nil {
		var attrs []attribute.KeyValue
		var p *panicError
		if errors.As(err, &p) {
			attrs = append(attrs, attribute.String("exception.stacktrace", string(p.stack)))
		}
		span.RecordError(err, trace.WithAttributes(attrs...))
		span.SetStatus(codes.Error, errorText(err))
	}
	span.End()
}

func addEvent(ctx context.Context, name string) { trace.SpanFromContext(ctx).AddEvent(name) }

// annotateDelivery puts the committed outcome on the delivery's span, where one search finds it.
func annotateDelivery(span trace.Span, status idemstore.Status, externalID, outcome string) {
	span.SetAttributes(attribute.String(attrStatus, string(status)), attribute.String(attrOutcome, outcome))
	if externalID != "" {
		span.SetAttributes(attribute.String(attrExternalID, externalID))
	}
}

func taskID(id int64) string { return strconv.FormatInt(id, 10) }
