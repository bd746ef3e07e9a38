// Package notify tells alerts to somebody: a webhook, or a NATS subject. Its functions fit consumer.Config.Notify: they
// return once the alert has arrived, within the time of ctx, or with an error that holds no secret.
package notify

import (
	"context"
	"errors"

	"github.com/settlemq/settle/consumer"
)

// Func tells one alert.
type Func func(context.Context, consumer.Alert) error

// All tells an alert to each of them; nil for none. One that fails does not keep it from the others, but the alert counts
// as not told then, and they hear it again.
func All(to ...Func) Func {
	if len(to) == 0 {
		return nil
	}
	return func(ctx context.Context, a consumer.Alert) error {
		var errs []error
		for _, tell := range to {
			errs = append(errs, tell(ctx, a))
		}
		return errors.Join(errs...)
	}
}
