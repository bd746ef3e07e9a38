package telemetry

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// metricReceiver is a collector of metrics on the loopback interface that keeps the names that it is sent.
type metricReceiver struct {
	collector.UnimplementedMetricsServiceServer

	mu    sync.Mutex
	names []string
}

func (r *metricReceiver) Export(_ context.Context, req *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range req.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				r.names = append(r.names, m.Name)
			}
		}
	}
	return &collector.ExportMetricsServiceResponse{}, nil
}

func (r *metricReceiver) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(r.names)), " ")
}

func (r *metricReceiver) overGRPC(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	server := grpc.NewServer()
	collector.RegisterMetricsServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return "http://" + listener.Addr().String()
}

func (r *metricReceiver) overHTTP(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		message := &collector.ExportMetricsServiceRequest{}
		if err != nil || req.URL.Path != "/v1/metrics" || proto.Unmarshal(body, message) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = r.Export(req.Context(), message)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// measureOnce counts one thing with the settings, and returns what /metrics shows then and what was logged.
func measureOnce(t *testing.T, settings map[string]string) (shown, logged string) {
	t.Helper()
	clearOTel(t, settings)
	for _, name := range []string{"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"} {
		t.Setenv(name, settings[name])
	}
	log, buffer := newLog()
	m, err := SetupMetrics(t.Context(), "settle-worker", log)
	if err != nil {
		t.Fatal(err)
	}
	counter, err := m.MeterProvider().Meter("test").Int64Counter("settle_jobs_total", metric.WithUnit("{job}"), metric.WithDescription("jobs"))
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3, metric.WithAttributes(attribute.String("kind", "payment.charge")))
	times, err := m.MeterProvider().Meter("test").Float64Histogram("settle_save_duration_seconds", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	times.Record(t.Context(), 1.5)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	start := time.Now()
	m.Shutdown(t.Context())
	if took := time.Since(start); took > flushLimit+2*time.Second {
		t.Errorf("shutdown took %v", took)
	}
	return answer.Body.String(), buffer.String()
}

func TestNamesAndLabelsAreShownAsTheyAre(t *testing.T) {
	shown, _ := measureOnce(t, nil)
	for _, text := range []string{"# HELP settle_jobs_total jobs\n# TYPE settle_jobs_total counter\n" + `settle_jobs_total{kind="payment.charge"} 3` + "\n",
		`settle_save_duration_seconds_bucket{le="2"} 1` + "\n", "settle_save_duration_seconds_sum 1.5\n", "go_goroutines ", "process_open_fds "} {
		if !strings.Contains(shown, text) {
			t.Errorf("%q is not in\n%s", text, shown)
		}
	}
	if strings.Contains(shown, "otel_scope") || strings.Contains(shown, "target_info") {
		t.Errorf("more is shown than names and labels:\n%s", shown)
	}
}

func TestMetricsAreSentWhereThatIsAskedFor(t *testing.T) {
	const all = "settle_jobs_total settle_save_duration_seconds"
	for name, c := range map[string]struct {
		start func(*metricReceiver, *testing.T) string
		set   func(url string) map[string]string
		want  string
	}{
		"by name of the exporter": {(*metricReceiver).overGRPC, func(url string) map[string]string {
			return map[string]string{"OTEL_METRICS_EXPORTER": "prometheus,otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
		}, all},
		"by an endpoint of their own": {(*metricReceiver).overGRPC, func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url}
		}, all},
		"over HTTP": {(*metricReceiver).overHTTP, func(url string) map[string]string {
			return map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
		}, all},
		"not to a collector of traces": {(*metricReceiver).overGRPC, func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url}
		}, ""},
		"not where it says none": {(*metricReceiver).overGRPC, func(url string) map[string]string {
			return map[string]string{"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url}
		}, ""},
		"not with the SDK off": {(*metricReceiver).overGRPC, func(url string) map[string]string {
			return map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &metricReceiver{}
			shown, logged := measureOnce(t, c.set(c.start(r, t)))
			if got := r.got(); got != c.want {
				t.Errorf("sent %q, want %q; logged %s", got, c.want, logged)
			}
			if !strings.Contains(shown, "go_goroutines") {
				t.Errorf("/metrics shows\n%s", shown)
			}
		})
	}
}

// A collector of metrics that is away costs metrics, and what is shown to Prometheus is whole.
func TestACollectorOfMetricsThatIsAwayStopsNothing(t *testing.T) {
	for name, url := range map[string]string{"nobody listens": closedPort(t), "nobody answers": silentPort(t), "no URL": "collector:4317"} {
		t.Run(name, func(t *testing.T) {
			shown, logged := measureOnce(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url})
			if !strings.Contains(shown, `settle_jobs_total{kind="payment.charge"} 3`) {
				t.Errorf("shown:\n%s", shown)
			}
			if name == "no URL" && !strings.Contains(logged, "no metrics are sent") {
				t.Errorf("logged %s", logged)
			}
		})
	}
}
