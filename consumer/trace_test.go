package consumer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// trace lets the engines of the bench report their spans.
func (b *bench) trace() *tracetest.InMemoryExporter {
	spans := tracetest.NewInMemoryExporter()
	b.conf.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(spans))
	return spans
}

func named(spans tracetest.SpanStubs, name string) (out tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// tree is a span and what is below it, by the time of their start.
func tree(spans tracetest.SpanStubs, root tracetest.SpanStub) string {
	var below tracetest.SpanStubs
	for _, s := range spans {
		if s.Parent.SpanID() == root.SpanContext.SpanID() {
			below = append(below, s)
		}
	}
	slices.SortFunc(below, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	if len(below) == 0 {
		return root.Name
	}
	names := make([]string, len(below))
	for i, s := range below {
		names[i] = tree(spans, s)
	}
	return root.Name + "(" + strings.Join(names, " ") + ")"
}

func attributes(s tracetest.SpanStub) map[string]attribute.Value {
	out := map[string]attribute.Value{}
	for _, a := range s.Attributes {
		out[string(a.Key)] = a.Value
	}
	return out
}

// has compares attributes, types included.
func has(t *testing.T, s tracetest.SpanStub, want map[string]any) {
	t.Helper()
	got := attributes(s)
	for name, value := range want {
		if v := got[name].AsInterface(); v != value {
			t.Errorf("%s: %s is %v (%T), want %v (%T)", s.Name, name, v, v, value, value)
		}
	}
}

// delivered waits for n deliveries to end and returns all spans.
func delivered(t *testing.T, spans *tracetest.InMemoryExporter, n int) (all, deliveries tracetest.SpanStubs) {
	t.Helper()
	if !eventually(t, 20*time.Second, func() bool { return len(named(spans.GetSpans(), spanDeliver)) >= n }) {
		t.Fatalf("%d deliveries ended, want %d", len(named(spans.GetSpans(), spanDeliver)), n)
	}
	all = spans.GetSpans()
	deliveries = named(all, spanDeliver)
	slices.SortFunc(deliveries, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return all, deliveries
}

const publishersTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceOfOneJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.run()
	b.sent(plainJob, map[string][]string{headerTraceparent: {publishersTrace}})
	all, deliveries := delivered(t, spans, 1)
	d := deliveries[0]
	if d.SpanKind != trace.SpanKindConsumer || d.Parent.SpanID() != spanContextOf(publishersTrace).SpanID() {
		t.Errorf("a %v span under %v", d.SpanKind, d.Parent.SpanID())
	}
	const want = "settle.deliver(settle.claim settle.perform(HTTP POST) settle.save settle.settle)"
	if got := tree(all, d); got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	task := b.awaitStatus("pay_1", idemstore.Finished)
	has(t, d, map[string]any{
		"settle.task.id": "1", "settle.kind": "test.pay", "settle.key": "pay_1", "settle.provider_key": "pay_1",
		"settle.attempt": int64(1), "settle.external_id": "pay_1", "settle.outcome": "finished", "settle.status": "finished",
		"settle.found": "inserted", "settle.verb": "ack", "settle.num_delivered": int64(1),
		"messaging.system": "nats", "messaging.destination.name": "jobs.test.pay", "messaging.operation.type": "process",
		"messaging.operation.name": "process", "messaging.consumer.group.name": "test-pay", "messaging.message.body.size": int64(len(plainJob)),
		"messaging.message.id": messageID("test.pay", "pay_1", task.Hash),
	})
	has(t, d, peerOf(t, b.js.Conn()))
	if len(d.Links) != 0 || d.Status.Code != codes.Unset {
		t.Errorf("links %v, status %v", d.Links, d.Status)
	}
	settled := named(all, spanSettle)[0]
	if settled.SpanKind != trace.SpanKindClient {
		t.Errorf("the broker is told in a %v span", settled.SpanKind)
	}
	has(t, settled, map[string]any{"messaging.operation.type": "settle", "messaging.operation.name": "ack", "settle.verb": "ack",
		"messaging.system": "nats", "messaging.destination.name": "jobs.test.pay"})
	has(t, settled, peerOf(t, b.js.Conn()))
	searchable(t, all, 1)
	for _, name := range []string{spanPerform, spanSave, spanSettle} { // the id is known from the answer on
		has(t, named(all, name)[0], map[string]any{"settle.external_id": "pay_1"})
	}
	if task.OriginTrace != publishersTrace || spanContextOf(task.LastTrace).SpanID() != d.SpanContext.SpanID() {
		t.Errorf("the row says it came from %q and went through %q", task.OriginTrace, task.LastTrace)
	}
}

// D-42: each attempt has a span of its own, and attempt n links to attempt n-1. A repeat links to the attempt that did
// the work (D-01).
func TestD42AttemptsAreLinked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.pay.then(b.pay.effectThen(noAnswer))
	b.run()
	b.publish(plainJob)
	all, _ := delivered(t, spans, 2)
	b.awaitSettled()
	b.publish(plainJob)
	_, deliveries := delivered(t, spans, 3)
	const (
		first  = "settle.deliver(settle.claim settle.perform(HTTP POST) settle.save settle.settle)"
		second = "settle.deliver(settle.claim settle.lookup(HTTP GET) settle.save settle.settle)"
	)
	for i, want := range []string{first, second} {
		if got := tree(all, deliveries[i]); got != want {
			t.Errorf("attempt %d: spans %s, want %s", i+1, got, want)
		}
		has(t, deliveries[i], map[string]any{"settle.attempt": int64(i + 1), "settle.task.id": "1"})
	}
	searchable(t, below(all, deliveries[0]), 1)
	searchable(t, below(all, deliveries[1]), 2)
	for _, name := range []string{spanLookup, spanSave, spanSettle} {
		has(t, named(below(all, deliveries[1]), name)[0], map[string]any{"settle.external_id": "pay_1"})
	}
	linked(t, deliveries[0])
	linked(t, deliveries[1], deliveries[0])
	linked(t, deliveries[2], deliveries[1])
	has(t, deliveries[0], map[string]any{"settle.status": "unknown", "settle.outcome": "no outcome is known", "settle.verb": "nak"})
	has(t, deliveries[1], map[string]any{"settle.status": "finished", "settle.external_id": "pay_1", "settle.verb": "ack", "settle.found": "ask"})
	has(t, deliveries[2], map[string]any{"settle.duplicate": true, "settle.replayed": true, "settle.external_id": "pay_1", "settle.verb": "ack", "settle.found": "final"})
	has(t, named(all, spanLookup)[0], map[string]any{"settle.verdict": "found"})
	if a, b := deliveries[0].SpanContext.TraceID(), deliveries[1].SpanContext.TraceID(); a == b {
		t.Error("two attempts without a publisher's trace share one")
	}
}

// below are a span and all spans below it.
func below(spans tracetest.SpanStubs, root tracetest.SpanStub) tracetest.SpanStubs {
	out := tracetest.SpanStubs{root}
	for _, s := range spans {
		if s.Parent.SpanID() == root.SpanContext.SpanID() {
			out = append(out, below(spans, s)...)
		}
	}
	return out
}

// searchable checks that each span of an attempt is found by task, key and provider key, the attempt narrowing them. A
// span that ends before its delivery is all that is ever seen of a process that was killed in between.
func searchable(t *testing.T, spans tracetest.SpanStubs, attempt int64) {
	t.Helper()
	if len(spans) < 6 {
		t.Errorf("%d spans", len(spans))
	}
	for _, s := range spans {
		has(t, s, map[string]any{"settle.task.id": "1", "settle.kind": "test.pay", "settle.key": "pay_1",
			"settle.provider_key": "pay_1", "settle.attempt": attempt})
	}
}

// linked checks that a delivery links to exactly these.
func linked(t *testing.T, d tracetest.SpanStub, to ...tracetest.SpanStub) {
	t.Helper()
	if len(d.Links) != len(to) {
		t.Errorf("%d links, want %d", len(d.Links), len(to))
		return
	}
	for i, l := range d.Links {
		if l.SpanContext.SpanID() != to[i].SpanContext.SpanID() || l.SpanContext.TraceID() != to[i].SpanContext.TraceID() {
			t.Errorf("links to %v, want %v", l.SpanContext.SpanID(), to[i].SpanContext.SpanID())
		}
	}
}

// D-42: both spellings lead to the publisher; none, or nonsense, gives a trace of its own and no error.
func TestD42PublishersTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.run()
	parent := spanContextOf(publishersTrace)
	for i, c := range []struct {
		name, value string
		leads       bool
	}{
		{"traceparent", publishersTrace, true},
		{"Traceparent", publishersTrace, true},
		{"TRACEPARENT", publishersTrace, true},
		{"X-None", "", false},
		{"traceparent", "not a trace", false},
		{"traceparent", "00-00000000000000000000000000000000-0000000000000000-01", false},
		{"traceparent", "01" + publishersTrace[2:] + "-\x00\xff" + strings.Repeat("x", 9000), true}, // a later version may append
	} {
		msg := &nats.Msg{Subject: subject(b.kind.Name), Data: []byte(`{"order":"` + string(rune('1'+i)) + `"}`), Header: nats.Header{c.name: {c.value}}}
		if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
		_, deliveries := delivered(t, spans, i+1)
		d := deliveries[i]
		if got := d.SpanContext.TraceID() == parent.TraceID() && d.Parent.SpanID() == parent.SpanID(); got != c.leads || !d.SpanContext.IsValid() {
			t.Errorf("%s: %q: leads to the publisher: %v", c.name, c.value, got)
		}
		task := b.awaitStatus("pay_"+string(rune('1'+i)), idemstore.Finished)
		if spanContextOf(task.OriginTrace).TraceID() != d.SpanContext.TraceID() || c.leads && task.OriginTrace != c.value[:len(publishersTrace)] {
			t.Errorf("%s: %q: the row keeps %q, by which the delivery is not found", c.name, c.value, task.OriginTrace)
		}
	}
}

// D-41: a panic marks the span and brings its stack, and not what the handler panicked with.
func TestTraceOfAPanic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Hour, time.Hour
	b.kind.Perform = performing(func() { panic("secret 4711") })
	b.run()
	b.publish(plainJob)
	all, _ := delivered(t, spans, 1)
	perform := named(all, spanPerform)[0]
	if perform.Status.Code != codes.Error || len(perform.Events) != 1 {
		t.Fatalf("status %v, events %v", perform.Status, perform.Events)
	}
	text := perform.Status.Description
	for _, a := range perform.Events[0].Attributes {
		text += a.Value.String()
	}
	if !strings.Contains(text, "TestTraceOfAPanic") || strings.Contains(text, "4711") {
		t.Errorf("the span says %s", text)
	}
}

func TestTraceOfRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.run()
	b.publish(`{"order":`)
	all, deliveries := delivered(t, spans, 1)
	if got := tree(all, deliveries[0]); got != "settle.deliver(settle.refuse settle.settle)" {
		t.Errorf("spans %s", got)
	}
	has(t, deliveries[0], map[string]any{"settle.refusal": "malformed", "settle.verb": "term"})
}
