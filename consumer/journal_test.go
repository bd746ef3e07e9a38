package consumer

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

// asked notes which spans a sampler is asked about, and lets none be recorded.
type asked struct {
	mu    sync.Mutex
	spans []string
}

func (a *asked) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans = append(a.spans, p.Name)
	return sdk.SamplingResult{Decision: sdk.Drop}
}

func (a *asked) Description() string { return "none" }

// A delivery that is not sampled costs one span, whatever it does.
func TestNothingIsTracedBelowADeliveryThatIsNotSampled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var sampler asked
	b.conf.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(&sampler))
	stop := b.run()
	b.publish(`{"order":"1"}`)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	stop()
	if !slices.Equal(sampler.spans, []string{spanDeliver}) {
		t.Errorf("spans %q were begun", sampler.spans)
	}
	if !spanContextOf(task.LastTrace).IsValid() {
		t.Errorf("the row says trace %q, by which logs and later attempts are found", task.LastTrace)
	}
}

// A log line says of a delivery what is known by then.
func TestLogLinesSayWhoseTheyAre(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var out lockedBuffer
	b.conf.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	b.conf.Logger = telemetry.Logger(&out, false, slog.LevelInfo).With("service", "worker")
	stop := b.run()
	b.publish(`{"order":"1"}`)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.publish(`{"order":1}`)
	b.publish(`{}`)
	b.awaitSettled()
	stop()
	all := out.b.String()
	lines := out.lines(t)
	delivery := map[string]any{"service": "worker", "kind": b.kind.Name, "sequence": 1.0, "delivered": 1.0, "key": "pay_1"}
	attempt := map[string]any{"task": float64(task.TaskID), "attempt": 1.0, "provider_key": task.ProviderKey, "status": "finished",
		"external_id": task.ExternalID, "level": "INFO"}
	lineSays(t, lines["saved"], delivery, attempt, map[string]any{"trace_id": task.LastTrace[3:35]})
	delivery["sequence"] = 2.0
	lineSays(t, lines["answered from the row"], delivery, attempt, map[string]any{"found": "final"})
	if lines["answered from the row"]["trace_id"] == nil {
		t.Error("a repeat has no trace id")
	}
	for _, line := range strings.Split(strings.TrimSpace(all), "\n") {
		if fields := names(t, line); len(fields) != len(slices.Compact(slices.Sorted(slices.Values(fields)))) {
			t.Errorf("said twice in %s", line)
		}
	}
	lineSays(t, lines["message refused"], map[string]any{"kind": b.kind.Name, "sequence": 3.0, "key": nil, "task": nil})
}

// names are the members of a JSON object, those that come twice as well.
func names(t *testing.T, object string) (all []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		all = append(all, name.(string))
	}
	return all
}

// What the heartbeat says of an attempt, or anybody without its context, carries all of it too, and the id that was learnt last.
func TestLogLinesFromElsewhere(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	tracer := sdk.NewTracerProvider().Tracer("test")
	e := &Engine{log: textualLog(telemetry.Logger(&out, false, slog.LevelInfo))}
	d := e.newDelivery(&kind{definition: &definition{name: "test.pay"}})
	_, span := tracer.Start(t.Context(), "delivery")
	defer span.End()
	d.span = span
	d.key = "pay_1"
	d.task.Store(&idemstore.Task{Fence: idemstore.Fence{TaskID: 7, Attempt: 2}, ProviderKey: "pay_1", ExternalID: "ch_1"})
	d.log.WarnContext(t.Context(), "lease lost")
	id := "ch_2"
	d.learntID.Store(&id)
	d.log.WarnContext(t.Context(), "external id left as evidence", "external_id", "ch_3")
	d.log.WarnContext(t.Context(), "later")
	lines := out.lines(t)
	common := map[string]any{"kind": "test.pay", "key": "pay_1", "task": 7.0, "attempt": 2.0, "provider_key": "pay_1",
		"trace_id": d.span.SpanContext().TraceID().String()}
	lineSays(t, lines["lease lost"], common, map[string]any{"external_id": "ch_1"})
	lineSays(t, lines["external id left as evidence"], common, map[string]any{"external_id": "ch_3"})
	lineSays(t, lines["later"], common, map[string]any{"external_id": "ch_2"})
}

func lineSays(t *testing.T, line map[string]any, wants ...map[string]any) {
	t.Helper()
	for _, want := range wants {
		for name, value := range want {
			if line[name] != value {
				t.Errorf("line %v: %s is %v, want %v", line, name, line[name], value)
			}
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines are the log lines by their message.
func (l *lockedBuffer) lines(t *testing.T) map[string]map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]map[string]any{}
	for d := json.NewDecoder(&l.b); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		out[line["msg"].(string)] = line
	}
	return out
}
