package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/settlemq/settle/idemstore"
)

// Report is the result of a run. Its JSON form is part of the product's outside.
type Report struct {
	OK       bool         `json:"ok"`
	Kinds    []KindReport `json:"kinds"`
	Kills    int          `json:"kills"`
	Timeouts int          `json:"timeouts"`
	Frozen   int          `json:"frozen"`
	Stale    int          `json:"stale"` // contact events that came after a newer one
	Chain    Chain        `json:"chain"` // each link once for each charge
	Seed     uint64       `json:"seed"`
	Broken   []string     `json:"broken"`           // what does not hold, by key
	Traces   string       `json:"traces,omitempty"` // where Jaeger shows a job whose worker was killed
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
	Effects    int            `json:"effects"`    // counted in the provider's own tables; contacts that show their newest event
	Statuses   map[string]int `json:"statuses"`   // tasks by status
}

// count fills in what happened, by kind.
func (r *Report) count(ctx context.Context, s *stage, jobs []job, p *publisher) error {
	tasks, err := s.allTasks(ctx)
	if err != nil {
		return err
	}
	done, err := s.effects(ctx)
	if err != nil {
		return err
	}
	current, stale, err := s.contactReport(ctx, jobs)
	if err != nil {
		return err
	}
	links, err := s.chains(ctx, done)
	if err != nil {
		return err
	}
	r.Stale, r.Chain = stale, chainOf(links)
	for _, kind := range allKinds {
		k := KindReport{Kind: kind, Keys: count(jobs, func(j job) bool { return j.kind == kind })}
		k.Published, k.Duplicates = p.totals(kind)
		k.add(tasks, done)
		if kind == contactKind {
			k.Effects = current
		}
		if k.Delivered, err = s.delivered(ctx, kind); err != nil {
			return err
		}
		r.Kinds = append(r.Kinds, k)
	}
	return nil
}

// add counts the tasks and effects of the kind.
func (k *KindReport) add(tasks map[string]idemstore.Task, done map[effectOf]int) {
	k.Statuses = map[string]int{}
	for _, t := range tasks {
		if t.Kind == k.Kind {
			k.Attempts += t.Attempt
			k.Duplicates += t.Duplicates
			k.Statuses[string(t.Status)]++
		}
	}
	for of, n := range done {
		if of.kind == k.Kind {
			k.Effects += n
		}
	}
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
	fmt.Fprintf(t, "\nkind\tkeys\tpublished\tdelivered\tattempts\tduplicates stopped\teffects\ttasks\t\n")
	for _, k := range r.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", k.Kind, k.Keys, k.Published, k.Delivered, k.Attempts, k.Duplicates,
			k.Effects, statuses(k.Statuses))
	}
	_ = t.Flush() // a terminal that is gone
	fmt.Fprintf(w, "\n%s\n", r.story())
	r.verdict(w)
	r.printTraces(w)
}

func (r Report) story() string {
	return fmt.Sprintf("On the way: %s between the provider's success and the save, %s after the effect, %s past its lease.",
		plural(r.Kills, "worker was killed", "workers were killed"),
		plural(r.Timeouts, "call timed out", "calls timed out"),
		plural(r.Frozen, "worker was frozen", "workers were frozen"))
}

func (r Report) verdict(w io.Writer) {
	if !r.OK {
		fmt.Fprintf(w, "\nDOES NOT HOLD (seed %d):\n", r.Seed)
		for _, b := range r.Broken {
			fmt.Fprintf(w, "  %s\n", b)
		}
		return
	}
	var contacts KindReport
	keys := 0
	for _, k := range r.Kinds {
		if k.Kind == contactKind {
			contacts = k
			continue
		}
		keys += k.Keys
	}
	fmt.Fprintf(w, "\nChecked in the provider's own tables: %d keys, %d effects, each exactly once.\n", keys, keys)
	fmt.Fprintf(w, "Checked link by link: %d charges, %d events that tell of them, %d receipts; each follows once from the one before.\n",
		r.Chain.Charges, r.Chain.Events, r.Chain.Receipts)
	fmt.Fprintf(w, "Checked in the local rows: %d contacts, each as its newest event says; %d events, each recorded once, %d of them as too old.\n",
		contacts.Effects, contacts.Keys, r.Stale)
	fmt.Fprintf(w, "Nothing lost, nothing pending, every charge booked once. (seed %d, %.1f s)\n", r.Seed, r.Seconds)
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
