package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// HashKey is what stands for a key in spans and log lines where keys are not to be seen: "hash-" and the first 16 hex
// digits of its SHA-256. The same key has the same hash, everywhere and for ever. It hides a key from whoever reads along;
// who can guess a key, such as a number in a row, can also compute its hash.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "hash-" + hex.EncodeToString(sum[:8])
}

// shown is a key, or an identifier that may be made of it, as it may be seen. Derived provider keys, whatever is a hash
// already, and what is not there stay as they are.
func shown(value string) string {
	if value == "" || strings.HasPrefix(value, "s1-") {
		return value
	}
	return HashKey(value)
}

// The attributes of spans, and of log lines, that are a key or may be one.
var (
	keyAttributes = map[attribute.Key]bool{"settle.key": true, "settle.provider_key": true, "messaging.message.id": true}
	keyFields     = map[string]bool{"key": true, "provider_key": true}
)

// hashing exports spans without their keys.
type hashing struct{ sdktrace.SpanExporter }

func (h hashing) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	out := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		out[i] = hashed{s}
	}
	return h.SpanExporter.ExportSpans(ctx, out)
}

type hashed struct{ sdktrace.ReadOnlySpan }

func (h hashed) Attributes() []attribute.KeyValue {
	given := h.ReadOnlySpan.Attributes()
	out := make([]attribute.KeyValue, len(given))
	for i, a := range given {
		if keyAttributes[a.Key] {
			a.Value = attribute.StringValue(shown(a.Value.AsString()))
		}
		out[i] = a
	}
	return out
}

func hashField(_ []string, a slog.Attr) slog.Attr {
	if keyFields[a.Key] && a.Value.Kind() == slog.KindString {
		return slog.String(a.Key, shown(a.Value.String()))
	}
	return a
}
