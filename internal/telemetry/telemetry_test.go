package telemetry

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clearOTel gives the test an environment without the machine's own OTEL_* settings.
func clearOTel(t *testing.T, settings map[string]string) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER",
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
	} {
		t.Setenv(name, settings[name])
	}
}

// traceOnce makes n spans with the settings, shuts down, and returns the log and how long the shutdown took.
func traceOnce(t *testing.T, n int, settings map[string]string) (logged string, took time.Duration) {
	t.Helper()
	clearOTel(t, settings)
	log, buffer := newLog()
	tracing, err := Setup(t.Context(), "settle-worker", log)
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracing.TracerProvider().Tracer("test")
	start := time.Now()
	for range n {
		_, span := tracer.Start(t.Context(), "perform")
		span.End()
	}
	if spent := time.Since(start); spent > 2*time.Second {
		t.Errorf("%d spans took %v: the collector slowed the work down", n, spent)
	}
	start = time.Now()
	tracing.Shutdown(t.Context())
	return buffer.String(), time.Since(start)
}

func TestSpansArriveWithTheServiceName(t *testing.T) {
	for protocol, start := range map[string]func(*testing.T, *receiver) string{
		"":              overGRPC,
		"grpc":          overGRPC,
		"http/protobuf": overHTTP,
	} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			r := &receiver{}
			logged, _ := traceOnce(t, 1, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": start(t, r),
				"OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
			})
			if got := r.names()["perform"]; got != "settle-worker" {
				t.Errorf("service.name = %q, want settle-worker (received %v)", got, r.names())
			}
			if r.attribute("service.version") == "" {
				t.Error("no service.version")
			}
			if logged != "" {
				t.Errorf("nothing went wrong, but it logged: %s", logged)
			}
		})
	}
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	for name, settings := range map[string]map[string]string{
		"OTEL_SERVICE_NAME":        {"OTEL_SERVICE_NAME": "billing"},
		"OTEL_RESOURCE_ATTRIBUTES": {"OTEL_RESOURCE_ATTRIBUTES": "service.name=billing,team=red"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &receiver{}
			settings["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = overGRPC(t, r)
			traceOnce(t, 1, settings)
			if got := r.names()["perform"]; got != "billing" {
				t.Errorf("service.name = %q, want billing", got)
			}
		})
	}
}

func TestTheSamplerIsRespected(t *testing.T) {
	r := &receiver{}
	logged, _ := traceOnce(t, 3, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": overGRPC(t, r),
		"OTEL_TRACES_SAMPLER":         "always_off",
	})
	if len(r.names()) != 0 || logged != "" {
		t.Errorf("received %v and logged %q, want nothing", r.names(), logged)
	}
}

// More spans than the SDK's queue holds, so that a full queue is met as well.
const tooMany = 5000

func TestADeadCollectorCostsOnlySpans(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"nobody listens": closedPort,
		"never answers":  silentPort,
	} {
		for _, protocol := range []string{"grpc", "http/protobuf"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				logged, took := traceOnce(t, tooMany, map[string]string{
					"OTEL_EXPORTER_OTLP_ENDPOINT": start(t),
					"OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
				})
				if took > flushLimit+2*time.Second {
					t.Errorf("shutdown took %v, want about %v at most", took, flushLimit)
				}
				if want := `"msg":"spans did not reach the collector","lost":5000,"sent":0`; strings.Count(logged, want) != 1 {
					t.Errorf("log does not say once that all spans were lost:\n%s", logged)
				}
				if lines := strings.Count(logged, "\n"); lines > 2 {
					t.Errorf("%d log lines about one dead collector:\n%s", lines, logged)
				}
			})
		}
	}
}

func TestShutdownObeysItsContext(t *testing.T) {
	clearOTel(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": silentPort(t)})
	log, buffer := newLog()
	tracing, err := Setup(t.Context(), "settle-worker", log)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.TracerProvider().Tracer("test").Start(t.Context(), "perform")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	tracing.Shutdown(ctx)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("shutdown took %v after its context had ended", took)
	}
	if !strings.Contains(buffer.String(), `"lost":1`) {
		t.Errorf("the lost span was not reported: %s", buffer)
	}
}

func TestWithoutACollectorSpansHaveIDsAndRecordNothing(t *testing.T) {
	clearOTel(t, nil)
	log, _ := newLog()
	tracing, err := Setup(t.Context(), "settle-worker", log)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.TracerProvider().Tracer("test").Start(t.Context(), "perform")
	if !span.SpanContext().IsValid() || span.IsRecording() {
		t.Errorf("valid %v, recording %v; want ids only", span.SpanContext().IsValid(), span.IsRecording())
	}
	tracing.Shutdown(t.Context())
}

func TestSwitchedOffMeansNoSpans(t *testing.T) {
	r := &receiver{}
	clearOTel(t, map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": overGRPC(t, r)})
	log, _ := newLog()
	tracing, err := Setup(t.Context(), "settle-worker", log)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.TracerProvider().Tracer("test").Start(t.Context(), "perform")
	span.End()
	if span.SpanContext().IsValid() {
		t.Error("a disabled SDK made a span")
	}
	tracing.Shutdown(t.Context())
	if len(r.names()) != 0 {
		t.Errorf("received %v", r.names())
	}
}

func TestSenselessSettingsAreNamedAndDoNotStopTheStart(t *testing.T) {
	for name, settings := range map[string]map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"OTEL_RESOURCE_ATTRIBUTES":           {"OTEL_RESOURCE_ATTRIBUTES": "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			logged, _ := traceOnce(t, 0, settings)
			if !strings.Contains(logged, name) || !strings.Contains(logged, `"level":"WARN"`) {
				t.Errorf("log does not warn about %s:\n%s", name, logged)
			}
			if strings.Contains(logged, "nonsense") {
				t.Errorf("log shows the variable's value:\n%s", logged)
			}
		})
	}
}
