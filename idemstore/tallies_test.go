package idemstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestTalliesOfWorkersAddUp(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	store := idemstore.New(pool, time.Minute)
	ago := 5 * time.Second
	charges := func(finished int64) idemstore.Tally {
		return idemstore.Tally{Kind: "payment.charge", Finished: finished, Failed: 1, NeedsReview: 2, Unknown: 3, Duplicates: 4}
	}
	reports := idemstore.Pulse{Tally: idemstore.Tally{Kind: "report.create", Finished: 1}}
	for _, pulses := range [][]idemstore.Pulse{
		{{Tally: charges(10), Recovered: &ago}, reports},
		{{Tally: charges(20), BreakerOpen: true}},
		nil,
	} {
		if err := store.AddTallies(t.Context(), pulses); err != nil {
			t.Fatal(err)
		}
	}
	// Both may have fallen into one minute or into two.
	var sum idemstore.Tally
	bars, err := store.Tallied(t.Context(), time.Minute, 60)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bars {
		if b.Kind == "payment.charge" && b.Ago <= 1 {
			sum.Finished, sum.Failed, sum.NeedsReview = sum.Finished+b.Finished, sum.Failed+b.Failed, sum.NeedsReview+b.NeedsReview
			sum.Unknown, sum.Duplicates = sum.Unknown+b.Unknown, sum.Duplicates+b.Duplicates
		}
	}
	if want := (idemstore.Tally{Finished: 30, Failed: 2, NeedsReview: 4, Unknown: 6, Duplicates: 8}); sum != want {
		t.Errorf("%+v, want %+v of %+v", sum, want, bars)
	}
	kinds, err := store.ServedKinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds) != 2 || !kinds[0].BreakerOpen || kinds[1].BreakerOpen || kinds[1].Recovered != nil {
		t.Fatalf("%+v", kinds)
	}
	if r := kinds[0].Recovered; r == nil || *r < ago || *r > ago+time.Minute || kinds[0].Seen > time.Minute {
		t.Errorf("%+v", kinds[0])
	}
}

// A breaker of which nobody has said anything for half a minute is open no more, and what no chart shows goes.
func TestTalliesGrowOld(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	store := idemstore.New(pool, time.Minute)
	if _, err := pool.Exec(t.Context(), `insert into settle.tallies (kind, minute, finished, seen_at, breaker_at)
		select k, date_trunc('minute', clock_timestamp() - ago), 7, clock_timestamp() - ago, clock_timestamp() - ago
		from unnest('{a,b}'::text[]) k, unnest('{31 seconds,50 minutes,3 hours,26 hours}'::interval[]) ago`); err != nil {
		t.Fatal(err)
	}
	if err := store.AddTallies(t.Context(), []idemstore.Pulse{{Tally: idemstore.Tally{Kind: "b"}}}); err != nil {
		t.Fatal(err)
	}
	left, err := store.Tallied(t.Context(), time.Hour, 100)
	if err != nil {
		t.Fatal(err)
	}
	if old := func(kind string) bool {
		return slices.ContainsFunc(left, func(b idemstore.Bar) bool { return b.Kind == kind && b.Ago >= 25 })
	}; !old("a") || old("b") {
		t.Errorf("of a served kind the old ones go, others are left to its own workers: %+v", left)
	}
	hour, err := store.Tallied(t.Context(), time.Minute, 60)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range hour {
		if b.Ago < 0 || b.Ago >= 60 {
			t.Errorf("a bar of %d minutes ago", b.Ago)
		}
	}
	kinds, err := store.ServedKinds(t.Context())
	if err != nil || len(kinds) != 2 || kinds[0].BreakerOpen || kinds[0].Seen < 31*time.Second || kinds[1].Seen > 20*time.Second {
		t.Errorf("%+v, %v", kinds, err)
	}
}
