package telemetry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// keeping is a tracer whose spans are held by a keeper with small bounds.
type keeping struct {
	trace.Tracer
	keeper *keeper
	out    *tracetest.InMemoryExporter
	cut    int
}

func newKeeping(t *testing.T, sampler sdktrace.Sampler) *keeping {
	t.Helper()
	k := &keeping{out: tracetest.NewInMemoryExporter()}
	k.keeper = newKeeper(sdktrace.NewSimpleSpanProcessor(k.out))
	k.keeper.bounds = bounds{traces: 3, spans: 8, each: 4, age: time.Minute}
	k.keeper.cut = func(n int) { k.cut += n }
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(RecordAll(sampler)), sdktrace.WithSpanProcessor(k.keeper))
	k.Tracer = provider.Tracer("test")
	return k
}

// exported are the names of what was exported, in its order.
func (k *keeping) exported() string {
	var names []string
	for _, s := range k.out.GetSpans() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// nothingHeld checks that nothing is remembered once everything has ended.
func (k *keeping) nothingHeld(t *testing.T) {
	t.Helper()
	if k.keeper.spans != 0 || len(k.keeper.open) != 0 || len(k.keeper.order) != 0 {
		t.Errorf("still holds %d spans, %d open ones, %d deliveries", k.keeper.spans, len(k.keeper.open), len(k.keeper.order))
	}
}

// child makes a span and ends it.
func (k *keeping) child(ctx context.Context, name string) {
	_, span := k.Start(ctx, name)
	span.End()
}

func statusIs(status string) attribute.KeyValue { return attribute.String("settle.status", status) }

func TestTroubleIsExportedWhole(t *testing.T) {
	for name, c := range map[string]struct {
		says attribute.KeyValue
		want string
	}{
		"finished":      {statusIs("finished"), ""},
		"failed":        {statusIs("failed"), ""},
		"replayed":      {attribute.Bool("settle.duplicate", true), ""},
		"malformed":     {attribute.String("settle.refusal", "malformed"), ""},
		"unknown":       {statusIs("unknown"), "claim HTTP perform deliver"},
		"in review":     {statusIs("needs_review"), "claim HTTP perform deliver"},
		"conflict":      {attribute.String("settle.refusal", "conflict"), "claim HTTP perform deliver"},
		"lease is lost": {attribute.Bool("settle.lease_lost", true), "claim HTTP perform deliver"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t, sdktrace.NeverSample())
			ctx, root := k.Start(t.Context(), "deliver")
			k.child(ctx, "claim")
			within, perform := k.Start(ctx, "perform")
			k.child(within, "HTTP")
			perform.End()
			root.SetAttributes(statusIs("started"), c.says)
			if k.exported() != "" {
				t.Errorf("exported %s before the end was known", k.exported())
			}
			root.End()
			if got := k.exported(); got != c.want {
				t.Errorf("exported %q, want %q", got, c.want)
			}
			for _, s := range k.out.GetSpans() {
				if !s.SpanContext.IsSampled() || s.SpanContext.TraceID() != root.SpanContext().TraceID() {
					t.Errorf("%s: sampled %v, trace %v", s.Name, s.SpanContext.IsSampled(), s.SpanContext.TraceID())
				}
			}
			k.nothingHeld(t)
		})
	}
}

func TestWhatIsSampledPassesAtOnce(t *testing.T) {
	k := newKeeping(t, sdktrace.AlwaysSample())
	ctx, root := k.Start(t.Context(), "deliver")
	k.child(ctx, "claim")
	if got := k.exported(); got != "claim" {
		t.Errorf("exported %q", got)
	}
	root.End()
	k.nothingHeld(t)
}

func TestLaterAttemptsAreKeptWithTheOneBefore(t *testing.T) {
	for _, flags := range []trace.TraceFlags{0, trace.FlagsSampled} {
		for _, what := range []string{"previous attempt", "origin"} {
			want := ""
			if flags.IsSampled() && what == "previous attempt" {
				want = "deliver"
			}
			k := newKeeping(t, sdktrace.NeverSample())
			_, root := k.Start(t.Context(), "deliver")
			to := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags})
			root.AddLink(trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String("settle.link", what)}})
			root.SetAttributes(statusIs("finished"))
			root.End()
			if got := k.exported(); got != want {
				t.Errorf("flags %v, link to the %s: exported %q, want %q", flags, what, got, want)
			}
		}
	}
}

// Deliveries of one publisher's trace run at the same time and are told apart.
func TestDeliveriesOfOneTraceAreJudgedApart(t *testing.T) {
	k := newKeeping(t, sdktrace.ParentBased(sdktrace.AlwaysSample()))
	publisher := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), publisher)
	first, good := k.Start(ctx, "good")
	second, bad := k.Start(ctx, "bad")
	k.child(first, "good-claim")
	k.child(second, "bad-claim")
	bad.SetAttributes(statusIs("unknown"))
	bad.End()
	good.End()
	if got := k.exported(); got != "bad-claim bad" {
		t.Errorf("exported %q", got)
	}
	k.nothingHeld(t)
}

// A handler that is left behind ends after its delivery.
func TestLateSpansFollowTheDecision(t *testing.T) {
	for status, want := range map[string]string{"unknown": "deliver perform", "finished": ""} {
		k := newKeeping(t, sdktrace.NeverSample())
		ctx, root := k.Start(t.Context(), "deliver")
		_, late := k.Start(ctx, "perform")
		root.SetAttributes(statusIs(status))
		root.End()
		late.End()
		if got := k.exported(); got != want {
			t.Errorf("%s: exported %q, want %q", status, got, want)
		}
		k.nothingHeld(t)
	}
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	t.Run("spans of one delivery", func(t *testing.T) {
		k := newKeeping(t, sdktrace.NeverSample())
		ctx, root := k.Start(t.Context(), "deliver")
		for i := range 10 {
			k.child(ctx, fmt.Sprint("step", i))
		}
		root.SetAttributes(statusIs("unknown"))
		root.End()
		if got := k.exported(); got != "step0 step1 step2 step3 deliver" || k.cut != 6 {
			t.Errorf("exported %q and told of %d that are gone", got, k.cut)
		}
	})
	t.Run("spans of all", func(t *testing.T) {
		k := newKeeping(t, sdktrace.NeverSample())
		var roots [3]trace.Span
		for i := range roots {
			ctx, root := k.Start(t.Context(), fmt.Sprint("deliver", i))
			roots[i] = root
			for range 3 {
				k.child(ctx, fmt.Sprint("step", i))
			}
		}
		if k.keeper.spans > k.keeper.bounds.spans {
			t.Errorf("holds %d spans", k.keeper.spans)
		}
		for i := range roots {
			roots[i].SetAttributes(statusIs("unknown"))
			roots[i].End()
		}
		if got := k.exported(); got != "deliver0 step1 step1 step1 deliver1 step2 step2 step2 deliver2" || k.cut != 3 {
			t.Errorf("exported %q and told of %d that are gone", got, k.cut)
		}
		k.nothingHeld(t)
	})
	t.Run("deliveries", func(t *testing.T) {
		k := newKeeping(t, sdktrace.NeverSample())
		var roots []trace.Span
		for i := range 5 {
			_, root := k.Start(t.Context(), fmt.Sprint("deliver", i))
			roots = append(roots, root)
		}
		if n := len(k.keeper.order); n != 3 {
			t.Errorf("remembers %d deliveries", n)
		}
		for _, root := range roots {
			root.SetAttributes(statusIs("unknown"))
			root.End()
		}
		if got := k.exported(); got != "deliver2 deliver3 deliver4" {
			t.Errorf("exported %q", got)
		}
		k.nothingHeld(t)
	})
	t.Run("age", func(t *testing.T) {
		k := newKeeping(t, sdktrace.NeverSample())
		began := time.Now()
		ctx, old := k.Start(t.Context(), "old", trace.WithTimestamp(began))
		k.child(ctx, "claim")
		_, young := k.Start(t.Context(), "young", trace.WithTimestamp(began.Add(61*time.Second)))
		if n := len(k.keeper.order); n != 1 || k.keeper.spans != 0 {
			t.Errorf("remembers %d deliveries and %d spans", n, k.keeper.spans)
		}
		old.End()
		young.End()
		k.nothingHeld(t)
	})
}

func TestTroubleReachesTheCollectorAndIsCounted(t *testing.T) {
	r := &receiver{}
	clearOTel(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": overGRPC(t, r), "OTEL_TRACES_SAMPLER": "always_off"})
	log, buffer := newLog()
	tracing, err := Setup(t.Context(), "settle-worker", log, WithTrouble(true))
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.TracerProvider().Tracer("test")
	for name, status := range map[string]string{"bad": "unknown", "good": "finished"} {
		_, root := tracer.Start(t.Context(), name)
		root.SetAttributes(statusIs(status))
		root.End()
	}
	tracing.Shutdown(t.Context())
	if got := r.names(); len(got) != 1 || got["bad"] == "" {
		t.Errorf("received %v, want the troubled delivery alone", got)
	}
	if buffer.String() != "" {
		t.Errorf("nothing was lost, but it logged: %s", buffer)
	}
}

func TestTheSamplerIsTheOneOfTheEnvironment(t *testing.T) {
	for settings, want := range map[[2]string]string{
		{"", ""}:                            "ParentBased{root:AlwaysOnSampler",
		{"always_on", ""}:                   "AlwaysOnSampler",
		{"always_off", ""}:                  "AlwaysOffSampler",
		{"traceidratio", "0.25"}:            "TraceIDRatioBased{0.25}",
		{"traceidratio", "2"}:               "TraceIDRatioBased{1}",
		{"Parentbased_Always_Off", ""}:      "ParentBased{root:AlwaysOffSampler",
		{"parentbased_traceidratio", "0.5"}: "ParentBased{root:TraceIDRatioBased{0.5}",
		{"nonsense", ""}:                    "ParentBased{root:AlwaysOnSampler",
	} {
		clearOTel(t, map[string]string{"OTEL_TRACES_SAMPLER": settings[0]})
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", settings[1])
		if got := samplerOf().Description(); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s, want %s", settings, got, want)
		}
	}
}
