package consumer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/settlemq/settle/idemstore"
)

// Gauges about what all workers share are read by one goroutine per engine, however many look at them and however often. A
// reading that fails leaves nothing behind: a number that was true before the database went away would be taken for one that
// is true now.

const (
	measureEvery = 10 * time.Second
	measureLimit = 3 * time.Second // for all answers of one server
)

// measured is what was read last; nil: it could not be.
type measured struct {
	table  atomic.Pointer[idemstore.Census]
	stream atomic.Pointer[streamCensus]
	silent map[string]bool // what could not be read the last time, and was told; of measure alone
}

// streamCensus is what the job stream holds for nobody in particular yet.
type streamCensus struct {
	undelivered map[string]uint64 // by kind
	unrouted    uint64
}

// measure reads the shared gauges until ctx ends. It does nothing where nobody looks.
func (e *Engine) measure(ctx context.Context) {
	if e.meters.off {
		return
	}
	defer e.measured.table.Store(nil)
	defer e.measured.stream.Store(nil)
	for ctx.Err() == nil {
		e.measured.table.Store(readGauges(ctx, e, "table", func(ctx context.Context) (*idemstore.Census, error) { return e.store.Census(ctx) }))
		e.measured.stream.Store(readGauges(ctx, e, "stream", e.streamCensus))
		select {
		case <-ctx.Done():
		case <-e.after(measureEvery):
		}
	}
}

// readGauges is nil if f fails.
func readGauges[T any](ctx context.Context, e *Engine, what string, f func(context.Context) (*T, error)) *T {
	limited, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	read, err := f(limited)
	if ctx.Err() == nil {
		e.measured.tell(e.log, what, err)
	}
	if err != nil {
		return nil
	}
	return read
}

// tell says that gauges cannot be read any more, or again, once each.
func (m *measured) tell(log *slog.Logger, what string, err error) {
	switch {
	case err != nil && !m.silent[what]:
		log.Info("gauges not read; they are left out until they can be", "of", what, "error", err)
	case err == nil && m.silent[what]:
		log.Info("gauges are read again", "of", what)
	}
	if m.silent == nil {
		m.silent = map[string]bool{}
	}
	m.silent[what] = err != nil
}

func (e *Engine) streamCensus(ctx context.Context) (*streamCensus, error) {
	c := &streamCensus{undelivered: map[string]uint64{}}
	for _, k := range e.kinds {
		cons, err := e.js.Consumer(ctx, jobStream, consumerName(k.name))
		if err != nil {
			return nil, err
		}
		c.undelivered[k.name] = cons.CachedInfo().NumPending
	}
	stream, err := e.js.Stream(ctx, jobStream)
	if err != nil {
		return nil, err
	}
	strays, err := unroutedOf(ctx, stream, 0)
	for _, s := range strays {
		c.unrouted += s.Count
	}
	return c, err
}

// watcher tells whoever looks. Labels get their values in the order of the metric's.
type watcher struct {
	metric.Observer
	*meters
}

func (w watcher) see(d Metric, v float64, values ...string) {
	w.ObserveFloat64(w.watched[d.Name], v, metric.WithAttributeSet(d.attributes(values)))
}

// observe answers all who look from now on, until stop. It reads memory only.
func (e *Engine) observe() (stop func()) {
	if e.meters.off {
		return func() {}
	}
	all := make([]metric.Observable, 0, len(e.meters.watched))
	for _, i := range e.meters.watched {
		all = append(all, i)
	}
	registered, err := e.meters.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		w := watcher{o, e.meters}
		e.showProcess(w)
		e.showTable(w)
		e.showStream(w)
		return nil
	}, all...)
	if err != nil {
		e.log.Warn("gauges are not there", "error", err)
		return func() {}
	}
	return func() { _ = registered.Unregister() } // it fails for who has done it before
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
		w.see(metricBreaker, toFloat(k.remote.breaker != nil && k.remote.breaker.isOpen.Load()), k.name)
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

// showTable shows the tasks that are not over, of the kinds that are served here, and the outbox.
func (e *Engine) showTable(w watcher) {
	c := e.measured.table.Load()
	if c == nil {
		return
	}
	for _, k := range e.kinds {
		e.showTasks(w, k.name, c)
	}
	for stream, s := range map[string]idemstore.Pile{jobStream: c.OutboxJobs, eventStream: c.OutboxEvents} {
		w.see(metricRows, float64(s.Count), stream)
		w.see(metricLag, s.Oldest.Seconds(), stream)
	}
}

// showTasks shows where the tasks of a kind stand. Of what a census that was cut short has not seen it says nothing: zero would
// be a lie.
func (e *Engine) showTasks(w watcher, kind string, c *idemstore.Census) {
	open := c.Open[kind]
	for _, x := range []struct {
		status idemstore.Status
		pile   idemstore.Pile
		cut    bool
		parts  map[string]int // of the backlog
	}{
		{idemstore.Started, open.Started, c.OpenCut, map[string]int{"in_flight": open.Held, "waiting": open.Started.Count - open.Held}},
		{idemstore.Unknown, open.Unknown, c.OpenCut, map[string]int{"unknown": open.Unknown.Count}},
		{idemstore.NeedsReview, open.Parked, c.ParkedCut, map[string]int{"parked": open.Parked.Count}},
	} {
		if x.cut && x.pile.Count == 0 {
			continue
		}
		for part, n := range x.parts {
			w.see(metricBacklog, float64(n), kind, part)
		}
		w.see(metricTasks, float64(x.pile.Count), kind, string(x.status))
		w.see(metricAge, x.pile.Oldest.Seconds(), kind, string(x.status))
	}
}

func (e *Engine) showStream(w watcher) {
	c := e.measured.stream.Load()
	if c == nil {
		return
	}
	for kind, n := range c.undelivered {
		w.see(metricBacklog, float64(n), kind, "undelivered")
	}
	w.see(metricStray, float64(c.unrouted))
}

func toFloat(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
