package consumer

import (
	"context"
	"testing"
)

// Whoever starts workers when there is work sees it before the first one has ever run, and after the last one is gone.
func TestTheBacklogIsSeenWithoutAWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	e := b.engine(b.kind)
	if err := EnsureStreams(t.Context(), b.js, b.conf); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{`{"order": 1}`, `{"order": 2}`, `{"order": 3}`} {
		b.publish(job)
	}
	b.insert(b.kind, `{"order": 4}`, oldRow)
	b.exported(func() {
		m.await(map[string]float64{
			"settle_backlog{kind=test.pay,part=undelivered}":   3,
			"settle_backlog{kind=test.pay,part=unknown}":       1,
			"settle_backlog{kind=test.pay,part=waiting}":       0,
			"settle_backlog{kind=test.other,part=undelivered}": 0,
			"settle_outbox_rows{stream=JOBS}":                  0,
			"settle_unrouted_messages":                         3, // no consumer was ever made
		})
		if s := m.series(); holds(s, "settle_ready") || holds(s, "settle_slots{kind=test.pay}") {
			t.Errorf("says of a worker that is none: %v", s)
		}
	})
	if s := m.series(); holds(s, "settle_outbox_rows{stream=JOBS}") {
		t.Errorf("is shown after the end: %v", s)
	}

	if n, err := Undelivered(t.Context(), b.js, "test.pay", "test.other"); err != nil || n["test.pay"] != 3 || n["test.other"] != 0 {
		t.Errorf("%v undelivered, %v", n, err)
	}
	if err := e.bindAll(t.Context()); err != nil { // as the first worker does
		t.Fatal(err)
	}
	b.exported(func() {
		m.await(map[string]float64{"settle_backlog{kind=test.pay,part=undelivered}": 3, "settle_unrouted_messages": 0})
	})
}

// exported runs look while the backlog is exported.
func (b *bench) exported(look func()) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ExportBacklog(ctx, b.pool, b.js, b.conf, "test.pay", "test.other") }()
	look()
	stop()
	if err := <-ended; err != nil {
		b.t.Error(err)
	}
}
