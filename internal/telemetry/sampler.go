package telemetry

import (
	"os"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// samplerOf is the sampler that OTEL_TRACES_SAMPLER and its argument name. The SDK reads them as well, and complains of
// values that it does not know, but does not give its sampler away.
func samplerOf() sdktrace.Sampler {
	name, parentBased := strings.CutPrefix(strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER"))), "parentbased_")
	var root sdktrace.Sampler
	switch name {
	case "always_on":
		root = sdktrace.AlwaysSample()
	case "always_off":
		root = sdktrace.NeverSample()
	case "traceidratio":
		root = sdktrace.TraceIDRatioBased(ratio())
	default:
		root, parentBased = sdktrace.AlwaysSample(), true
	}
	if parentBased {
		return sdktrace.ParentBased(root)
	}
	return root
}

func ratio() float64 {
	r, err := strconv.ParseFloat(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER_ARG")), 64)
	if err != nil || r < 0 || r > 1 {
		return 1
	}
	return r
}
