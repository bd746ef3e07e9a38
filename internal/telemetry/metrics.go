package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
)

// Metrics is the process's meter provider, and who may look at what it measures.
type Metrics struct {
	provider metric.MeterProvider
	sdk      *sdkmetric.MeterProvider // nil where OTEL_SDK_DISABLED=true
	registry *prometheus.Registry
	log      *slog.Logger
}

// Bounds of a scrape. Gauges are read in advance, so it takes milliseconds.
const (
	scrapeLimit  = 5 * time.Second
	scrapesAtOne = 4
)

// SetupMetrics makes the process's metrics, in a registry of its own: Handler shows them to Prometheus, beside those of the Go
// runtime and the process. They also go to an OTLP collector every OTEL_METRIC_EXPORT_INTERVAL (60 s) where
// OTEL_METRICS_EXPORTER contains otlp, or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set. OTEL_EXPORTER_OTLP_ENDPOINT alone is not
// enough, against the specification: what it names is often a collector of traces only, which would refuse them for ever.
//
// It does not connect. With OTEL_SDK_DISABLED=true nothing is measured but the runtime. A variable that makes no sense is
// warned about and ignored; an error means that an exporter could not be made.
func SetupMetrics(ctx context.Context, service string, log *slog.Logger) (*Metrics, error) {
	m := &Metrics{provider: noop.NewMeterProvider(), registry: prometheus.NewRegistry(), log: log}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return m, nil
	}
	// Names are whole as they are given: nothing is added to them, here or in OTLP.
	shown, err := otelprometheus.New(otelprometheus.WithRegisterer(m.registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(), otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithoutSuffixes))
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(describe(ctx, service)), sdkmetric.WithReader(shown),
		sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter)}
	sent, err := newMetricExporter(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	if sent != nil {
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(sent)))
	}
	m.sdk = sdkmetric.NewMeterProvider(options...)
	m.provider = m.sdk
	return m, nil
}

// MeterProvider gives the provider to hand to everything that measures. It is never nil.
func (m *Metrics) MeterProvider() metric.MeterProvider { return m.provider }

// Handler shows all metrics in the formats of Prometheus. It reads memory only.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: scrapeLimit, MaxRequestsInFlight: scrapesAtOne,
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelWarn)})
}

// Shutdown sends what was measured last. It blocks for at most 3 s, also where ctx has ended. Metrics that do not reach the
// collector are no failure of the work.
func (m *Metrics) Shutdown(ctx context.Context) {
	if m.sdk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	if err := m.sdk.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}
