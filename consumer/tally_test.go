package consumer

import (
	"net/http"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// What a worker came to is added to the charts, at the latest when it drains; what cannot be added now is added later.
func TestWorkersTallyWhatTheyCameTo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pay.then(b.pay.honest, status(http.StatusPaymentRequired))
	e, stop := b.serve(b.kind)
	b.publish(`{"order": 1}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.publish(`{"order": 2}`)
	b.awaitStatus("pay_2", idemstore.Failed)
	b.publish(`{"order": 1}`)
	if !eventually(t, 20*time.Second, func() bool { return e.kinds[0].tally.duplicates.Load() == 1 }) {
		t.Fatal("no duplicate was stopped")
	}
	back := b.shutOut()
	if err := e.addTallies(t.Context()); err == nil {
		t.Fatal("added although the database is away")
	}
	back()
	stop()
	var got idemstore.Tally
	if err := b.pool.QueryRow(t.Context(), `select kind, sum(finished)::bigint, sum(failed)::bigint, sum(needs_review)::bigint, sum(unknown)::bigint,
		sum(duplicates)::bigint from settle.tallies group by kind`).Scan(&got.Kind, &got.Finished, &got.Failed, &got.NeedsReview, &got.Unknown, &got.Duplicates); err != nil {
		t.Fatal(err)
	}
	if want := (idemstore.Tally{Kind: "test.pay", Finished: 1, Failed: 1, Duplicates: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// An open breaker shows on the support screen, and so does a recovery.
func TestWorkersTellOfTheirBreakers(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Breaker = 1
	b.pay.then(status(http.StatusServiceUnavailable))
	e, _ := b.serve(b.kind)
	b.publish(`{"order": 1}`)
	if !eventually(t, 20*time.Second, func() bool { return e.kinds[0].breakerIsOpen() && !e.LastRecovery().IsZero() }) {
		t.Fatal("the breaker stays shut, or nothing recovers")
	}
	if err := e.addTallies(t.Context()); err != nil {
		t.Fatal(err)
	}
	kinds, err := b.store.ServedKinds(t.Context())
	if err != nil || len(kinds) != 1 || !kinds[0].BreakerOpen || kinds[0].Recovered == nil {
		t.Errorf("%+v, %v", kinds, err)
	}
}
