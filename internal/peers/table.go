package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/settlemq/settle/internal/bench"
)

// table is what a run came to.
type table struct {
	Jobs     int    `json:"jobs"`
	Rounds   int    `json:"rounds"`
	CPUs     int    `json:"cpus"`
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Rows     []row  `json:"contestants"`
}

// row is about one contestant.
type row struct {
	Name       string    `json:"name"`
	Contestant string    `json:"contestant"`
	Settings   []string  `json:"settings,omitempty"`
	Median     float64   `json:"median"` // jobs per second
	Min        float64   `json:"min"`
	Max        float64   `json:"max"`
	Rates      []float64 `json:"rounds"`

	// Ratio is how many times as many jobs per second the first contestant does: the median of the rounds' ratios, and their
	// mean with its 95 % interval.
	Ratio  float64         `json:"ratio"`
	Spread *bench.Interval `json:"ratio_interval"`

	Process  float64 `json:"process_us_per_job"` // processor time of the workers, the broker and the command, which are one process
	Postgres float64 `json:"postgres_us_per_job"`
}

// tableOf compares the first contestant of a report with each.
func tableOf(r *bench.Report, peers []peer) *table {
	t := &table{Jobs: r.Jobs, Rounds: r.Rounds, CPUs: r.CPUs, Go: r.Go, Postgres: r.Postgres}
	first := r.Figures[0].Rounds
	for _, f := range r.Figures {
		x := row{Name: f.Name, Contestant: f.Contestant, Median: f.Median, Min: f.Min, Max: f.Max, Rates: f.Rounds,
			Ratio: medianRatio(first, f.Rounds), Spread: bench.Compare(first, f.Rounds)}
		if f.PerJob != nil {
			x.Process, x.Postgres = f.PerJob.Process, f.PerJob.Postgres
		}
		if i := slices.IndexFunc(peers, func(p peer) bool { return p.name == f.Name }); i >= 0 {
			x.Settings = peers[i].settings
		}
		t.Rows = append(t.Rows, x)
	}
	return t
}

func medianRatio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	slices.Sort(ratios)
	n := len(ratios)
	return (ratios[(n-1)/2] + ratios[n/2]) / 2
}

// of finds the row of a contestant.
func (t *table) of(name string) *row {
	return &t.Rows[slices.IndexFunc(t.Rows, func(r row) bool { return r.Name == name })]
}

func (t *table) write(out io.Writer) error {
	fmt.Fprintf(out, "%d jobs of 256 bytes in each of %d rounds; %d processors, PostgreSQL %s, %s\n\n",
		t.Jobs, t.Rounds, t.CPUs, t.Postgres, t.Go)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tjobs/s\t[min–max]\t%s ÷ it\tmean [95 %%]\tµs client + broker\tµs postgres\t\n", t.Rows[0].Name)
	for _, r := range t.Rows {
		fmt.Fprintf(w, "%s\t%.0f\t[%.0f–%.0f]\t%.2f\t%s\t%.0f\t%.0f\t\n", r.Contestant, r.Median, r.Min, r.Max, r.Ratio, r.Spread,
			r.Process, r.Postgres)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nmedians of the rounds; processor time is per job\n")
	for _, r := range t.Rows {
		if len(r.Settings) > 0 {
			fmt.Fprintf(out, "\n%s\n  %s\n", r.Contestant, strings.Join(r.Settings, "\n  "))
		}
	}
	return nil
}

func (t *table) writeJSON(out io.Writer) error { return json.NewEncoder(out).Encode(t) }
