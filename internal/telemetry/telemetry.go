// Package telemetry connects the process to a trace collector and makes its logger.
//
// It is the only package that knows the OpenTelemetry SDK; all others speak the API. Configuration comes from
// the standard OTEL_* variables; what they have no word for are options. The one rule of the package: a collector that is down, slow or wrongly
// configured costs spans and one log line a minute, never a job.
package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// flushLimit bounds Shutdown as a whole; exports are cut off a little earlier, so that their
// goroutines have ended when Shutdown returns.
const (
	flushLimit  = 3 * time.Second
	exportLimit = 2800 * time.Millisecond
)

// Option changes what is exported or logged.
type Option func(*options)

type options struct{ hashKeys, keepTrouble bool }

func collect(with []Option) (o options) {
	for _, option := range with {
		option(&o)
	}
	return o
}

// WithHashedKeys shows business keys, provider keys and message ids in spans and log lines as their HashKey, if on.
func WithHashedKeys(on bool) Option { return func(o *options) { o.hashKeys = on } }

// WithTrouble exports deliveries that end in trouble also where they were not sampled, if on. Every span is recorded for
// it, and held until its delivery has ended. See KeepTrouble.
func WithTrouble(on bool) Option { return func(o *options) { o.keepTrouble = on } }

// Telemetry is the process's trace provider and what has to be flushed at its end.
type Telemetry struct {
	provider trace.TracerProvider
	sdk      *sdktrace.TracerProvider // nil where OTEL_SDK_DISABLED=true
	spans    *counter                 // nil where nothing is exported
	log      *slog.Logger
}

// Setup reads the OTEL_* variables and returns the process's tracing. It does not connect: the first export does,
// in the background. service is the service.name unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names
// another one.
//
// Spans are exported (OTLP over gRPC, or HTTP where OTEL_EXPORTER_OTLP_PROTOCOL says so) only where an OTLP
// endpoint is set. Without one, spans still have ids, so that log lines can be connected, but record nothing.
// Setup also routes the SDK's own complaints to log, at most one a minute.
//
// A variable that makes no sense is warned about and ignored; an error means that the exporter could not be made.
func Setup(ctx context.Context, service string, log *slog.Logger, with ...Option) (*Telemetry, error) {
	routeComplaints(log)
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return &Telemetry{provider: noop.NewTracerProvider(), log: log}, nil
	}
	exporter, err := newExporter(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("set up traces: %w", err)
	}
	t := &Telemetry{log: log}
	providerOptions := []sdktrace.TracerProviderOption{sdktrace.WithResource(describe(ctx, service))}
	if exporter == nil {
		providerOptions = append(providerOptions, idsOnly())
	} else {
		providerOptions = append(providerOptions, t.export(exporter, collect(with))...)
	}
	t.sdk = sdktrace.NewTracerProvider(providerOptions...)
	t.provider = t.sdk
	return t, nil
}

// export leads spans to the exporter.
func (t *Telemetry) export(exporter sdktrace.SpanExporter, o options) []sdktrace.TracerProviderOption {
	if o.hashKeys {
		exporter = hashing{exporter}
	}
	t.spans = newCounter(exporter)
	if !o.keepTrouble {
		return []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(t.spans)}
	}
	k := newKeeper(t.spans)
	k.cut = func(n int) { t.spans.ended.Add(int64(n)) } // they count among the lost
	return []sdktrace.TracerProviderOption{sdktrace.WithSampler(RecordAll(samplerOf())), sdktrace.WithSpanProcessor(k)}
}

// idsOnly follows a sampled parent, so that the caller's decision travels on, and samples nothing itself.
func idsOnly() sdktrace.TracerProviderOption {
	return sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))
}

// TracerProvider gives the provider to hand to everything that makes spans. It is never nil.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.provider }

// Shutdown sends what is still queued and ends the exporter. It blocks for at most 3 s; when ctx ends it stops
// sending and returns soon. It logs one line if any span of the process's whole life did not reach the
// collector, and reports nothing else: lost spans are no failure of the work. Later spans are dropped silently.
func (t *Telemetry) Shutdown(ctx context.Context) {
	if t.sdk == nil {
		return
	}
	// The SDK leaves its goroutines running when it is given a context that has ended.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	if t.spans != nil {
		defer time.AfterFunc(exportLimit, t.spans.cut).Stop()
		defer context.AfterFunc(ctx, t.spans.cut)()
		defer t.report()
	}
	if err := t.sdk.Shutdown(limit); err != nil {
		otel.Handle(err)
	}
}

func (t *Telemetry) report() {
	t.spans.cut()
	if lost := t.spans.lost(); lost > 0 {
		t.log.Warn("spans did not reach the collector", "lost", lost, "sent", t.spans.sent.Load())
	}
}
