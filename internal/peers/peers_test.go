package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/bench"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// absurd is what part of River's jobs per second Settle may not fall below, whatever else the machine does: about half of
// what it was when this was written. River asks no broker and keeps no proof, so it does less for a job.
const absurd = 0.3

// Nobody loses a job, and Settle is not absurdly slower than a queue that does less.
func TestSettleIsNotFarBehindRiver(t *testing.T) {
	shown := func(s bench.State) {
		if s.Over {
			t.Logf("round %d: %s: %.0f jobs/s", s.Round, s.Contestant, s.Figures[0])
		}
	}
	run, err := measure(t.Context(), bench.Options{Jobs: 5000, Rounds: 3, Only: usual(), Live: shown})
	if err != nil {
		t.Fatal(err)
	}
	var said, object bytes.Buffer
	if err := errors.Join(run.write(&said), run.writeJSON(&object)); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + said.String())
	var names []string
	for _, r := range run.Rows {
		names = append(names, r.Name)
		if len(r.Rates) != 3 || r.Min <= 0 || r.Min > r.Median || r.Median > r.Max || r.Process <= 0 || r.Postgres <= 0 || len(r.Settings) == 0 {
			t.Errorf("%s: %+v", r.Name, r)
		}
		if !strings.Contains(said.String(), r.Contestant) || !strings.Contains(said.String(), r.Settings[0]) {
			t.Errorf("the table lacks %s or its settings", r.Name)
		}
	}
	if !slices.Equal(names, usual()) {
		t.Errorf("%q were measured, want %q", names, usual())
	}
	var read table
	if err := json.Unmarshal(object.Bytes(), &read); err != nil || read.of("river").Median != run.of("river").Median {
		t.Errorf("%v: %s", err, object.String())
	}
	if r := run.of("river"); r.Ratio < absurd {
		t.Errorf("Settle does %.2f times as many jobs per second as River, want %.2f at least", r.Ratio, absurd)
	}
}

// The limits that the table names come from runs in which all was done.
func TestTheLimitsAreMeasured(t *testing.T) {
	names := []string{"transport", "batched", "arrays"}
	run, err := measure(t.Context(), bench.Options{Jobs: 10_000, Rounds: 1, Only: names, Live: func(bench.State) {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if r := run.of(name); r.Median <= 0 || r.Process <= 0 || len(r.Settings) == 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// The server has its own affairs meanwhile, and its time is counted in hundredths of a second.
	if none, some := run.of("transport").Postgres, run.of("arrays").Postgres; none > some/2 {
		t.Errorf("%.1f µs of Postgres per job without a statement, %.1f µs with statements", none, some)
	}
}

func TestTheRatioIsThatOfEachRound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of, to []float64
		want   float64
	}{
		{[]float64{100, 10, 30}, []float64{50, 10, 10}, 2}, // a slow round is slow for both
		{[]float64{1, 2}, []float64{2, 2}, 0.75},
		{[]float64{3}, []float64{2}, 1.5},
	} {
		if got := medianRatio(c.of, c.to); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v to %v: %v, want %v", c.of, c.to, got, c.want)
		}
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--jobs", "0"}, {"--rounds", "x"}, {"--only", "rivr"}, {"--only", "loop,loop"}, {"--no-such"}, {"extra"}} {
		if err := run(t.Context(), args); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
