package telemetry

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds of what is held back until a delivery has ended.
const (
	maxHeldTraces = 4096             // deliveries under way at once
	maxHeldSpans  = 32768            // of all of them; some 1 to 2 KiB each
	maxSpansEach  = 512              // of one; a batch makes many
	maxHeldFor    = 30 * time.Minute // a handler that never returns must not be remembered for ever
)

// KeepTrouble exports through next what was sampled, and besides it whole deliveries that ended in trouble: with the
// outcome unknown, in review, as a conflict, or because the lease was lost. A delivery whose previous attempt was kept is
// kept too, as its link says. It needs spans that are recorded although they are not sampled: see RecordAll.
//
// The first span that the process makes for a delivery decides, when it ends. Until then its spans wait in memory, within
// bounds: where too many spans wait, the oldest deliveries give up those that they have so far; where too many deliveries
// do, or one has for half an hour, the oldest is forgotten. Spans that end after the decision follow it.
//
// Nothing else can be brought back: not the publisher's span, which is over, nor those of a provider or another process
// that dropped its own, nor those of a process that was killed.
func KeepTrouble(next sdktrace.SpanProcessor) sdktrace.SpanProcessor { return newKeeper(next) }

// RecordAll samples as base does and records the rest all the same, unsampled.
func RecordAll(base sdktrace.Sampler) sdktrace.Sampler { return recordAll{base} }

type recordAll struct{ sdktrace.Sampler }

func (s recordAll) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	r := s.Sampler.ShouldSample(p)
	if r.Decision == sdktrace.Drop {
		r.Decision = sdktrace.RecordOnly
	}
	return r
}

func (s recordAll) Description() string { return "RecordAll{" + s.Sampler.Description() + "}" }

// keeper holds spans back.
type keeper struct {
	sdktrace.SpanProcessor // takes what is kept
	bounds                 bounds
	cut                    func(n int) // told of spans that a bound took out of a delivery that is kept

	mu    sync.Mutex
	open  map[trace.SpanID]*held // by each span that has not ended
	order []*held                // by their beginning, the oldest first
	spans int                    // that wait
}

type bounds struct {
	traces, spans, each int
	age                 time.Duration
}

// held is what there is of one delivery.
type held struct {
	root    trace.SpanID
	began   time.Time
	open    map[trace.SpanID]struct{}
	ended   []sdktrace.ReadOnlySpan
	cut     int // spans that a bound has taken
	decided bool
	keep    bool
}

func newKeeper(next sdktrace.SpanProcessor) *keeper {
	return &keeper{SpanProcessor: next, cut: func(int) {}, open: map[trace.SpanID]*held{},
		bounds: bounds{maxHeldTraces, maxHeldSpans, maxSpansEach, maxHeldFor}}
}

// OnStart notes a span that is not sampled.
func (k *keeper) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) {
	k.SpanProcessor.OnStart(parent, s)
	if s.SpanContext().IsSampled() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.open[s.Parent().SpanID()]
	if h == nil || s.Parent().IsRemote() {
		h = k.hold(s)
	}
	id := s.SpanContext().SpanID()
	h.open[id], k.open[id] = struct{}{}, h
}

// hold begins a delivery, and forgets the oldest where there are too many or they are too old.
func (k *keeper) hold(s sdktrace.ReadOnlySpan) *held {
	for len(k.order) > 0 && (len(k.order) >= k.bounds.traces || s.StartTime().Sub(k.order[0].began) > k.bounds.age) {
		k.forget(k.order[0])
	}
	h := &held{root: s.SpanContext().SpanID(), began: s.StartTime(), open: map[trace.SpanID]struct{}{}}
	k.order = append(k.order, h)
	return h
}

// OnEnd exports, holds or drops a span. It never blocks.
func (k *keeper) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		k.SpanProcessor.OnEnd(s)
		return
	}
	kept, cut := k.ended(s)
	for _, s := range kept {
		k.SpanProcessor.OnEnd(sampled{s})
	}
	if cut > 0 {
		k.cut(cut)
	}
}

// ended takes the end of a span, and gives those that are to be exported now and how many of theirs are gone.
func (k *keeper) ended(s sdktrace.ReadOnlySpan) (kept []sdktrace.ReadOnlySpan, cut int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := s.SpanContext().SpanID()
	h := k.open[id]
	if h == nil {
		return nil, 0 // forgotten
	}
	delete(k.open, id)
	delete(h.open, id)
	k.add(h, s)
	if id == h.root {
		h.decided, h.keep = true, inTrouble(s)
	}
	if h.decided {
		if h.keep {
			kept, cut = h.ended, h.cut
		}
		k.empty(h)
		h.cut = 0
	}
	if len(h.open) == 0 && h.decided {
		k.forget(h)
	}
	return kept, cut
}

// add lets a span wait. The root always finds room, for it is exported or dropped at once.
func (k *keeper) add(h *held, s sdktrace.ReadOnlySpan) {
	if len(h.ended) >= k.bounds.each && s.SpanContext().SpanID() != h.root {
		h.cut++
		return
	}
	for _, oldest := range k.order {
		if k.spans < k.bounds.spans {
			break
		}
		oldest.cut += len(oldest.ended)
		k.empty(oldest)
	}
	h.ended = append(h.ended, s)
	k.spans++
}

func (k *keeper) empty(h *held) {
	k.spans -= len(h.ended)
	h.ended = nil
}

// forget ends a delivery. What of it ends later is dropped.
func (k *keeper) forget(h *held) {
	k.empty(h)
	for id := range h.open {
		delete(k.open, id)
	}
	if i := slices.Index(k.order, h); i >= 0 {
		k.order = slices.Delete(k.order, i, i+1)
	}
}

// inTrouble reports whether the span of a delivery is to be kept, by what the engine writes on it.
func inTrouble(s sdktrace.ReadOnlySpan) bool {
	return slices.ContainsFunc(s.Attributes(), isTrouble) || slices.ContainsFunc(s.Links(), isKept)
}

func isTrouble(a attribute.KeyValue) bool {
	switch a.Key {
	case "settle.status":
		return a.Value.AsString() == "unknown" || a.Value.AsString() == "needs_review"
	case "settle.refusal":
		return a.Value.AsString() == "conflict"
	case "settle.lease_lost":
		return a.Value.AsBool()
	}
	return false
}

// isKept reports whether a link leads to an earlier attempt that was exported.
func isKept(l sdktrace.Link) bool {
	return l.SpanContext.IsSampled() && slices.ContainsFunc(l.Attributes, func(a attribute.KeyValue) bool {
		return a.Key == "settle.link" && a.Value.AsString() == "previous attempt"
	})
}

// sampled is a span that was not sampled at its start and is exported all the same.
type sampled struct{ sdktrace.ReadOnlySpan }

func (s sampled) SpanContext() trace.SpanContext {
	c := s.ReadOnlySpan.SpanContext()
	return c.WithTraceFlags(c.TraceFlags() | trace.FlagsSampled)
}
