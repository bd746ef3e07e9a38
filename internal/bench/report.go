package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is what a run came to.
type Report struct {
	Jobs     int      `json:"jobs"`
	Rounds   int      `json:"rounds"`
	Slots    int      `json:"slots"`
	Rows     int      `json:"finished_rows"`
	Stuck    int      `json:"unknown_rows"`
	CPUs     int      `json:"cpus"`
	Go       string   `json:"go"`
	Postgres string   `json:"postgres"`
	Figures  []Figure `json:"figures"`
}

// Figure is one number about a contestant, over all rounds.
type Figure struct {
	Table      string    `json:"table"`
	Name       string    `json:"name"`
	Contestant string    `json:"contestant"`
	Unit       string    `json:"unit"`
	Median     float64   `json:"median"`
	Min        float64   `json:"min"`
	Max        float64   `json:"max"`
	Rounds     []float64 `json:"rounds"`

	// Ratio is to the first contestant of the table that has a figure in this unit, of the same rounds, and Processor that
	// of the processor time of all processes of ours: nil where it is not known.
	Ratio     *Interval `json:"ratio,omitempty"`
	Processor *Interval `json:"processor_ratio,omitempty"`

	// Of the first figure of a contestant only, where they are known.
	PerJob *PerJob `json:"per_job,omitempty"`
	Waits  *Shares `json:"waits,omitempty"`
}

// Of finds the figures of a name, in the order in which they are reported.
func (r *Report) Of(name string) []Figure {
	return slices.DeleteFunc(slices.Clone(r.Figures), func(f Figure) bool { return f.Name != name })
}

func (s *servers) report(ctx context.Context, o Options, runs []*series) (*Report, error) {
	r := &Report{Jobs: o.Jobs, Rounds: o.Rounds, Slots: o.Slots, Rows: o.Rows, Stuck: o.Stuck, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	firsts := map[[2]string]*series{} // by table and unit
	for _, x := range runs {
		for i, unit := range x.units() {
			f := Figure{Table: x.Table, Name: x.Name, Contestant: x.Label, Unit: unit, Rounds: x.figure(i)}
			f.Median, f.Min, f.Max = median(f.Rounds), slices.Min(f.Rounds), slices.Max(f.Rounds)
			at := [2]string{x.Table, unit}
			if firsts[at] == nil {
				firsts[at] = x
			}
			first := firsts[at]
			f.Ratio = Compare(f.Rounds, first.figure(slices.Index(first.units(), unit)))
			if i == 0 {
				f.Waits = x.shares
				if s.ours {
					f.addCosts(x, first, x.Jobs*o.Rounds)
				}
			}
			r.Figures = append(r.Figures, f)
		}
	}
	var err error
	r.Postgres, err = s.version(ctx)
	return r, err
}

func (f *Figure) addCosts(x, first *series, jobs int) {
	if x.Table != tableJobs && x.Table != tableGrowth { // elsewhere a part of the work is not a job
		return
	}
	f.Processor, f.PerJob = Compare(x.costs, first.costs), x.used.perJob(jobs)
}

// figure is one figure in all rounds.
func (x *series) figure(i int) []float64 {
	out := make([]float64, len(x.values))
	for round, v := range x.values {
		out[round] = v[i]
	}
	return out
}

// Print writes a table for each kind of comparison.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%d jobs in each of %d rounds, %d slots; %d processors, PostgreSQL %s, %s\n",
		r.Jobs, r.Rounds, r.Slots, r.CPUs, r.Postgres, r.Go)
	for _, table := range r.tables() {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "\n%s\tmedian\tmin\tmax\tunit\t× first [95 %%]\tclaim\tperform\tsave\tack\t\n", table)
		for _, f := range r.Figures {
			if f.Table == table {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", f.Contestant, Number(f.Median), Number(f.Min), Number(f.Max),
					f.Unit, f.Ratio, f.Waits)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return r.printCosts(out)
}

// printCosts writes what a job has used, where that is known.
func (r *Report) printCosts(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	begun := false
	for _, f := range r.Figures {
		if f.PerJob == nil {
			continue
		}
		if !begun {
			fmt.Fprint(t, "\nper job\tµs worker + broker\tµs postgres\tWAL bytes\tcommits\tHOT\tprocessor × first [95 %]\t\n")
			begun = true
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f %%\t%s\t\n", f.Contestant, f.PerJob.Process, f.PerJob.Postgres, f.PerJob.WAL,
			f.PerJob.Commits, 100*f.PerJob.HOT, f.Processor)
	}
	return t.Flush()
}

// tables are in the order of their first figures.
func (r *Report) tables() (tables []string) {
	for _, f := range r.Figures {
		if !slices.Contains(tables, f.Table) {
			tables = append(tables, f.Table)
		}
	}
	return tables
}

// String are the cells of a table.
func (s *Shares) String() string {
	if s == nil {
		return "\t\t\t"
	}
	cells := make([]string, 0, stepCount)
	for _, v := range []float64{s.Claim, s.Perform, s.Save, s.Settle} {
		cells = append(cells, fmt.Sprintf("%.0f %%", 100*v))
	}
	return strings.Join(cells, "\t")
}

// Number has as many digits as say something.
func Number(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Compare compares two figures round by round. It is nil where one of them is 0 in a round.
func Compare(of, to []float64) *Interval {
	ratios := make([]float64, len(of))
	for i := range of {
		if of[i] == 0 || to[i] == 0 {
			return nil
		}
		ratios[i] = of[i] / to[i]
	}
	r := intervalOf(ratios)
	return &r
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
