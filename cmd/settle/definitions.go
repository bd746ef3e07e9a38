package main

import (
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

// handlerOptions is what the reference handlers need. The zero value is enough to publish and to be described.
type handlerOptions struct {
	url          string
	timeout      time.Duration
	profile      consumer.Provider
	createOrders bool
	tracer       trace.TracerProvider
}

// definitions are all kinds of this build.
func definitions(o handlerOptions) ([]consumer.Definition, error) {
	api, err := handlers.NewClient(handlers.ClientOptions{URL: o.url, Timeout: o.timeout, TracerProvider: o.tracer})
	if err != nil {
		return nil, err
	}
	return []consumer.Definition{
		handlers.Charge(api, handlers.ChargeOptions{Provider: o.profile, CreateOrders: o.createOrders}),
		handlers.Report(api, handlers.ReportOptions{Provider: o.profile}),
	}, nil
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

// readHandlerOptions reads the part of kindFlags that shapes the handlers.
func readHandlerOptions(cmd *cli.Command, tracer trace.TracerProvider) handlerOptions {
	return handlerOptions{
		url:     cmd.String("provider-url"),
		timeout: min(cmd.Duration("provider-timeout"), cmd.Duration("deadline")),
		profile: consumer.Provider{
			Unkeyed:       !cmd.Bool("provider-keyed"),
			KeyLifetime:   cmd.Duration("provider-key-lifetime"),
			AbsentAfter:   cmd.Duration("absent-after"),
			ResendUnkeyed: cmd.Bool("unkeyed-resend"),
		},
		createOrders: cmd.Bool("create-orders"),
		tracer:       tracer,
	}
}

// chosenKinds are the definitions that --kind names, or all, with the settings of the flags.
func chosenKinds(cmd *cli.Command, tracer trace.TracerProvider) ([]consumer.Definition, error) {
	defs, err := definitions(readHandlerOptions(cmd, tracer))
	if err != nil {
		return nil, wrongUse("%w", err)
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
