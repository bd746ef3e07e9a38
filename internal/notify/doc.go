// Package notify tells alerts to somebody: a webhook, or a NATS subject. Its functions fit consumer.Config.Notify: they
// return once the alert has arrived, within the time of ctx, or with an error that holds no secret.
package notify

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/settlemq/settle/consumer"
)

// Func tells one alert.
type Func func(context.Context, consumer.Alert) error

// heardFor is how long somebody who has heard a cause is not told it again because another one has not. After that it is
// news again, as for the engine.
const heardFor = time.Hour

// All tells an alert to each of them; nil for none. One that fails does not keep it from the others. The alert counts as not
// told then and comes again, for those that have not heard it.
func All(to ...Func) Func {
	if len(to) == 0 {
		return nil
	}
	h := hearing{heard: map[string][]time.Time{}}
	return func(ctx context.Context, a consumer.Alert) error {
		heard := h.of(a.Cause, len(to))
		var errs []error
		for i, tell := range to {
			if time.Since(heard[i]) < heardFor {
				continue
			}
			err := tell(ctx, a)
			if err == nil {
				heard[i] = time.Now()
			}
			errs = append(errs, err)
		}
		err := errors.Join(errs...)
		h.keep(a.Cause, heard, err)
		return err
	}
}

// hearing remembers who has heard a cause, as long as somebody has not.
type hearing struct {
	mu    sync.Mutex
	heard map[string][]time.Time
}

// of is when each of n heard a cause.
func (h *hearing) of(cause string, n int) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]time.Time, n)
	copy(out, h.heard[cause])
	return out
}

// keep notes who has heard a cause; once all have, nothing is remembered.
func (h *hearing) keep(cause string, heard []time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.heard, cause); err != nil {
		h.heard[cause] = heard
	}
}
