package bench

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Shares are the parts of what a job waits for. They add up to 1. Waiting for a slot is not in them.
type Shares struct {
	Claim   float64 `json:"claim"`
	Perform float64 `json:"perform"`
	Save    float64 `json:"save"`
	Settle  float64 `json:"ack"` // the confirmed ack
}

type step int

const (
	claiming step = iota
	performing
	saving
	acking
	stepCount
)

// stepsOf are the histograms in which an engine keeps how long a step takes.
var stepsOf = map[string]step{
	"settle_claim_duration_seconds": claiming, "settle_perform_duration_seconds": performing,
	"settle_save_duration_seconds": saving, "settle_ack_duration_seconds": acking,
}

// waits adds up what jobs wait for. A nil waits adds nothing.
type waits struct {
	sums    [stepCount]atomic.Int64 // nanoseconds
	acked   func()                  // called after each confirmed ack; may be nil
	claimed func(time.Duration)     // called after each claim; may be nil
}

func (w *waits) add(s step, d time.Duration) {
	if w == nil {
		return
	}
	w.sums[s].Add(int64(d))
	switch {
	case s == acking && w.acked != nil:
		w.acked()
	case s == claiming && w.claimed != nil:
		w.claimed(d)
	}
}

// shares is nil if nothing was measured.
func (w *waits) shares() *Shares {
	var total float64
	for i := range w.sums {
		total += float64(w.sums[i].Load())
	}
	if total == 0 {
		return nil
	}
	of := func(s step) float64 { return float64(w.sums[s].Load()) / total }
	return &Shares{of(claiming), of(performing), of(saving), of(acking)}
}

// provider is a MeterProvider that keeps the waits of an engine and nothing else.
type provider struct {
	noop.MeterProvider
	waits *waits
}

// Meter gives a meter whose histograms of waits count.
func (p provider) Meter(string, ...metric.MeterOption) metric.Meter { return meter{waits: p.waits} }

type meter struct {
	noop.Meter
	waits *waits
}

func (m meter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	if s, ok := stepsOf[name]; ok {
		return histogram{waits: m.waits, step: s}, nil
	}
	return noop.Float64Histogram{}, nil
}

type histogram struct {
	noop.Float64Histogram
	waits *waits
	step  step
}

func (h histogram) Record(_ context.Context, seconds float64, _ ...metric.RecordOption) {
	h.waits.add(h.step, time.Duration(seconds*float64(time.Second)))
}
