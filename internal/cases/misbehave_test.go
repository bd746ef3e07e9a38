package cases

import (
	"context"
	"os"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

type chargeAttempt = consumer.Attempt[handlers.ChargeJob]

// misbehavingKinds are the reference kinds, whose charge handler does to itself what the customer's name says.
func misbehavingKinds(api *handlers.Client, s settings) []consumer.Definition {
	kind := chargeOf(api, s)
	perform := kind.Perform
	kind.Perform = func(ctx context.Context, a *chargeAttempt) (handlers.ChargeResult, error) {
		switch a.Job.CustomerID {
		case "c_exit":
			os.Exit(7)
		}
		return perform(ctx, a)
	}
	return []consumer.Definition{kind, handlers.Report(api, handlers.ReportOptions{Provider: s.Provider})}
}
