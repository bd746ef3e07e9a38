package bench

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/telemetry"
)

// telemetryOf gives a configuration its telemetry, and returns what ends it.
type telemetryOf func(context.Context, *consumer.Config) (unwatch func(), err error)

func unseen(context.Context, *consumer.Config) (func(), error) { return func() {}, nil }

// scrapeEvery is three times as often as Prometheus does by default.
const scrapeEvery = 5 * time.Second

// withMetrics measures as settle work does, and reads it as Prometheus does.
func withMetrics(ctx context.Context, c *consumer.Config) (func(), error) {
	m, err := telemetry.SetupMetrics(ctx, "settle-bench", quiet)
	if err != nil {
		return nil, err
	}
	c.MeterProvider = m.MeterProvider()
	looking, stop := context.WithCancel(ctx)
	var scraper sync.WaitGroup
	scraper.Go(func() { scrape(looking, m.Handler()) })
	return func() {
		stop()
		scraper.Wait()
		m.Shutdown(ctx)
	}, nil
}

func scrape(ctx context.Context, h http.Handler) {
	next := time.NewTicker(scrapeEvery)
	defer next.Stop()
	for {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// onePercent is a sampler as the environment names it.
var onePercent = map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}

// withTraces also sends traces to a collector: every one, unless the environment is to say otherwise.
func withTraces(collector string, sampler map[string]string) telemetryOf {
	return func(ctx context.Context, c *consumer.Config) (func(), error) {
		settings := maps.Clone(sampler)
		if settings == nil {
			settings = map[string]string{}
		}
		settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector
		defer unset(settings)
		for name, value := range settings {
			if err := os.Setenv(name, value); err != nil {
				return nil, err
			}
		}
		tracing, err := telemetry.Setup(ctx, "settle-bench", quiet)
		if err != nil {
			return nil, err
		}
		c.TracerProvider = tracing.TracerProvider()
		unwatch, err := withMetrics(ctx, c)
		if err != nil {
			tracing.Shutdown(ctx)
			return nil, err
		}
		return func() {
			tracing.Shutdown(ctx)
			unwatch()
		}, nil
	}
}

func unset(settings map[string]string) {
	for name := range settings {
		_ = os.Unsetenv(name) // of a name that was set
	}
}
