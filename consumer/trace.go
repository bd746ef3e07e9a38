package consumer

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

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

// annotate adds attributes to the span of ctx.
func (e *Engine) annotate(ctx context.Context, attrs ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).SetAttributes(attrs...)
}

// describe counts what a claim found, and labels the delivery with the task.
func (d *delivery) describe(c idemstore.Claimed) {
	d.kind.meters.found(c.Found, d.msg != nil)
	d.kind.tally.found(c.Found, d.msg != nil)
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
		d.span.SetAttributes(attribute.Bool(attrDuplicate, true), attribute.Bool(attrReplayed, c.Found == idemstore.Final))
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

// endSpan ends a span, with the error if there is one. A panic brings its stack, never its value.
func endSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		var attrs []attribute.KeyValue
		var p *panicError
		if errors.As(err, &p) {
			attrs = append(attrs, attribute.String("exception.stacktrace", string(p.stack)))
		}
		span.SetAttributes(attribute.String(attrErrorType, spanErrorType(err)))
		span.RecordError(scrubError(err), trace.WithAttributes(attrs...))
		span.SetStatus(codes.Error, errorText(err))
	}
	span.End()
}

// spanErrorType is the low-cardinality name of an error. Jaeger does not search a span's status.
func spanErrorType(err error) string {
	var r *refusalError
	if errors.As(err, &r) {
		return string(r.reason)
	}
	return errorClassOf(err)
}

// mark puts an event on the delivery's span, and an attribute of the same name, by which it is searched.
func (d *delivery) mark(event string) {
	if d.span.IsRecording() {
		d.span.AddEvent(event)
		d.span.SetAttributes(attribute.Bool(event, true))
	}
}

// committed counts the committed outcome, and puts it on the delivery's span, where one search finds it.
func (d *delivery) committed(status idemstore.Status, externalID, outcome string) {
	d.outcome = outcome
	d.kind.meters.committed(status)
	d.kind.tally.committed(status)
	if !d.span.IsRecording() {
		return
	}
	d.span.SetAttributes(attribute.String(attrStatus, string(status)), attribute.String(attrOutcome, outcome))
	d.labelID(externalID)
}

// parked puts on the delivery's span why a person is called, if one is.
func (d *delivery) parked(c idemstore.Cause) {
	if c != "" && d.span.IsRecording() {
		d.span.SetAttributes(attribute.String(attrCause, string(c)))
	}
}

func taskID(id int64) string { return strconv.FormatInt(id, 10) }
