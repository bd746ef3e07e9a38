package telemetry

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// newMetricExporter returns nil where the environment does not ask for metrics over OTLP.
func newMetricExporter(ctx context.Context, log *slog.Logger) (sdkmetric.Exporter, error) {
	exporters := strings.Split(os.Getenv("OTEL_METRICS_EXPORTER"), ",")
	own := os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
	if slices.Contains(exporters, "none") || own == "" && !slices.Contains(exporters, "otlp") {
		return nil, nil
	}
	name, endpoint := metricSetting("ENDPOINT")
	if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Host == "") {
		log.Warn(name + " is not a URL such as http://127.0.0.1:4317; no metrics are sent")
		return nil, nil //nolint:nilerr // said; a worker runs without them too
	}
	name, protocol := metricSetting("PROTOCOL")
	switch protocol {
	case "", "grpc":
	case "http/protobuf":
		return otlpmetrichttp.New(ctx)
	default:
		log.Warn(name+" is not a protocol that is spoken here; using grpc", "known", "grpc, http/protobuf")
	}
	return otlpmetricgrpc.New(ctx)
}

// metricSetting reads OTEL_EXPORTER_OTLP_METRICS_<what>, else OTEL_EXPORTER_OTLP_<what>, and says which one it was.
func metricSetting(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_METRICS_" + what
	if value = os.Getenv(name); value != "" {
		return name, value
	}
	name = "OTEL_EXPORTER_OTLP_" + what
	return name, os.Getenv(name)
}
