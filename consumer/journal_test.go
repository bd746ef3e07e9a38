package consumer

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/idemstore"
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
	b.conf.Logger = slog.New(slog.NewJSONHandler(&out, nil)).With("service", "worker")
	stop := b.run()
	b.publish(`{"order":"1"}`)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.publish(`{"order":1}`)
	b.publish(`{}`)
	b.awaitSettled()
	stop()
	lines := out.lines(t)
	delivery := map[string]any{"service": "worker", "kind": b.kind.Name, "sequence": 1.0, "delivered": 1.0, "key": "pay_1"}
	attempt := map[string]any{"task": float64(task.TaskID), "attempt": 1.0, "provider_key": task.ProviderKey, "status": "finished"}
	lineSays(t, lines["saved"], delivery, attempt)
	delivery["sequence"] = 2.0
	lineSays(t, lines["answered from the row"], delivery, map[string]any{"task": float64(task.TaskID), "found": "final"})
	lineSays(t, lines["message refused"], map[string]any{"kind": b.kind.Name, "sequence": 3.0, "key": nil, "task": nil})
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
