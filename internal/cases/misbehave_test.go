package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

// exitCode is how a process ends whose handler exits.
const exitCode = 7

// misbehavingKinds are the reference kinds, but the charge handler does to itself what the customer's name says.
func misbehavingKinds(api *handlers.Client, s settings) []consumer.Definition {
	kind := chargeOf(api, s)
	perform := kind.Perform
	kind.Perform = func(ctx context.Context, a *consumer.Attempt[handlers.ChargeJob]) (handlers.ChargeResult, error) {
		before(a.Job.CustomerID)
		result, err := perform(ctx, a)
		after(a.Job.CustomerID)
		return result, err
	}
	return []consumer.Definition{kind, handlers.Report(api, handlers.ReportOptions{Provider: s.Provider})}
}

// before misbehaves before anything is sent.
func before(customer string) {
	switch customer {
	case "c_exit":
		fmt.Fprintln(os.Stdout, "the handler exits")
		os.Exit(exitCode) //nolint:forbidigo // dying in the middle of a job is the point
	case "c_panic":
		panic(secret)
	case "c_panic_nil":
		panic(nil) //nolint:govet // a panic without a value is one too
	}
}

// after misbehaves when the provider has answered.
func after(customer string) {
	switch customer {
	case "c_panic_after":
		panic(secret)
	case "c_panic_decoding":
		_ = json.Unmarshal([]byte(`{}`), &brittle{})
	}
}

// secret is what a panic's value may hold. It must not get anywhere.
const secret = "card 4111111111111111"

// brittle panics when it is decoded.
type brittle struct{}

func (*brittle) UnmarshalJSON([]byte) error { panic(secret) }
