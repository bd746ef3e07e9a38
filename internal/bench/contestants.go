package bench

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The tables of a report.
const (
	tableJobs     = "jobs"
	tableLatency  = "latency"
	tableEffect   = "effect"
	tableGrowth   = "growth"
	tableRecovery = "recovery"
	tableSearch   = "search"
	tableWorkers  = "workers"
	tableArchive  = "archive"
)

const (
	milliseconds  = "ms"
	rowsPerSecond = "rows/s"
)

// contestants are those of this package.
func contestants(o Options) []Contestant {
	jobs := []Contestant{
		Loop("loop", poolSize),
		{Name: "external", Label: "external kind, no-op", Race: Rate(engine(external, unseen, acked)), Check: finished},
		{Name: "emitting", Label: "the same, with one event each", Race: Rate(engine(emitting, unseen, published)), Check: emitted},
		{Name: "local", Label: "local kind, no-op", Race: Rate(engine(local, unseen, acked)), Check: finished},
		{Name: "duplicates", Label: "duplicates of finished keys", Prepare: again, Race: Rate(engine(external, unseen, acked)), Check: answered},
		{Name: "metrics", Label: "external kind with metrics", Race: Rate(engine(external, withMetrics, acked)), Check: finished},
		{Name: "traced", Label: "external kind with metrics and traces", Race: Rate(engine(external, withTraces(o.Collector, nil), acked)), Check: finished},
		{Name: "sampled", Label: "external kind with metrics and 1 % of the traces", Race: Rate(engine(external, withTraces(o.Collector, onePercent), acked)), Check: finished},
	}
	return slices.Concat(jobs, situations(o), fleets(), archives(o))
}

// fleets are several workers on one consumer, each with all the slots.
func fleets() (all []Contestant) {
	for _, f := range []struct {
		workers int
		label   string
	}{{1, "one worker"}, {2, "two workers"}, {4, "four workers"}} {
		all = append(all, Contestant{Name: "workers", Table: tableWorkers, Label: f.label,
			Race: Rate(together(f.workers, engine(external, unseen, acked))), Check: finished})
	}
	return all
}

// situations are those contestants that have a table of their own.
func situations(o Options) []Contestant {
	race := Rate(engine(external, unseen, acked))
	percentiles := []string{"p50 ms", "p99 ms"}
	return []Contestant{
		{Name: "latency", Table: tableLatency, Label: "hand-written loop, one job at a time", Figures: percentiles,
			Prepare: nothingQueued, Race: latencyOf(loop)},
		{Name: "latency", Table: tableLatency, Label: "external kind, one job at a time", Figures: percentiles,
			Prepare: nothingQueued, Race: latencyOf(engineOf(external))},

		{Name: "effect", Table: tableEffect, Label: fmt.Sprintf("effect of %s, %d slots", effectTime, effectSlots), Slots: effectSlots,
			Figures: []string{jobsPerSecond, "% of possible"}, Race: ofPossible(Rate(engine(slow, unseen, acked))), Check: finished},

		{Name: "growth", Table: tableGrowth, Label: "empty table", Keys: scattered, Race: race, Check: finished},
		{Name: "growth", Table: tableGrowth, Label: fmt.Sprintf("table with %d finished rows", o.Rows), Keys: scattered,
			Fill: filled(o.Rows), Race: race, Check: finished},

		{Name: "recovery", Table: tableRecovery, Label: "workers alone", Race: race, Check: finished},
		{Name: "recovery", Table: tableRecovery, Label: fmt.Sprintf("recovery of %d rows alone", o.Stuck),
			Figures: []string{rowsPerSecond}, Prepare: stuck(o.Stuck, false), Race: recovery, Check: nothingUnknown},
		{Name: "recovery", Table: tableRecovery, Label: fmt.Sprintf("workers beside recovery of %d rows", o.Stuck),
			Figures: []string{jobsPerSecond, rowsPerSecond}, Prepare: stuck(o.Stuck, true), Race: beside},

		{Name: "search", Table: tableSearch, Label: fmt.Sprintf("%d jobs/s offered, %d finished rows", offered, o.Rows), Keys: scattered,
			Fill: filled(o.Rows), Prepare: nothingQueued, Race: Rate(engine(external, unseen, offeredAcked)), Check: finished},
		{Name: "search", Table: tableSearch, Label: fmt.Sprintf("the same beside %d searches/s", searches), Keys: scattered,
			Figures: []string{jobsPerSecond, "find p50 ms", "find p99 ms"}, Fill: filled(o.Rows), Prepare: nothingQueued, Race: searched, Check: finished},
	}
}

// archives are jobs beside the archive.
func archives(o Options) []Contestant {
	times := []string{jobsPerSecond, "claim p50 ms", "claim p99 ms"}
	return []Contestant{
		{Name: "archive", Table: tableArchive, Label: fmt.Sprintf("%d jobs/s offered, %d expired rows", offered, o.Rows), Keys: scattered,
			Figures: times, Fill: expired(o.Rows), Prepare: nothingQueued, Race: claimed(nil), Check: finished},
		{Name: "archive", Table: tableArchive, Label: "the same beside settle archive", Keys: scattered,
			Figures: append(times, rowsPerSecond), Fill: expired(o.Rows), Prepare: nothingQueued, Race: claimed(archiving), Check: finished},
	}
}

const effectSlots = 128

// ofPossible adds what a rate is of the highest that slots and effect allow, in percent.
func ofPossible(rate func(context.Context, *Stage) ([]float64, error)) func(context.Context, *Stage) ([]float64, error) {
	return func(ctx context.Context, s *Stage) ([]float64, error) {
		figures, err := rate(ctx, s)
		if err != nil {
			return nil, err
		}
		return append(figures, 100*figures[0]*effectTime.Seconds()/float64(s.Slots)), nil
	}
}

// scattered are keys that land all over an index, as those of a business do.
func scattered(i int) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, i) // cannot fail
	return fmt.Sprintf("%016x-%d", h.Sum64(), i)
}

func nothingQueued(ctx context.Context, s *Stage) error {
	_, err := s.Consumer(ctx)
	return err
}

// again runs the keys, and queues each a second time under an id of its own: the server would drop it otherwise.
func again(ctx context.Context, s *Stage) error {
	if err := s.Queue(ctx); err != nil {
		return err
	}
	first := *s // its waits are not those of the duplicates
	first.waits = nil
	if err := engine(external, unseen, acked)(ctx, &first); err != nil {
		return err
	}
	return s.Queue(ctx, func(i int) jetstream.PublishOpt {
		return jetstream.WithMsgID(fmt.Sprintf("%s-again-%d", s.Kind, i))
	})
}

// filled fills the table.
func filled(rows int) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error { return s.multiply(ctx, rows, asFinished) }
}

// stuck leaves unknown rows behind, as a provider does that did not answer.
func stuck(rows int, queued bool) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		if err := s.multiply(ctx, rows, asUnknown); err != nil || !queued {
			return err
		}
		return s.Queue(ctx)
	}
}

// beside measures live jobs while unknown rows are recovered, and how many of these are meanwhile.
func beside(ctx context.Context, s *Stage) (figures []float64, err error) {
	began, left := time.Now(), 0
	err = engine(external, unseen, func(ctx context.Context, s *Stage) error {
		err := s.AwaitAcked(ctx)
		if err == nil {
			left, err = s.count(ctx, countUnknown)
		}
		return err
	})(ctx, s)
	took := s.emptied.Sub(began).Seconds()
	return []float64{float64(s.Jobs) / took, float64(s.rows-left) / took}, err
}

// recovery measures how fast unknown rows are settled where nothing else is to be done: from the first look-up, because an
// intake that finds no message lets go of its slots only after a second.
func recovery(ctx context.Context, s *Stage) ([]float64, error) {
	if err := engine(external, unseen, recovered)(ctx, s); err != nil {
		return nil, err
	}
	return []float64{float64(s.rows) / s.emptied.Sub(*s.asked.first.Load()).Seconds()}, nil
}
