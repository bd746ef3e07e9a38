package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
)

const (
	secretKey = "order_18452"
	itsHash   = "hash-846afef259225817"
	derived   = "s1-0123456789012345678901234567890123456789"
)

func TestKeysAreHashedInSpans(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := &receiver{}
		clearOTel(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": overGRPC(t, r)})
		log, _ := newLog()
		tracing, err := Setup(t.Context(), "settle-worker", log, WithHashedKeys(on))
		if err != nil {
			t.Fatal(err)
		}
		_, span := tracing.TracerProvider().Tracer("test").Start(t.Context(), "perform")
		span.SetAttributes(attribute.String("settle.key", secretKey), attribute.String("settle.provider_key", secretKey),
			attribute.String("messaging.message.id", secretKey), attribute.String("settle.kind", "payment.charge"), attribute.Int("settle.attempt", 2),
			attribute.String("url.full", "http://provider/charges/"+secretKey))
		span.RecordError(errors.New("order " + secretKey + " is unknown"))
		span.SetStatus(codes.Error, "order "+secretKey+" is unknown")
		span.End()
		tracing.Shutdown(t.Context())
		want := map[string]string{"settle.key": secretKey, "settle.provider_key": secretKey, "messaging.message.id": secretKey}
		if on {
			want = map[string]string{"settle.key": itsHash, "settle.provider_key": itsHash, "messaging.message.id": itsHash}
		}
		want["settle.kind"], want["url.full"] = "payment.charge", "http://provider/charges/"+want["settle.key"]
		got := r.spanAttributes()
		for name, value := range want {
			if got[name] != value {
				t.Errorf("hashing %v: %s is %q, want %q", on, name, got[name], value)
			}
		}
		if quoted := strings.Contains(r.all(), secretKey); quoted == on {
			t.Errorf("hashing %v: the key is there: %v", on, quoted)
		}
	}
}

func TestKeysAreHashedInLogLines(t *testing.T) {
	for _, on := range []bool{false, true} {
		var buf bytes.Buffer
		log := Logger(&buf, false, slog.LevelInfo, WithHashedKeys(on)).With("key", secretKey)
		log.Info("saved", "provider_key", derived, "status", secretKey)
		want := `"key":"` + secretKey + `","provider_key":"` + derived + `","status":"` + secretKey
		if on {
			want = `"key":"` + itsHash + `","provider_key":"` + derived + `","status":"` + secretKey
		}
		if !strings.Contains(buf.String(), want) {
			t.Errorf("hashing %v: %s", on, &buf)
		}
		buf.Reset()
		Logger(&buf, true, slog.LevelInfo, WithHashedKeys(on)).Info("order "+secretKey, "key", secretKey, "why", "of "+secretKey,
			"error", errors.New("no "+secretKey))
		if quoted := strings.Contains(buf.String(), secretKey); quoted == on {
			t.Errorf("hashing %v: %s", on, &buf)
		}
	}
}

func TestWhatIsHashed(t *testing.T) {
	for value, want := range map[string]string{"": "", secretKey: itsHash, derived: derived, "s1-4711": HashKey("s1-4711")} {
		if got := shown(value); got != want {
			t.Errorf("%q is shown as %q, want %q", value, got, want)
		}
	}
}
