package bench

import (
	"context"
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

// withTraces also sends every trace to a collector.
func withTraces(collector string) telemetryOf {
	return func(ctx context.Context, c *consumer.Config) (func(), error) {
		if err := os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector); err != nil {
			return nil, err
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
		}, os.Unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
}
