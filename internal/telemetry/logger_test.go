package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func spanContext(t *testing.T) context.Context {
	t.Helper()
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd},
	}))
}

func TestLogLinesCarryTheTrace(t *testing.T) {
	var buf bytes.Buffer
	log := Logger(&buf, false, slog.LevelInfo).With("task", 7)
	log.InfoContext(spanContext(t), "saved")
	var line struct {
		Task    int    `json:"task"`
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	}
	if err := json.Unmarshal(buf.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, &buf)
	}
	if line.Task != 7 || line.TraceID != "ab"+strings.Repeat("0", 30) || line.SpanID != "cd"+strings.Repeat("0", 14) {
		t.Errorf("line = %s", &buf)
	}
}

func TestLinesOutsideATraceCarryNoIDs(t *testing.T) {
	var buf bytes.Buffer
	Logger(&buf, false, slog.LevelInfo).Info("started")
	if strings.Contains(buf.String(), "trace_id") {
		t.Errorf("line = %s", &buf)
	}
}

func TestATerminalGetsText(t *testing.T) {
	var buf bytes.Buffer
	log := Logger(&buf, true, slog.LevelWarn)
	log.Info("left out")
	log.Warn("kept")
	if got := buf.String(); !strings.Contains(got, "msg=kept") || strings.Contains(got, "left out") {
		t.Errorf("log = %q", got)
	}
}
