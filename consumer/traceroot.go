package consumer

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// deliveryOptions are what the spans of all deliveries of a kind begin with. They are made once: most deliveries are
// sampled by few, and one that is not must cost next to nothing.
func deliveryOptions(kind string) []trace.SpanStartOption {
	return []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String(attrKind, kind), attribute.String(attrSystem, "nats"), attribute.String(attrDestination, subject(kind)),
		attribute.String(attrGroup, consumerName(kind)), attribute.String(attrOperationType, "process"),
		attribute.String(attrOperation, "process"))}
}

// startDelivery begins the span of one delivery.
func (e *Engine) startDelivery(ctx context.Context, d *delivery) (context.Context, trace.Span) {
	header := headers(d.msg.Headers())
	ctx, span := e.startRoot(ctx, d, spanDeliver, tracing{header}, d.kind.spanOptions)
	if !span.IsRecording() {
		return ctx, span
	}
	d.labels.add([]attribute.KeyValue{attribute.String(attrKind, d.kind.name)})
	span.SetAttributes(e.peer.now().attrs...)
	span.SetAttributes(attribute.Int64(attrDelivered, int64(d.meta.NumDelivered)), attribute.Int(attrBodySize, len(d.msg.Data())))
	if id := header.Get(headerMessageID); id != "" {
		span.SetAttributes(attribute.String(attrMessageID, id))
	}
	return ctx, span
}

// startRecovery begins the span of a task that is taken up without a message. The row knows where it came from.
func (e *Engine) startRecovery(ctx context.Context, d *delivery, t idemstore.Task) (context.Context, trace.Span) {
	ctx, span := e.startRoot(ctx, d, spanRecover, propagation.MapCarrier{headerTraceparent: t.OriginTrace}, nil)
	if span.IsRecording() {
		d.span = span
		d.labelAll([]attribute.KeyValue{attribute.String(attrKind, t.Kind), attribute.String(attrKey, t.Key)})
		span.SetAttributes(attribute.String(attrActor, d.by.actor))
	}
	return ctx, span
}

// startRoot begins the first span that this process makes of a task: as a child of the publisher's span, if origin has
// one, or, with LinkTraces, as the beginning of a trace that links there.
func (e *Engine) startRoot(ctx context.Context, d *delivery, name string, origin propagation.TextMapCarrier,
	options []trace.SpanStartOption) (context.Context, trace.Span) {
	ctx = context.WithValue(ctx, labelsKey{}, &d.labels)
	from := propagator.Extract(ctx, origin)
	var span trace.Span
	if e.config.LinkTraces {
		ctx, span = e.tracer.Start(ctx, name, append([]trace.SpanStartOption{trace.WithNewRoot()}, options...)...)
		addLink(span, trace.SpanContextFromContext(from), linkOrigin)
	} else {
		ctx, span = e.tracer.Start(from, name, options...)
	}
	d.labels.unrecorded = !span.IsRecording()
	return ctx, span
}

// startAct begins the span of an operator's act. It stands in the trace of whoever acts, and is linked to the attempt before.
func (e *Engine) startAct(ctx context.Context, d *delivery, t idemstore.Task, a Act) context.Context {
	ctx = context.WithValue(ctx, labelsKey{}, &d.labels)
	d.labels.add(append(taskLabels(&t), attribute.String(attrKind, t.Kind), attribute.String(attrKey, t.Key)))
	ctx, d.span = e.start(ctx, spanAct, attribute.String(attrAct, string(a)))
	linkTo(d.span, t.LastTrace)
	return ctx
}

// startSettle begins the span of what the broker is told.
func (e *Engine) startSettle(ctx context.Context, d *delivery, v verb) (context.Context, trace.Span) {
	if d.labels.unrecorded {
		return ctx, noSpan
	}
	//nolint:spancheck // settle ends it
	return e.tracer.Start(ctx, spanSettle, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(e.peer.now().attrs...), trace.WithAttributes(d.labels.all([]attribute.KeyValue{
		attribute.String(attrVerb, v.String()), attribute.String(attrSystem, "nats"), attribute.String(attrDestination, d.msg.Subject()),
		attribute.String(attrOperationType, "settle"), attribute.String(attrOperation, v.String())})...))
}

// startPublishing begins the span of a publisher that has no engine.
func startPublishing(ctx context.Context, to trace.TracerProvider, conn *nats.Conn, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	ctx, span := to.Tracer(scopeName).Start(ctx, spanPublish, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String(attrSystem, "nats"), attribute.String(attrOperationType, "send"), attribute.String(attrOperation, "publish")))
	if span.IsRecording() {
		span.SetAttributes(append(attrs, (&peer{conn: conn}).now().attrs...)...)
	}
	return ctx, span
}

// startPublish begins the span of an event or a follow-up job that leaves the outbox. Its parent is the attempt that emitted it.
func (e *Engine) startPublish(ctx context.Context, row idemstore.OutboxRow) (context.Context, trace.Span) {
	ctx, span := e.tracer.Start(ctx, spanPublish, trace.WithSpanKind(trace.SpanKindProducer))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(e.peer.now().attrs...)
	span.SetAttributes(attribute.String(attrSystem, "nats"), attribute.String(attrDestination, row.Subject),
		attribute.String(attrOperationType, "send"), attribute.String(attrOperation, "publish"),
		attribute.Int(attrBodySize, len(row.Payload)), attribute.String(attrKey, row.Key))
	if row.TaskID != 0 {
		span.SetAttributes(attribute.String(attrTask, taskID(row.TaskID)))
	}
	return ctx, span
}
