package telemetry

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Logger writes to w: readable text where terminal is true, else one JSON object per line. Lines logged with a
// context that carries a span get its trace_id and span_id. Of the options, HashKeys changes lines too.
func Logger(w io.Writer, terminal bool, level slog.Leveler, with ...Option) *slog.Logger {
	options, hash := &slog.HandlerOptions{Level: level}, collect(with).hashKeys
	if hash {
		options.ReplaceAttr = hashField
	}
	var lines slog.Handler = slog.NewJSONHandler(w, options)
	if terminal {
		lines = slog.NewTextHandler(w, options)
	}
	if hash {
		lines = hashedLines{lines}
	}
	return slog.New(traced{lines})
}

// traced adds the ids of the context's span to each record.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(
			slog.String("trace_id", span.TraceID().String()),
			slog.String("span_id", span.SpanID().String()),
		)
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traced{h.Handler.WithAttrs(attrs)}
}

func (h traced) WithGroup(name string) slog.Handler {
	return traced{h.Handler.WithGroup(name)}
}
