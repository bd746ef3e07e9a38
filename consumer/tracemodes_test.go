package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

// leads checks a delivery's links by what they say they are.
func leads(t *testing.T, d tracetest.SpanStub, want map[string]tracetest.SpanStub) {
	t.Helper()
	got := map[string]bool{}
	for _, l := range d.Links {
		what := l.Attributes[0].Value.AsString()
		to, asked := want[what]
		if got[what] = true; !asked || l.SpanContext.SpanID() != to.SpanContext.SpanID() || l.SpanContext.TraceID() != to.SpanContext.TraceID() {
			t.Errorf("%s: the link %q leads to %v", d.Name, what, l.SpanContext.SpanID())
		}
	}
	for _, what := range slices.Collect(maps.Keys(want)) {
		if !got[what] {
			t.Errorf("%s: no link %q", d.Name, what)
		}
	}
}

// With LinkTraces each attempt has a trace of its own, that of a recovery too, which leads to the publisher and to the
// attempt before.
func TestLinkedTraces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.conf.LinkTraces = true
	b.pay.then(b.pay.effectThen(noAnswer))
	stop := b.run()
	b.sent(plainJob, map[string][]string{headerTraceparent: {publishersTrace}})
	_, deliveries := delivered(t, spans, 2)
	b.awaitSettled()
	stop()
	publisher := tracetest.SpanStub{SpanContext: spanContextOf(publishersTrace)}
	leads(t, deliveries[0], map[string]tracetest.SpanStub{linkOrigin: publisher})
	leads(t, deliveries[1], map[string]tracetest.SpanStub{linkOrigin: publisher, linkPrevious: deliveries[0]})
	if task := b.awaitStatus("pay_1", idemstore.Finished); task.OriginTrace != publishersTrace {
		t.Errorf("the row comes from %q", task.OriginTrace)
	}

	b.exec(`update settle.tasks set status = 'unknown', finished_at = null, result = null, next_attempt_at = clock_timestamp()`)
	b.recovering().run()
	if !eventually(t, 20*time.Second, func() bool { return len(named(spans.GetSpans(), spanRecover)) > 0 }) {
		t.Fatal("no recovery")
	}
	recovered := named(spans.GetSpans(), spanRecover)[0]
	leads(t, recovered, map[string]tracetest.SpanStub{linkOrigin: publisher, linkPrevious: deliveries[1]})
	has(t, recovered, map[string]any{"settle.kind": "test.pay", "settle.key": "pay_1", "settle.actor": "recovery", "settle.status": "finished"})
	traces := map[string]bool{}
	for _, d := range []tracetest.SpanStub{publisher, deliveries[0], deliveries[1], recovered} {
		traces[d.SpanContext.TraceID().String()] = true
		if d.Name != "" && d.Parent.IsValid() {
			t.Errorf("%s has a parent", d.Name)
		}
	}
	if len(traces) != 4 {
		t.Errorf("%d traces, want one for the publisher and for each attempt", len(traces))
	}
}

// Also inside a span of the program that the engine runs in.
func TestLinkedTracesBeginAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.conf.LinkTraces = true
	e := b.engine(b.kind)
	ctx, program := e.tracer.Start(t.Context(), "program")
	_, span := e.startRecovery(ctx, e.newDelivery(e.kinds[0]), idemstore.Task{Kind: b.kind.Name, Key: "pay_1", OriginTrace: publishersTrace})
	span.End()
	program.End()
	if s := named(spans.GetSpans(), spanRecover)[0]; s.Parent.IsValid() || s.SpanContext.TraceID() == program.SpanContext().TraceID() {
		t.Errorf("the attempt's trace is %v, below %v", s.SpanContext.TraceID(), s.Parent.SpanID())
	}
}

// keepTrouble lets the engines of the bench sample nothing and keep what ends in trouble.
func (b *bench) keepTrouble() *tracetest.InMemoryExporter {
	spans := tracetest.NewInMemoryExporter()
	b.conf.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(telemetry.RecordAll(sdk.NeverSample())),
		sdk.WithSpanProcessor(telemetry.KeepTrouble(sdk.NewSimpleSpanProcessor(spans))))
	return spans
}

// What ends without an outcome is exported whole although nothing is sampled, and so is the attempt that follows, in
// another process, for the row says so. What goes well is not.
func TestTroubleIsKeptAcrossAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.keepTrouble()
	b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Hour, time.Hour
	stop := b.run()
	b.publish(`{"order":"2"}`)
	b.awaitSettled()
	b.pay.then(b.pay.effectThen(noAnswer))
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Unknown)
	stop()
	later := b.keepTrouble()
	b.exec(`update settle.tasks set next_attempt_at = clock_timestamp() where key = 'pay_1'`)
	stop = b.recovering().run()
	if task := b.awaitStatus("pay_1", idemstore.Finished); !spanContextOf(task.LastTrace).IsSampled() {
		t.Errorf("the row does not say that its story is kept: %s", task.LastTrace)
	}
	stop()

	first, second := named(spans.GetSpans(), spanDeliver), named(later.GetSpans(), spanRecover)
	if len(first) != 1 || len(second) != 1 {
		t.Fatalf("kept %d deliveries of the first process and %d of the second, want one each", len(first), len(second))
	}
	for what, got := range map[string]string{
		"settle.deliver(settle.claim settle.perform(HTTP POST) settle.save settle.settle)": tree(spans.GetSpans(), first[0]),
		"settle.recover(settle.claim settle.lookup(HTTP GET) settle.save)":                 tree(later.GetSpans(), second[0]),
	} {
		if got != what {
			t.Errorf("kept %s, want %s", got, what)
		}
	}
	has(t, first[0], map[string]any{"settle.key": "pay_1", "settle.status": "unknown"})
	has(t, second[0], map[string]any{"settle.key": "pay_1", "settle.status": "finished"})
	linked(t, second[0], first[0])
	for _, s := range append(spans.GetSpans(), later.GetSpans()...) {
		if !s.SpanContext.IsSampled() || attributes(s)["settle.key"].AsString() == "pay_2" {
			t.Errorf("%s: sampled %v, of %s", s.Name, s.SpanContext.IsSampled(), attributes(s)["settle.key"].AsString())
		}
	}
}

// A lease that is lost is on the delivery, where a search finds it, as an event and as an attribute.
func TestTraceOfALostLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	_ = b.lost(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) { return paid{}, nil })
	_, deliveries := delivered(t, spans, 1)
	has(t, deliveries[0], map[string]any{"settle.lease_lost": true, "settle.verb": "silent"})
	if !slices.ContainsFunc(deliveries[0].Events, func(e sdk.Event) bool { return e.Name == "settle.lease_lost" }) {
		t.Errorf("events %v", deliveries[0].Events)
	}
}

// So is a heartbeat that did not get through.
func TestTraceOfALostHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	e := b.engine(b.kind)
	a, _ := b.holding(e, time.Minute)
	_, span := e.tracer.Start(t.Context(), spanDeliver)
	a.span = span
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	e.beat(gone, time.Second)
	span.End()
	has(t, spans.GetSpans()[0], map[string]any{"settle.heartbeat_lost": true})
}

// A conflict and its reason are on the delivery as well.
func TestTraceOfAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	b.run()
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.publish(`{"order":"1","note":"other"}`)
	_, deliveries := delivered(t, spans, 2)
	has(t, deliveries[1], map[string]any{"settle.refusal": "conflict", "settle.found": "conflicting", "settle.verb": "term", "settle.key": "pay_1"})
}

// countingSampler counts for which spans a sampler is asked.
type countingSampler struct {
	sdk.Sampler
	mu    sync.Mutex
	names map[string]int
}

func (a *countingSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[p.Name]++
	return a.Sampler.ShouldSample(p)
}

// Of a delivery that is not sampled there is one span, and nothing below it is begun: sampling 1 % costs next to nothing.
func TestWhatIsNotSampledBeginsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sampler := &countingSampler{Sampler: sdk.NeverSample(), names: map[string]int{}}
	b.conf.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(sampler))
	stop := b.run()
	b.publish(plainJob)
	b.awaitSettled()
	stop()
	if !maps.Equal(sampler.names, map[string]int{spanDeliver: 1}) {
		t.Errorf("spans were begun: %v", sampler.names)
	}
	if task := b.awaitStatus("pay_1", idemstore.Finished); !spanContextOf(task.LastTrace).IsValid() || spanContextOf(task.LastTrace).IsSampled() {
		t.Errorf("the row leads to %q", task.LastTrace)
	}
}
