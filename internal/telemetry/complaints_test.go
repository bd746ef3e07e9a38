package telemetry

import (
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
)

func TestComplaintsAreLoggedAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, buffer := newLog()
		c := &complaints{log: log}
		for range 100 {
			c.Handle(errors.New("collector is down"))
		}
		if n := strings.Count(buffer.String(), "\n"); n != 1 {
			t.Fatalf("%d lines for 100 errors at once, want 1:\n%s", n, buffer)
		}
		<-time.After(complaintEvery)
		c.Handle(errors.New("collector is down"))
		if !strings.Contains(buffer.String(), `"left_out":99`) {
			t.Errorf("the second line does not say how many were left out:\n%s", buffer)
		}
	})
}

func TestComplaintsShowNoURLs(t *testing.T) {
	log, buffer := newLog()
	c := &complaints{log: log}
	c.Handle(&url.Error{Op: "Post", URL: "http://u:secret@host/?token=secret", Err: errors.New("connection refused")})
	if got := buffer.String(); strings.Contains(got, "secret") || !strings.Contains(got, "connection refused") {
		t.Errorf("logged %s", got)
	}
}

// The SDK logs malformed header variables with their value, which is where tokens are.
func TestTheSDKsOwnLogLinesCarryNoValues(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer secret")
	logged, _ := traceOnce(t, 0, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
	if !strings.Contains(logged, "parse headers") || strings.Contains(logged, "secret") {
		t.Errorf("logged %s", logged)
	}
}

func TestErrorsGivenToTheAPIReachTheLog(t *testing.T) {
	clearOTel(t, nil)
	log, buffer := newLog()
	if _, err := Setup(t.Context(), "settle-worker", log); err != nil {
		t.Fatal(err)
	}
	otel.Handle(errors.New("something inside the SDK"))
	if got := buffer.String(); !strings.Contains(got, "something inside the SDK") || !strings.Contains(got, slog.LevelWarn.String()) {
		t.Errorf("logged %q", got)
	}
}
