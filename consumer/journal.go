package consumer

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// journal is the log handler of one delivery. It adds what is known about the delivery to the lines that are written,
// so that those that are not cost nothing.
type journal struct {
	slog.Handler // the engine's
	delivery     *delivery
}

// Handle adds what is known by now and what the line does not say itself. A line that is written elsewhere, by the
// heartbeat, belongs to the trace of its delivery as well.
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	if span := j.delivery.span; span != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpan(ctx, span)
	}
	known := j.delivery.known()
	r.Attrs(func(a slog.Attr) bool {
		known = slices.DeleteFunc(known, func(k slog.Attr) bool { return k.Key == a.Key })
		return true
	})
	return j.Handler.WithAttrs(known).Handle(ctx, r)
}

// WithAttrs keeps the delivery.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journal{j.Handler.WithAttrs(attrs), j.delivery}
}

// WithGroup keeps the delivery.
func (j journal) WithGroup(name string) slog.Handler {
	return journal{j.Handler.WithGroup(name), j.delivery}
}

// known is what a log line says of a delivery: more and more of it.
func (d *delivery) known() []slog.Attr {
	out := []slog.Attr{slog.String("kind", d.kind.name)}
	if d.meta != nil {
		out = append(out, slog.Uint64("sequence", d.meta.Sequence.Stream), slog.Uint64("delivered", d.meta.NumDelivered))
	}
	if d.by.actor != "" {
		out = append(out, slog.String("by", d.by.actor))
	}
	if d.key != "" {
		out = append(out, slog.String("key", d.key))
	}
	if t := d.task.Load(); t != nil {
		out = append(out, slog.Int64("task", t.TaskID), slog.Int("attempt", t.Attempt), slog.String("provider_key", t.ProviderKey))
	}
	if id := d.effectID(); id != "" {
		out = append(out, slog.String("external_id", id))
	}
	return out
}

// effectID is the provider's id of the effect, as far as this delivery knows it.
func (d *delivery) effectID() string {
	if id := d.learntID.Load(); id != nil {
		return *id
	}
	if t := d.task.Load(); t != nil {
		return t.ExternalID
	}
	return ""
}

// textual is the log handler below all of an engine's lines: errors are logged by their errorText, because those of handlers
// and drivers may quote what they were given.
type textual struct{ slog.Handler }

func textualLog(log *slog.Logger) *slog.Logger { return slog.New(textual{log.Handler()}) }

// Handle copies only records that have an error.
func (t textual) Handle(ctx context.Context, r slog.Record) error {
	found := false
	r.Attrs(func(a slog.Attr) bool {
		found = isError(a)
		return !found
	})
	if !found {
		return t.Handler.Handle(ctx, r)
	}
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			a = slog.String(a.Key, errorText(err))
		}
		out.AddAttrs(a)
		return true
	})
	return t.Handler.Handle(ctx, out)
}

func isError(a slog.Attr) bool {
	if a.Value.Kind() != slog.KindAny {
		return false
	}
	_, ok := a.Value.Any().(error)
	return ok
}

// WithAttrs keeps the handler.
func (t textual) WithAttrs(attrs []slog.Attr) slog.Handler {
	return textual{t.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the handler.
func (t textual) WithGroup(name string) slog.Handler { return textual{t.Handler.WithGroup(name)} }
