package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is the result of a run. Its JSON form is part of the product's outside.
type Report struct {
	OK       bool         `json:"ok"`
	Kinds    []KindReport `json:"kinds"`
	Kills    int          `json:"kills"`
	Timeouts int          `json:"timeouts"`
	Frozen   int          `json:"frozen"`
	Seed     uint64       `json:"seed"`
	Broken   []string     `json:"broken"` // what does not hold, by key
	Seconds  float64      `json:"seconds"`
}

// KindReport is the part of one kind.
type KindReport struct {
	Kind       string         `json:"kind"`
	Keys       int            `json:"keys"`
	Published  int            `json:"published"`  // publishes, repeats included
	Delivered  int            `json:"delivered"`  // deliveries by the stream, redeliveries included
	Attempts   int            `json:"attempts"`   // claims of tasks
	Duplicates int            `json:"duplicates"` // stopped by the stream's window or answered from the row
	Effects    int            `json:"effects"`    // counted in the provider's own tables
	Statuses   map[string]int `json:"statuses"`   // tasks by status
}

// report counts what happened, by kind.
func (s *stage) report(ctx context.Context, jobs []job, p *publisher) ([]KindReport, error) {
	tasks, err := s.allTasks(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.effects(ctx)
	if err != nil {
		return nil, err
	}
	var out []KindReport
	for _, kind := range []string{chargeKind, reportKind} {
		r := KindReport{Kind: kind, Statuses: map[string]int{}, Keys: count(jobs, func(j job) bool { return j.kind == kind })}
		r.Published, r.Duplicates = p.totals(kind)
		for _, t := range tasks {
			if t.Kind == kind {
				r.Attempts += t.Attempt
				r.Duplicates += t.Duplicates
				r.Statuses[string(t.Status)]++
			}
		}
		for of, n := range done {
			if of.kind == kind {
				r.Effects += n
			}
		}
		if r.Delivered, err = s.delivered(ctx, kind); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// delivered is how many deliveries the stream made of a kind.
func (s *stage) delivered(ctx context.Context, kind string) (int, error) {
	c, err := s.js.Consumer(ctx, "JOBS", strings.ReplaceAll(kind, ".", "-"))
	if err != nil {
		return 0, err
	}
	return int(c.CachedInfo().Delivered.Consumer), nil //nolint:gosec // a few hundred
}

// Print writes the report for a person.
func (r Report) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nkind\tkeys\tpublished\tdelivered\tattempts\tduplicates stopped\teffects at the provider\ttasks\t\n")
	for _, k := range r.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", k.Kind, k.Keys, k.Published, k.Delivered, k.Attempts, k.Duplicates,
			k.Effects, statuses(k.Statuses))
	}
	_ = t.Flush() // a terminal that is gone
	fmt.Fprintf(w, "\n%s\n", r.story())
	r.verdict(w)
}

func (r Report) story() string {
	return fmt.Sprintf("On the way: %s between the provider's success and the save, %s after the effect, %s past its lease.",
		plural(r.Kills, "worker was killed", "workers were killed"),
		plural(r.Timeouts, "call timed out", "calls timed out"),
		plural(r.Frozen, "worker was frozen", "workers were frozen"))
}

func (r Report) verdict(w io.Writer) {
	if r.OK {
		keys := 0
		for _, k := range r.Kinds {
			keys += k.Keys
		}
		fmt.Fprintf(w, "\nChecked in the provider's own tables: %d keys, %d effects, each exactly once.\n", keys, keys)
		fmt.Fprintf(w, "Nothing lost, nothing pending, every charge booked once. (seed %d, %.1f s)\n", r.Seed, r.Seconds)
		return
	}
	fmt.Fprintf(w, "\nDOES NOT HOLD (seed %d):\n", r.Seed)
	for _, b := range r.Broken {
		fmt.Fprintf(w, "  %s\n", b)
	}
}

func statuses(counts map[string]int) string {
	var parts []string
	for s, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(s, "_", " ")))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
