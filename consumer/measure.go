package consumer

import (
	"context"

	"go.opentelemetry.io/otel/metric"
)

// watcher tells whoever looks. Labels get their values in the order of the metric's.
type watcher struct {
	metric.Observer
	*meters
}

func (w watcher) see(d Metric, v float64, values ...string) {
	w.ObserveFloat64(w.watched[d.Name], v, metric.WithAttributeSet(d.attributes(values)))
}

// observe lets show answer all who look from now on, until stop. It reads memory only.
func (m *meters) observe(show ...func(watcher)) (stop func(), err error) {
	all := make([]metric.Observable, 0, len(m.watched))
	for _, i := range m.watched {
		all = append(all, i)
	}
	registered, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, s := range show {
			s(watcher{o, m})
		}
		return nil
	}, all...)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = registered.Unregister() }, nil // it fails for who has done it before
}

// observe shows this worker, and what all of them share, until stop.
func (e *Engine) observe() (stop func()) {
	if e.meters.off {
		return func() {}
	}
	stop, err := e.meters.observe(e.showProcess, e.shared.show)
	if err != nil {
		e.log.Warn("gauges are not there", "error", err)
	}
	return stop
}

// showProcess shows what this worker is like.
func (e *Engine) showProcess(w watcher) {
	w.see(metricReady, toFloat(e.Ready() == nil))
	if at := e.LastRecovery(); !at.IsZero() {
		w.see(metricRecover, float64(at.UnixNano())/1e9)
	}
	for _, k := range e.kinds {
		w.see(metricSlots, float64(cap(k.slots)), k.name)
		w.see(metricInUse, float64(len(k.slots)), k.name)
		w.see(metricBreaker, toFloat(k.breakerIsOpen()), k.name)
	}
	s := e.pool.Stat()
	w.see(metricPool, float64(s.AcquiredConns()), "in_use")
	w.see(metricPool, float64(s.IdleConns()), "idle")
	w.see(metricPool, float64(s.ConstructingConns()), "opening")
	w.see(metricPoolMax, float64(s.MaxConns()))
	w.see(metricPoolTaken, float64(s.AcquireCount()))
	w.see(metricPoolWaited, float64(s.EmptyAcquireCount()))
	w.see(metricPoolWaiting, s.EmptyAcquireWaitTime().Seconds())
}

func toFloat(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
