package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/resource"
)

// complaintEvery is the least time between two log lines about the SDK's own troubles.
const complaintEvery = time.Minute

// complaints logs what goes wrong inside the SDK: the first one at once, then at most one a minute with the
// number of those left out. A collector that is down for a night must not fill the disk.
type complaints struct {
	log *slog.Logger

	mu      sync.Mutex
	last    time.Time
	skipped int
}

// routeComplaints replaces the SDK's two global sinks, which write to standard error in formats of their own.
func routeComplaints(log *slog.Logger) {
	c := &complaints{log: log}
	otel.SetErrorHandler(c)
	otel.SetLogger(logr.FromSlogHandler(complaintHandler{c}))
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	if err == nil {
		return
	}
	skipped, due := c.due()
	if !due {
		return
	}
	c.log.Warn("traces: "+plain(err), "left_out", skipped)
}

func (c *complaints) due() (skipped int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.last.IsZero() && now.Sub(c.last) < complaintEvery {
		c.skipped++
		return 0, false
	}
	skipped, c.skipped, c.last = c.skipped, 0, now
	return skipped, true
}

// plain is the error's text without what may be confidential: URLs, and the values of variables.
func plain(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Op + " the collector's URL: " + u.Err.Error()
	}
	if errors.Is(err, resource.ErrPartialResource) {
		return "OTEL_RESOURCE_ATTRIBUTES or the host could not be read in full; the rest is used"
	}
	return err.Error()
}

// complaintHandler feeds the SDK's log lines of level error to complaints. Their attributes are left out on
// purpose: they hold the values of variables, headers with tokens among them.
type complaintHandler struct{ to *complaints }

func (h complaintHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (h complaintHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			text += ": " + plain(err)
			return false
		}
		return true
	})
	h.to.Handle(errors.New(text))
	return nil
}

func (h complaintHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h complaintHandler) WithGroup(string) slog.Handler      { return h }
