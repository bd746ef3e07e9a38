package consumer

import (
	"context"
	"log/slog"
)

// journal is the log handler of one delivery. It adds what is known about the delivery to the lines that are written,
// so that those that are not cost nothing.
type journal struct {
	slog.Handler // the engine's
	delivery     *delivery
}

// Handle adds what is known by now.
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	return j.Handler.WithAttrs(j.delivery.known()).Handle(ctx, r)
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
	if t := d.task; t != nil {
		out = append(out, slog.Int64("task", t.TaskID), slog.Int("attempt", t.Attempt), slog.String("provider_key", t.ProviderKey))
	}
	return out
}
