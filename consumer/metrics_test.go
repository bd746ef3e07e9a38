package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/settlemq/settle/idemstore"
)

// meter is what a test sees of the metrics of its engines.
type meter struct {
	t      *testing.T
	reader *sdk.ManualReader
}

// measured gives a bench's engines a meter provider.
func (b *bench) measured() meter {
	m := meter{b.t, sdk.NewManualReader()}
	p := sdk.NewMeterProvider(sdk.WithReader(m.reader), sdk.WithExemplarFilter(exemplar.AlwaysOffFilter))
	b.conf.MeterProvider = p
	b.t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return m
}

// series are all values by name and labels: settle_jobs_total{kind=test.pay,outcome=finished}. Of a histogram it is the count.
func (m meter) series() map[string]float64 {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(m.t.Context(), &all); err != nil {
		m.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, x := range scope.Metrics {
			switch data := x.Data.(type) {
			case metricdata.Sum[int64]:
				addPoints(out, x.Name, data.DataPoints)
			case metricdata.Sum[float64]:
				addPoints(out, x.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				addPoints(out, x.Name, data.DataPoints)
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					out[seriesName(x.Name, p.Attributes)] = float64(p.Count)
				}
			default:
				m.t.Fatalf("%s is a %T", x.Name, x.Data)
			}
		}
	}
	return out
}

func addPoints[N int64 | float64](out map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		out[seriesName(name, p.Attributes)] = float64(p.Value)
	}
}

func seriesName(name string, labels attribute.Set) string {
	var parts []string
	for _, kv := range labels.ToSlice() {
		parts = append(parts, string(kv.Key)+"="+kv.Value.AsString())
	}
	if parts == nil {
		return name
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

// await waits until all series have the values.
func (m meter) await(want map[string]float64) {
	m.t.Helper()
	var wrong []string
	if !eventually(m.t, 20*time.Second, func() bool { wrong = m.differ(want); return wrong == nil }) {
		m.t.Errorf("%s\nof %s", strings.Join(wrong, "\n"), strings.Join(slices.Sorted(maps.Keys(m.series())), "\n"))
	}
}

func (m meter) differ(want map[string]float64) (wrong []string) {
	got := m.series()
	for name, value := range want {
		if v, there := got[name]; !there || v != value {
			wrong = append(wrong, fmt.Sprintf("%s is %v (there: %v), want %v", name, v, there, value))
		}
	}
	return wrong
}

func TestEachStepOfAJobIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	b.run()
	b.publish(`{"order": 1}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.publish(`{"order": 1}`)              // a repeat: another message id
	b.publish(`{"order": 1, "note": "x"}`) // a conflict
	b.publish(`{"order": `)
	m.await(map[string]float64{
		"settle_jobs_total{kind=test.pay,outcome=finished}":         1,
		"settle_jobs_total{kind=test.pay,outcome=unknown}":          0,
		"settle_attempts_total{kind=test.pay,start=first}":          1,
		"settle_attempts_total{kind=test.pay,start=ask}":            0,
		"settle_duplicates_total{kind=test.pay}":                    1,
		"settle_replays_total{kind=test.pay}":                       1,
		"settle_refusals_total{reason=conflict}":                    1,
		"settle_refusals_total{reason=malformed}":                   1,
		"settle_leases_lost_total{kind=test.pay}":                   0,
		"settle_perform_duration_seconds{kind=test.pay}":            1,
		"settle_save_duration_seconds{kind=test.pay}":               1,
		"settle_claim_duration_seconds{kind=test.pay}":              3,
		"settle_ack_duration_seconds{kind=test.pay}":                2,
		"settle_end_to_end_duration_seconds{kind=test.pay}":         4,
		"settle_group_size{statement=save}":                         1,
		"settle_heartbeat_failures_total{clock=lease}":              0,
		"settle_lookups_total{kind=test.pay,verdict=contradictory}": 0,
		"settle_lookups_total{kind=test.pay,verdict=cannot_tell}":   0,
		"settle_slots{kind=test.pay}":                               4,
		"settle_breaker_open{kind=test.pay}":                        0,
		"settle_ready":                                              1,
	})
}

// Whatever keys hold, and however many there are, the series stay the same.
func TestKeysMakeNoSeries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Slots = 64
	b.conf.Logger = slog.New(slog.DiscardHandler)
	m := b.measured()
	e, _ := b.serve(b.kind)
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := b.js.PublishAsync(subject(b.kind.Name), fmt.Appendf(nil, `{"order": %d, "note": "n%d"}`, i, i)); err != nil {
				t.Fatal(err)
			}
		}
		m.await(map[string]float64{"settle_jobs_total{kind=test.pay,outcome=finished}": float64(to)})
	}
	publish(0, 100)
	m.await(map[string]float64{"settle_backlog{kind=test.pay,part=undelivered}": 0, "settle_outbox_rows{stream=JOBS}": 0})
	few := m.series()
	publish(100, 600)
	for range 20_000 {
		e.kinds[0].meters.found(idemstore.Final, true)
		e.kinds[0].meters.committed(idemstore.Unknown)
		e.kinds[0].meters.lookedUp(Found)
		e.kinds[0].meters.lookedUp(Verdict(77)) // of a handler that makes its own
		e.kinds[0].meters.found("nobody's", true)
	}
	many := m.series()
	if got, want := slices.Sorted(maps.Keys(many)), slices.Sorted(maps.Keys(few)); !slices.Equal(got, want) {
		t.Errorf("after 20,000 keys there are %d series, after 100 there were %d:\n%q\n%q", len(got), len(want), got, want)
	}
	for name := range many {
		if strings.ContainsAny(strings.TrimPrefix(name, "settle_"), "0123456789") {
			t.Errorf("a number in %s", name)
		}
	}
}

func TestEverySeriesIsDeclared(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	e, _ := b.serve(b.kind)
	b.publish(`{"order": 1}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	e.kinds[0].looked.Store(now().UnixNano()) // as recovery does, which does not run here
	e.guards.sizes.record(1)
	m.await(map[string]float64{"settle_backlog{kind=test.pay,part=undelivered}": 0, "settle_outbox_rows{stream=JOBS}": 0,
		"settle_end_to_end_duration_seconds{kind=test.pay}": 1})
	seen := map[string]bool{}
	for name := range m.series() {
		bare, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		i := slices.IndexFunc(Metrics(), func(d Metric) bool { return d.Name == bare })
		if i < 0 {
			t.Errorf("%s is not declared", bare)
			continue
		}
		seen[bare] = true
		var names []string
		for part := range strings.SplitSeq(labels, ",") {
			if label, _, ok := strings.Cut(part, "="); ok {
				names = append(names, label)
			}
		}
		if want := slices.Sorted(slices.Values(Metrics()[i].Labels)); !slices.Equal(names, want) {
			t.Errorf("%s has the labels %q, declared are %q", bare, names, want)
		}
	}
	for _, d := range Metrics() {
		if !seen[d.Name] && d.Name != metricBridge.Name {
			t.Errorf("%s is declared, and nobody measures it", d.Name)
		}
	}
}

// What was counted is still there once an engine has stopped, and engines of one process add up.
func TestCountsOutliveTheirEngine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	for i := range 2 {
		stop := b.run()
		b.publish(fmt.Sprintf(`{"order": %d}`, i))
		b.awaitStatus(fmt.Sprintf("pay_%d", i), idemstore.Finished)
		stop()
		if wrong := m.differ(map[string]float64{"settle_jobs_total{kind=test.pay,outcome=finished}": float64(i + 1)}); wrong != nil {
			t.Error(wrong)
		}
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	b := &bench{t: t}
	b.measured()
	m := newMeters(b.conf.MeterProvider)
	k := m.ofKind("test.pay")
	began := now()
	if n := testing.AllocsPerRun(1000, func() {
		k.found(idemstore.Inserted, true)
		k.committed(idemstore.Finished)
		k.lookedUp(Found)
		k.perform.since(began)
	}); n != 0 {
		t.Errorf("%v allocations for a job", n)
	}
}

// A local job has all steps too, although they are one transaction.
func TestEachStepOfALocalJobIsCounted(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	m := b.measured()
	b.start()
	b.publish(`{"order": 1}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	m.await(map[string]float64{
		"settle_claim_duration_seconds{kind=test.note}":   1,
		"settle_perform_duration_seconds{kind=test.note}": 1,
		"settle_save_duration_seconds{kind=test.note}":    1,
		"settle_ack_duration_seconds{kind=test.note}":     1,
	})
}

// Of what a census that was cut short has not seen nothing is said: a zero would be a lie.
func TestACensusThatWasCutShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	e := b.engine(b.kind, b.other())
	defer e.observe()()
	seen := idemstore.OpenTasksOf{Started: idemstore.Pile{Count: 100_000, Oldest: time.Hour}, Held: 1}
	e.shared.table.Store(&idemstore.Census{Open: map[string]idemstore.OpenTasksOf{"test.pay": seen}, OpenCut: true})
	s := m.series()
	if n := s["settle_tasks{kind=test.pay,status=started}"]; n != 100_000 || s["settle_backlog{kind=test.pay,part=waiting}"] != 99_999 {
		t.Errorf("%v started tasks", n)
	}
	for name := range s {
		for _, unseen := range []string{"settle_tasks{kind=test.other,status=started}", "settle_tasks{kind=test.other,status=unknown}",
			"settle_backlog{kind=test.other,part=in_flight}", "settle_backlog{kind=test.other,part=waiting}"} {
			if name == unseen {
				t.Errorf("%s is there", name)
			}
		}
	}
	if !holds(s, "settle_tasks{kind=test.other,status=needs_review}") || holds(s, "settle_oldest_seconds{kind=test.pay,status=unknown}") {
		t.Errorf("there are %v", s)
	}
}
