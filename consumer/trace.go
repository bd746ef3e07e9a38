package consumer

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// tracing finds the trace context of a message, which a CloudEvent in binary mode may have as an extension alone.
type tracing struct{ headers }

func (t tracing) Get(name string) string {
	return or(t.headers.Get(name), t.headers.Get(attributePrefix+name))
}

var propagator propagation.TraceContext

// labels are what every span of a delivery is searched by: the kind from the start, the key once the message is read,
// task and attempt once it is claimed, the provider's id once it is known. A span has those that were known when it
// began. They belong on every span, and not on the delivery's alone, because that one ends last: of a process that is
// killed, only spans that ended before are ever seen.
type labels struct {
	unrecorded bool // nobody looks at the delivery: its span was not sampled, or there is no telemetry

	mu    sync.Mutex
	known []attribute.KeyValue // only appended to; of two with one name the later counts
}

type labelsKey struct{}

func (l *labels) add(attrs []attribute.KeyValue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = append(l.known, attrs...)
}

// all are the labels known by now, and attrs.
func (l *labels) all(attrs []attribute.KeyValue) []attribute.KeyValue {
	if l == nil {
		return attrs
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.known, attrs)
}

// label puts an attribute on the delivery's span, and on every span below it that begins from now on.
func (d *delivery) label(name, value string) {
	if d.span.IsRecording() {
		d.labelAll([]attribute.KeyValue{attribute.String(name, value)})
	}
}

// labelID is label for the provider's id of the effect, if it is known.
func (d *delivery) labelID(id string) {
	if id != "" && d.span.IsRecording() {
		d.labelAll(idLabel(id))
	}
}

func (d *delivery) labelAll(attrs []attribute.KeyValue) {
	d.span.SetAttributes(attrs...)
	d.labels.add(attrs)
}

var noSpan = trace.SpanFromContext(context.Background())

// start begins a child span. Below a delivery that is not recorded there is none: it would have no parent to be seen
// under, and the main path spends no time on it.
func (e *Engine) start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	l, _ := ctx.Value(labelsKey{}).(*labels)
	if l != nil && l.unrecorded {
		return ctx, noSpan
	}
	return e.tracer.Start(ctx, name, trace.WithAttributes(l.all(attrs)...)) //nolint:spancheck // the caller ends it
}

// startDelivery begins the span of one delivery, as a child of the publisher's span if the message has one.
func (e *Engine) startDelivery(ctx context.Context, d *delivery) (context.Context, trace.Span) {
	ctx = context.WithValue(ctx, labelsKey{}, &d.labels)
	kind := attribute.String(attrKind, d.kind.name)
	header := headers(d.msg.Headers())
	if len(header) > 0 {
		ctx = propagator.Extract(ctx, tracing{header})
	}
	ctx, span := e.tracer.Start(ctx, spanDeliver, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(kind,
		attribute.String(attrSystem, "nats"), attribute.String(attrDestination, d.msg.Subject()),
		attribute.String(attrOperation, "process"),
		attribute.String(attrMessageID, header.Get(headerMessageID)),
		attribute.Int64(attrDelivered, int64(d.meta.NumDelivered))))
	if d.labels.unrecorded = !span.IsRecording(); !d.labels.unrecorded {
		d.labels.add([]attribute.KeyValue{kind})
	}
	return ctx, span
}

// startAct begins the span of an operator's act. It stands in the trace of whoever acts, and is linked to the attempt before.
func (e *Engine) startAct(ctx context.Context, d *delivery, t idemstore.Task, a OperatorAct) context.Context {
	ctx = context.WithValue(ctx, labelsKey{}, &d.labels)
	d.labels.add(append(taskLabels(&t), attribute.String(attrKind, t.Kind), attribute.String(attrKey, t.Key)))
	ctx, d.span = e.start(ctx, spanAct, attribute.String(attrAct, string(a)))
	linkTo(d.span, t.LastTrace)
	return ctx
}

// startRecovery begins the span of a task that is taken up without a message, as a child of the publisher's span if the row
// knows one.
//
//nolint:spancheck // takeUp and askParked end it
func (e *Engine) startRecovery(ctx context.Context, d *delivery, t idemstore.Task) (context.Context, trace.Span) {
	ctx = context.WithValue(ctx, labelsKey{}, &d.labels)
	d.labels.add([]attribute.KeyValue{attribute.String(attrKind, t.Kind), attribute.String(attrKey, t.Key)})
	ctx = propagator.Extract(ctx, propagation.MapCarrier{headerTraceparent: t.OriginTrace})
	ctx, span := e.tracer.Start(ctx, spanRecover, trace.WithAttributes(d.labels.all(nil)...))
	d.labels.unrecorded = !span.IsRecording()
	return ctx, span
}

// annotate adds attributes to the span of ctx.
func (e *Engine) annotate(ctx context.Context, attrs ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).SetAttributes(attrs...)
}

// describe labels a delivery with the task that its claim found.
func (d *delivery) describe(c idemstore.Claimed) {
	if !d.span.IsRecording() {
		return
	}
	d.span.SetAttributes(attribute.String(attrFound, string(c.Found)))
	if c.Task.TaskID == 0 {
		return
	}
	d.labelAll(taskLabels(&c.Task))
	d.span.SetAttributes(attribute.String(attrStatus, string(c.Task.Status)))
	if c.Found == idemstore.Final || c.Found == idemstore.Parked {
		d.span.SetAttributes(attribute.Bool(attrDuplicate, true))
	}
}

// taskLabels are the labels that a task gives; none if there is no task.
func taskLabels(t *idemstore.Task) []attribute.KeyValue {
	if t.TaskID == 0 {
		return nil
	}
	return append(idLabel(t.ExternalID), attribute.String(attrTask, taskID(t.TaskID)), attribute.Int(attrAttempt, t.Attempt),
		attribute.String(attrProviderKey, t.ProviderKey))
}

// idLabel is the provider's id of an effect as a label; none if it is not known.
func idLabel(id string) []attribute.KeyValue {
	if id == "" {
		return nil
	}
	id, _ = cleanText([]byte(id), maxExternalID)
	return []attribute.KeyValue{attribute.String(attrExternalID, id)}
}

// learnt labels the running span and its delivery with the provider's id in a handler's result, if there is one.
func (a *attempt) learnt(ctx context.Context, result any) {
	if result == nil || !a.span.IsRecording() {
		return
	}
	if id, err := a.idOf(result); err == nil {
		a.engine.annotate(ctx, idLabel(id)...)
		a.labelID(id)
	}
}

// linkTo links a delivery to the attempt before its own, which may be days and processes away.
func linkTo(span trace.Span, parent string) {
	if parent == "" || !span.IsRecording() {
		return
	}
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
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagator.Inject(ctx, c)
	return c[headerTraceparent]
}

// originTrace is the publisher's trace context, if it is a valid one.
func originTrace(h nats.Header) string {
	parent := tracing{headers(h)}.Get(headerTraceparent)
	if parent == "" || !spanContextOf(parent).IsValid() {
		return ""
	}
	return parent
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

// committed puts the committed outcome on the delivery's span, where one search finds it.
func (d *delivery) committed(status idemstore.Status, externalID, outcome string) {
	d.outcome = outcome
	if !d.span.IsRecording() {
		return
	}
	d.span.SetAttributes(attribute.String(attrStatus, string(status)), attribute.String(attrOutcome, outcome))
	d.labelID(externalID)
}

func taskID(id int64) string { return strconv.FormatInt(id, 10) }
