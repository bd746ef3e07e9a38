package main

import (
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/telemetry"
)

// The values of --trace and --trace-keep that are not the default.
const (
	traceLink   = "link"
	keepTrouble = "trouble"
)

// traceFlags shape the spans of attempts.
func traceFlags() []cli.Flag {
	return []cli.Flag{
		choiceFlag("trace", "`FORM` child: attempts are children of the publisher's span; link: each has a trace of its own, with links "+
			"to the publisher and to the attempt before", "child", "child", traceLink),
		choiceFlag("trace-keep", "`WHAT` sampled: what OTEL_TRACES_SAMPLER says; trouble: also what ends unknown, in review, in conflict "+
			"or without its lease, whole", "sampled", "sampled", keepTrouble),
		hashKeysFlag(),
	}
}

func hashKeysFlag() cli.Flag {
	return boolFlag("hash-keys", "show hashes instead of keys in spans and log lines; settle tasks find knows them", false)
}

// telemetryOptions are what the flags ask of spans and log lines. A command without a flag has its default.
func telemetryOptions(cmd *cli.Command) []telemetry.Option {
	return []telemetry.Option{telemetry.WithHashedKeys(cmd.Bool("hash-keys")), telemetry.WithTrouble(cmd.String("trace-keep") == keepTrouble)}
}

// linksTraces is the engine's part of the flags.
func linksTraces(cmd *cli.Command) bool { return cmd.String("trace") == traceLink }
