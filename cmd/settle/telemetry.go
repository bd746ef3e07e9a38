package main

import (
	"context"
	"sync"

	"github.com/settlemq/settle/internal/telemetry"
)

// shutDown sends what traces and metrics still hold, both at once, so that it takes no longer than one of them. tracing may
// be nil.
func shutDown(ctx context.Context, tracing *telemetry.Telemetry, metrics *telemetry.Metrics) {
	var both sync.WaitGroup
	both.Go(func() { metrics.Shutdown(ctx) })
	if tracing != nil {
		tracing.Shutdown(ctx)
	}
	both.Wait()
}
