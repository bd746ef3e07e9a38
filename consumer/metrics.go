package consumer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/settlemq/settle/idemstore"
)

// All series are made when the engine is, with their labels: counting one allocates nothing, a counter is there, at zero,
// before the first thing happens, and no value that comes from outside can become a label.

// counter is one series of a counter: the number itself, which the provider reads when somebody looks. Nil counts nothing.
type counter struct {
	of     Metric
	labels metric.ObserveOption
	n      atomic.Int64
}

func (c *counter) one() {
	if c != nil {
		c.n.Add(1)
	}
}

// Measurements get a context of their own: the SDK drops what comes with one that has ended, as drains bring them.
var measuring = context.Background()

// timer is one series of a histogram of seconds.
type timer struct {
	instrument metric.Float64Histogram
	labels     []metric.RecordOption
}

// since records the time that is over since start.
func (t timer) since(start time.Time) { t.record(now().Sub(start).Seconds()) }

func (t timer) record(v float64) {
	if t.instrument != nil {
		t.instrument.Record(measuring, v, t.labels...)
	}
}

// meters are the series of an engine.
type meters struct {
	meter    metric.Meter
	off      bool // nobody looks
	counters []*counter
	refusals map[idemstore.Reason]*counter
	leases   *counter // heartbeats that failed
	acks     *counter
	watched  map[string]metric.Float64Observable // by name
	failed   []error
}

// kindMeters are the series of one kind.
type kindMeters struct {
	outcomes   map[idemstore.Status]*counter
	attempts   map[idemstore.Found]*counter
	verdicts   map[Verdict]*counter
	duplicates *counter
	replays    *counter
	leasesLost *counter

	claim, perform, save, ack, through timer
}

// unmeasured are the series of a kind that nobody looks at: a command is over before it could be.
var unmeasured = &kindMeters{}

// found counts what a claim found, for a delivery or without one.
func (m *kindMeters) found(f idemstore.Found, delivered bool) {
	m.attempts[f].one()
	//nolint:exhaustive // the others are no news
	switch f {
	case idemstore.Spent:
		m.outcomes[idemstore.NeedsReview].one()
	case idemstore.Final, idemstore.Parked:
		if !delivered {
			return
		}
		m.duplicates.one()
		if f == idemstore.Final {
			m.replays.one()
		}
	}
}

// committed counts an attempt by the status that it left.
func (m *kindMeters) committed(s idemstore.Status) { m.outcomes[s].one() }

// inOne measures claim and save of a local job whose claim, rows and result were one transaction: what was before its Apply,
// and what came after it. An attempt that ran no Apply, or none, is not measured.
func (m *kindMeters) inOne(sent time.Time, a *attempt) {
	if a == nil || a.ended.IsZero() {
		return
	}
	m.claim.record(a.begun.Sub(sent).Seconds())
	m.save.since(a.ended)
}

// lookedUp counts an answer to a look-up.
func (m *kindMeters) lookedUp(v Verdict) { m.verdicts[v].one() }

// newMeters makes what an engine counts for all of its kinds.
func newMeters(p metric.MeterProvider) *meters {
	_, off := p.(noop.MeterProvider)
	m := &meters{meter: p.Meter(scopeName), off: off, refusals: map[idemstore.Reason]*counter{}, watched: map[string]metric.Float64Observable{}}
	for _, r := range []idemstore.Reason{idemstore.Malformed, idemstore.TooLarge, idemstore.BadKey, idemstore.UnknownKind,
		idemstore.Conflict, idemstore.Unsendable} {
		m.refusals[r] = m.counter(metricRefusals, string(r))
	}
	return m
}

// ofEngine adds what only an engine counts, and what is read when somebody looks.
func (m *meters) ofEngine() {
	m.leases, m.acks = m.counter(metricBeat, "lease"), m.counter(metricBeat, "ack_wait")
	m.watch(func(Metric) bool { return true })
}

// watch makes the wanted ones of those that are read when somebody looks.
func (m *meters) watch(wanted func(Metric) bool) {
	for _, d := range declared {
		if d.observed && wanted(d) {
			m.watched[d.Name] = m.observable(d)
		}
	}
}

func (m *meters) ofKind(kind string) *kindMeters {
	k := &kindMeters{
		outcomes: map[idemstore.Status]*counter{idemstore.Started: m.counter(metricJobs, kind, "given_back")},
		attempts: map[idemstore.Found]*counter{
			idemstore.Inserted: m.counter(metricAttempts, kind, "first"),
			idemstore.Perform:  m.counter(metricAttempts, kind, "again"),
			idemstore.Ask:      m.counter(metricAttempts, kind, "ask"),
		},
		verdicts:   map[Verdict]*counter{},
		duplicates: m.counter(metricDuplicates, kind),
		replays:    m.counter(metricReplays, kind),
		leasesLost: m.counter(metricLost, kind),

		claim:   m.timer(metricClaim, seconds, kind),
		perform: m.timer(metricPerform, seconds, kind),
		save:    m.timer(metricSave, seconds, kind),
		ack:     m.timer(metricAck, seconds, kind),
		through: m.timer(metricThrough, longSeconds, kind),
	}
	for _, s := range []idemstore.Status{idemstore.Finished, idemstore.Failed, idemstore.Unknown, idemstore.NeedsReview} {
		k.outcomes[s] = m.counter(metricJobs, kind, string(s))
	}
	for v := CannotTell; v <= Contradictory; v++ {
		k.verdicts[v] = m.counter(metricLookups, kind, strings.ReplaceAll(v.String(), " ", "_"))
	}
	return k
}

// Bounds of buckets: of what takes milliseconds, of what may take hours, and of requests in a group.
var (
	seconds     = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	longSeconds = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	groupSizes  = []float64{1, 2, 4, 8, 16, 32, 64, 128, groupLimit}
)

// counter makes a series; the values are in the order of the metric's labels.
func (m *meters) counter(d Metric, values ...string) *counter {
	c := &counter{of: d, labels: metric.WithAttributeSet(d.attributes(values))}
	m.counters = append(m.counters, c)
	return c
}

// count lets the provider read all counters that were made, for as long as there is a provider: what was counted is to be seen
// after the drain too.
func (m *meters) count() {
	instruments := map[string]metric.Int64ObservableCounter{}
	var all []metric.Observable
	for _, c := range m.counters {
		if _, made := instruments[c.of.Name]; !made {
			i, err := m.meter.Int64ObservableCounter(c.of.Name, metric.WithDescription(c.of.Help), metric.WithUnit(c.of.Unit))
			m.note(err)
			instruments[c.of.Name] = i
			all = append(all, i)
		}
	}
	counters := m.counters
	_, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, c := range counters {
			o.ObserveInt64(instruments[c.of.Name], c.n.Load(), c.labels)
		}
		return nil
	}, all...)
	m.note(err)
}

func (m *meters) timer(d Metric, bounds []float64, values ...string) timer {
	i, err := m.meter.Float64Histogram(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.note(err)
	return timer{i, []metric.RecordOption{metric.WithAttributeSet(d.attributes(values))}}
}

func (m *meters) observable(d Metric) metric.Float64Observable {
	help, unit := metric.WithDescription(d.Help), metric.WithUnit(d.Unit)
	if d.Type == MetricCounter {
		i, err := m.meter.Float64ObservableCounter(d.Name, help, unit)
		m.note(err)
		return i
	}
	i, err := m.meter.Float64ObservableGauge(d.Name, help, unit)
	m.note(err)
	return i
}

// note keeps what the provider says against an instrument, which is usable all the same.
func (m *meters) note(err error) {
	if err != nil {
		m.failed = append(m.failed, err)
	}
}

// err is what the provider has said against instruments.
func (m *meters) err() error { return errors.Join(m.failed...) }

// attributes are the labels of one series.
func (d Metric) attributes(values []string) attribute.Set {
	labels := make([]attribute.KeyValue, len(d.Labels))
	for i, name := range d.Labels {
		labels[i] = attribute.String(name, values[i])
	}
	return attribute.NewSet(labels...)
}
