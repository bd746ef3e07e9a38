package lab

import (
	"context"
	"net/http"
	"time"

	"github.com/settlemq/settle/internal/provider"
)

// What the provider does beside its duty. Each replaces what was asked of it before.

// providerIgnoresKeys: it keeps no keys; a key is a mere reference, by which look-ups find what was made.
func providerIgnoresKeys(_ context.Context, p *play) error {
	return p.misbehaves(provider.Fault{IgnoreKeys: true})
}

// providerForgets: a key that it has had until now no longer stops a second effect.
func providerForgets(_ context.Context, p *play) error {
	return p.misbehaves(provider.Fault{ForgetAfter: time.Microsecond})
}

// providerHoldsAnswer: the first answer comes late, when the effect is long there.
func providerHoldsAnswer(_ context.Context, p *play) error {
	return p.misbehaves(provider.Fault{DelayAfter: holding, Count: 1})
}

// providerCannotTell: it keeps no keys, its first answer is lost, and its look-ups are out of order.
func providerCannotTell(_ context.Context, p *play) error {
	return p.misbehaves(
		provider.Fault{IgnoreKeys: true},
		provider.Fault{Close: provider.After, Count: 1},
		provider.Fault{Method: http.MethodGet, Status: http.StatusServiceUnavailable},
	)
}

// providerHidesReports: it keeps no keys, its first answer is lost, and look-ups do not find that report for an hour.
func providerHidesReports(_ context.Context, p *play) error {
	return p.misbehaves(
		provider.Fault{IgnoreKeys: true},
		provider.Fault{Close: provider.After, Hide: time.Hour, Count: 1},
	)
}
