package main

import (
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

// handlerOptions is what the reference handlers need. The zero value is enough to publish and to be described.
type handlerOptions struct {
	url          string
	timeout      time.Duration
	profile      consumer.Provider
	createOrders bool

	kindsFile string // with more kinds
	policy    func(consumer.Policy) consumer.Policy
}

// definitions are all kinds: those of this build and those of the file.
func definitions(o handlerOptions) ([]consumer.Definition, error) {
	api, err := o.client()
	if err != nil { // only the provider's URL can be wrong here
		return nil, wrongUse("--provider-url (%s): %w", variableOf("provider-url").Key(), err)
	}
	charge := o.charge()
	charge.Receipts = true
	return withFile([]consumer.Definition{
		handlers.Charge(api, charge),
		handlers.Report(api, o.report()),
		handlers.Contact(handlers.ContactOptions{}),
		handlers.Receipt(handlers.ReceiptOptions{}),
		handlers.Import(handlers.ImportOptions{}),
	}, o)
}

func (o handlerOptions) client() (*handlers.Client, error) {
	return handlers.NewClient(handlers.ClientOptions{URL: o.url, Timeout: o.timeout})
}

func (o handlerOptions) charge() handlers.ChargeOptions {
	return handlers.ChargeOptions{Provider: o.profile, CreateOrders: o.createOrders}
}

func (o handlerOptions) report() handlers.ReportOptions {
	return handlers.ReportOptions{Provider: o.profile}
}

// readHandlerOptions reads the part of kindFlags that shapes the handlers.
func readHandlerOptions(cmd *cli.Command) handlerOptions {
	return handlerOptions{
		url:     cmd.String("provider-url"),
		timeout: min(cmd.Duration("provider-timeout"), cmd.Duration("deadline")),
		profile: consumer.Provider{
			Unkeyed:       !cmd.Bool("provider-keyed"),
			KeyLifetime:   cmd.Duration("provider-key-lifetime"),
			AbsentAfter:   cmd.Duration("absent-after"),
			ResendUnkeyed: cmd.Bool("unkeyed-resend"),
			MaxPerSecond:  cmd.Float("provider-max-per-second"),
			MaxInFlight:   cmd.Int("provider-max-in-flight"),
		},
		createOrders: cmd.Bool("create-orders"),
		kindsFile:    cmd.String(kindsFile),
		policy:       flagsFirst(cmd),
	}
}

// byName gives definitions by the name of their kind.
func byName(defs []consumer.Definition) (map[string]consumer.Definition, error) {
	known := map[string]consumer.Definition{}
	for _, def := range defs {
		d, err := consumer.Describe(def, consumer.Config{})
		if err != nil {
			return nil, err
		}
		known[d.Name] = def
	}
	return known, nil
}

// chosenKinds are the kinds that --kind names, or all, with the settings of the flags.
func chosenKinds(cmd *cli.Command, kinds func(handlerOptions) ([]consumer.Definition, error)) ([]consumer.Definition, error) {
	defs, err := kinds(readHandlerOptions(cmd))
	if err != nil {
		return nil, err
	}
	names := cmd.StringSlice("kind")
	if len(names) == 0 {
		return defs, nil
	}
	known, err := byName(defs)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var chosen []consumer.Definition
	for _, name := range slices.Compact(names) {
		def, ok := known[name]
		if !ok {
			return nil, wrongUse("--kind (%s): this build knows no kind %q; known are %s",
				variableOf("kind").Key(), name, strings.Join(sortedNames(known), ", "))
		}
		chosen = append(chosen, def)
	}
	return chosen, nil
}

func sortedNames(known map[string]consumer.Definition) []string {
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
