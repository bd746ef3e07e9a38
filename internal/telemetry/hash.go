package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
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

// shown is a key, or an identifier that may be made of it, as it may be seen. Derived provider keys, which are hashes
// already, and what is not there stay as they are.
func shown(value string) string {
	if value == "" || derivedKey.MatchString(value) {
		return value
	}
	return HashKey(value)
}

// derivedKey is what a provider key looks like that is not made of the key in clear.
var derivedKey = regexp.MustCompile(`^s1-[0-9a-f]{40}$`)

// The attributes of spans, and of log lines, that are a key or may be one.
var (
	keyAttributes = map[attribute.Key]bool{"settle.key": true, "settle.provider_key": true, "messaging.message.id": true}
	keyFields     = map[string]bool{"key": true, "provider_key": true}
)

// shortest is how long a key has to be for its copies in texts to be hidden: shorter ones are everywhere.
const shortest = 4

// hiding replaces keys wherever a text quotes them, as they are or as a part of a URL; nil if there are none.
func hiding(keys []string) *strings.Replacer {
	var pairs []string
	for _, key := range keys {
		if len(key) < shortest || derivedKey.MatchString(key) {
			continue
		}
		for _, form := range []string{key, url.PathEscape(key), url.QueryEscape(key)} {
			pairs = append(pairs, form, HashKey(key))
		}
	}
	if pairs == nil {
		return nil
	}
	return strings.NewReplacer(pairs...)
}

// hashing exports spans without their keys.
type hashing struct{ sdktrace.SpanExporter }

func (h hashing) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	out := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		out[i] = hashed{s, hiding(keysOf(s.Attributes()))}
	}
	return h.SpanExporter.ExportSpans(ctx, out)
}

func keysOf(attributes []attribute.KeyValue) (keys []string) {
	for _, a := range attributes {
		if keyAttributes[a.Key] {
			keys = append(keys, a.Value.AsString())
		}
	}
	return keys
}

type hashed struct {
	sdktrace.ReadOnlySpan
	hide *strings.Replacer
}

func (h hashed) Attributes() []attribute.KeyValue { return h.shown(h.ReadOnlySpan.Attributes()) }

func (h hashed) Events() []sdktrace.Event {
	out := slices.Clone(h.ReadOnlySpan.Events())
	for i := range out {
		out[i].Attributes = h.shown(out[i].Attributes)
	}
	return out
}

func (h hashed) Status() sdktrace.Status {
	s := h.ReadOnlySpan.Status()
	if h.hide != nil {
		s.Description = h.hide.Replace(s.Description)
	}
	return s
}

func (h hashed) shown(given []attribute.KeyValue) []attribute.KeyValue {
	out := make([]attribute.KeyValue, len(given))
	for i, a := range given {
		switch {
		case keyAttributes[a.Key]:
			a.Value = attribute.StringValue(shown(a.Value.AsString()))
		case h.hide != nil && a.Value.Type() == attribute.STRING:
			a.Value = attribute.StringValue(h.hide.Replace(a.Value.AsString()))
		}
		out[i] = a
	}
	return out
}

// hashedLines writes log lines without their keys.
type hashedLines struct{ slog.Handler }

func (h hashedLines) Handle(ctx context.Context, r slog.Record) error {
	var keys []string
	r.Attrs(func(a slog.Attr) bool {
		if keyFields[a.Key] {
			keys = append(keys, a.Value.String())
		}
		return true
	})
	hide := hiding(keys)
	if hide == nil {
		return h.Handler.Handle(ctx, r)
	}
	out := slog.NewRecord(r.Time, r.Level, hide.Replace(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if k := a.Value.Kind(); !keyFields[a.Key] && (k == slog.KindString || k == slog.KindAny) {
			if text := a.Value.String(); hide.Replace(text) != text {
				a = slog.String(a.Key, hide.Replace(text))
			}
		}
		out.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h hashedLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return hashedLines{h.Handler.WithAttrs(attrs)}
}

func (h hashedLines) WithGroup(name string) slog.Handler {
	return hashedLines{h.Handler.WithGroup(name)}
}

func hashField(_ []string, a slog.Attr) slog.Attr {
	if keyFields[a.Key] && a.Value.Kind() == slog.KindString {
		return slog.String(a.Key, shown(a.Value.String()))
	}
	return a
}
