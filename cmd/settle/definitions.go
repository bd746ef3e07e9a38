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

	kindsFile string          // with more kinds, and limits of single ones
	base      consumer.Policy // of all kinds
	policy    func(consumer.Policy) consumer.Policy
	given     func(flag string) bool // by a flag or its variable; nil: none
}

// definitions are all kinds: those of this build and those of the file.
func definitions(o handlerOptions) ([]consumer.Definition, error) {
	f, err := o.readKindsFile()
	if err != nil {
		return nil, err
	}
	builtIn, err := builtInKinds(o, f.BuiltIn)
	if err != nil {
		return nil, err
	}
	return withFile(builtIn, f, o)
}

// builtInKinds are the kinds of this build, with the limits of a file.
func builtInKinds(o handlerOptions, limits limits) ([]consumer.Definition, error) {
	api, err := handlers.NewClient(handlers.ClientOptions{URL: o.url, Timeout: o.timeout})
	if err != nil { // only the provider's URL can be wrong here
		return nil, wrongUse("--provider-url (%s): %w", variableOf("provider-url").Key(), err)
	}
	return []consumer.Definition{
		handlers.Charge(api, handlers.ChargeOptions{Provider: limits.profile("payment.charge", o), Policy: limits.policy("payment.charge", o),
			CreateOrders: o.createOrders, Receipts: true}),
		handlers.Report(api, handlers.ReportOptions{Provider: limits.profile("report.create", o), Policy: limits.policy("report.create", o)}),
		handlers.Contact(handlers.ContactOptions{Policy: limits.policy("contact.sync", o)}),
		handlers.Receipt(handlers.ReceiptOptions{Policy: limits.policy("receipt.send", o)}),
		handlers.Import(handlers.ImportOptions{Policy: limits.policy("contacts.import", o)}),
	}, nil
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
		base:         policy(cmd),
		policy:       flagsFirst(cmd),
		given:        cmd.IsSet,
	}
}

// byName gives definitions by the name of their kind. base is the policy of all kinds.
func byName(defs []consumer.Definition, base consumer.Policy) (map[string]consumer.Definition, error) {
	known := map[string]consumer.Definition{}
	for _, def := range defs {
		d, err := consumer.Describe(consumer.Config{Policy: base}, def)
		if err != nil {
			return nil, err
		}
		known[d.Name] = def
	}
	return known, nil
}

// chosenKinds are the kinds that --kind names, or all, with the settings of the flags.
func chosenKinds(cmd *cli.Command, kinds func(handlerOptions) ([]consumer.Definition, error)) ([]consumer.Definition, error) {
	o := readHandlerOptions(cmd)
	defs, err := kinds(o)
	if err != nil {
		return nil, err
	}
	names := cmd.StringSlice("kind")
	if len(names) == 0 {
		return defs, nil
	}
	known, err := byName(defs, o.base)
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
