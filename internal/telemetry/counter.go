package telemetry

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// counter is the SDK's batch processor with a count at its entry and one at its exit. The SDK counts only what
// its full queue dropped, and keeps that to itself.
type counter struct {
	sdktrace.SpanProcessor // the batch processor

	ended, sent atomic.Int64
	stopping    atomic.Bool // the batch processor takes nothing more

	exports context.Context // over: the running export and all later ones end at once
	cut     context.CancelFunc
}

func newCounter(exporter sdktrace.SpanExporter) *counter {
	c := &counter{}
	c.exports, c.cut = context.WithCancel(context.Background())
	c.SpanProcessor = sdktrace.NewBatchSpanProcessor(countedExporter{exporter, c})
	return c
}

// OnEnd queues the span, or drops it when the queue is full. It never blocks.
func (c *counter) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() && !c.stopping.Load() {
		c.ended.Add(1)
	}
	c.SpanProcessor.OnEnd(s)
}

// Shutdown flushes the queue.
func (c *counter) Shutdown(ctx context.Context) error {
	c.stopping.Store(true)
	return c.SpanProcessor.Shutdown(ctx)
}

func (c *counter) lost() int64 { return c.ended.Load() - c.sent.Load() }

// countedExporter counts what the collector took, and can be cut off: the batch processor drains its queue with
// a context of its own, which would keep a dead collector's exports alive for long after Shutdown.
type countedExporter struct {
	sdktrace.SpanExporter
	counter *counter
}

func (e countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.counter.exports, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.counter.sent.Add(int64(len(spans)))
	}
	return err
}
