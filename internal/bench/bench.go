package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/internal/heap"
)

// Options say what is measured, and where. All numbers are at least 1.
type Options struct {
	Jobs   int // of a measurement
	Rounds int // each measures every contestant once
	Slots  int // jobs performed at once
	Rows   int // finished rows that the table of the contestant "growth" holds
	Stuck  int // unknown rows that the contestant "recovery" settles

	// Only names what is measured, in this order; of each table the first is what the others are compared with. Empty: Usual.
	Only []string

	// Collector is where the contestants "traced" and "sampled" send traces: the URL of an OTLP collector (gRPC).
	Collector string

	// DatabaseURL and Conn are servers to use; empty and nil: such that are started for the run. The connection stays the
	// caller's.
	DatabaseURL string
	Conn        *nats.Conn

	// Others are contestants beside those of this package.
	Others []Contestant

	// Live is told now and then, and at the end of each measurement, how far it is; by one goroutine at a time. May be nil.
	Live func(State)
}

// State is how far a run is.
type State struct {
	Round, Rounds int // 0 is the warm-up
	Contestant    string
	Done, Of      int           // jobs or rows; 0 of 0 while something is prepared
	For           time.Duration // since the clock runs
	Over          bool          // the measurement has ended
	Figures       []float64     // what it came to, if it is over
	Units         []string
}

// Contestant does the same work as the others of its table in its own way.
type Contestant struct {
	Name  string // what Options.Only says; several contestants may share one, and are measured together
	Table string // they are compared within it; empty: the one of the loop and the kinds
	Label string

	Figures     []string // the units of what Race returns; empty: jobs/s
	Jobs        int      // instead of Options.Jobs; 0: those
	Slots       int      // instead of Options.Slots; 0: those
	Connections int      // of Stage.Pool; 0: 64
	Keys        func(i int) string
	Fill        func(context.Context, *Stage) error              // makes rows, once a run: each measurement has a copy of them
	Prepare     func(context.Context, *Stage) error              // before the clock runs; nil: Stage.Queue
	Race        func(context.Context, *Stage) ([]float64, error) // returns what it came to
	Check       func(context.Context, *Stage) error              // whether the work was done; nil: not checked
}

func (c *Contestant) units() []string {
	if len(c.Figures) == 0 {
		return []string{jobsPerSecond}
	}
	return c.Figures
}

const jobsPerSecond = "jobs/s"

// ErrOptions is wrapped by errors that say which option is wrong.
var ErrOptions = errors.New("wrong options")

// Run measures. It blocks until all rounds are over or ctx ends, and then takes away what it has made, in somebody's servers
// too.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	chosen, err := o.choose()
	if err != nil {
		return nil, err
	}
	heap.Roomy() // as settle work does, and for all contestants
	var s servers
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err := s.open(ctx, o); err != nil {
		return nil, err
	}
	runs := make([]*series, len(chosen))
	for i, c := range chosen {
		runs[i] = &series{Contestant: c}
	}
	for round := range o.Rounds + 1 {
		for i := range runs {
			x := runs[(round+i)%len(runs)]
			if err := s.measure(ctx, o, round, x); err != nil {
				return nil, fmt.Errorf("measure %s: %w", x.Label, err)
			}
		}
	}
	return s.report(ctx, o, runs)
}

// Check says what is wrong with the options, by an error that wraps ErrOptions. Run checks them too.
func (o Options) Check() error {
	_, err := o.choose()
	return err
}

// choose gives the contestants that are asked for, in that order.
func (o Options) choose() (chosen []Contestant, err error) {
	for name, n := range map[string]int{"Jobs": o.Jobs, "Rounds": o.Rounds, "Slots": o.Slots, "Rows": o.Rows, "Stuck": o.Stuck} {
		if n < 1 {
			return nil, fmt.Errorf("%w: %s must be at least 1, not %d", ErrOptions, name, n)
		}
	}
	all := slices.Concat(contestants(o), o.Others)
	names := o.Only
	if len(names) == 0 {
		names = Usual()
	}
	for i, name := range names {
		mine := slices.DeleteFunc(slices.Clone(all), func(c Contestant) bool { return c.Name != name })
		switch {
		case len(mine) == 0:
			return nil, fmt.Errorf("%w: there is no contestant %q; there are %v", ErrOptions, name, o.names())
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%w: %q is there twice", ErrOptions, name)
		case (name == "traced" || name == "sampled") && o.Collector == "":
			return nil, fmt.Errorf("%w: %s needs a collector", ErrOptions, name)
		}
		for _, c := range mine {
			c.Jobs, c.Slots = cmp.Or(c.Jobs, o.Jobs), cmp.Or(c.Slots, o.Slots)
			c.Table, c.Connections = cmp.Or(c.Table, tableJobs), cmp.Or(c.Connections, poolSize)
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// names are what Only may say.
func (o Options) names() (names []string) {
	for _, c := range slices.Concat(contestants(o), o.Others) {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

// Names are those of all contestants of this package.
func Names() []string { return Options{}.names() }

// Usual are the names of those that are measured unless others are asked for: all that need no more than the servers, and
// neither the cost of telemetry, which wants many rounds, nor that of searches and the archive, which want many rows.
func Usual() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		return slices.Contains([]string{"metrics", "traced", "sampled", "search", "workers", "archive"}, name)
	})
}

// series is what a contestant has come to so far.
type series struct {
	Contestant
	values [][]float64 // of each figure in each round
	costs  []float64   // processor seconds of all processes in each round
	used   usage       // in all rounds
	shares *Shares     // in the warm-up
	filled *Stage      // what Fill has made
}

// measure is one measurement of a contestant.
func (s *servers) measure(ctx context.Context, o Options, round int, x *series) (err error) {
	live := func(done, of int, took time.Duration) {
		if o.Live != nil {
			o.Live(State{Round: round, Rounds: o.Rounds, Contestant: x.Label, Done: done, Of: of, For: took})
		}
	}
	live(0, 0, 0)
	if x.Fill != nil && x.filled == nil {
		if x.filled, err = s.fill(ctx, &x.Contestant, live); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	st := s.newStage(&x.Contestant)
	st.live = live
	if x.filled != nil {
		st.copyOf(x.filled)
	}
	if round == 0 {
		st.waits = &waits{}
	}
	defer func() { err = errors.Join(err, st.close(context.WithoutCancel(ctx))) }()
	values, used, err := st.run(ctx, x)
	if err != nil {
		return err
	}
	if o.Live != nil {
		o.Live(State{Round: round, Rounds: o.Rounds, Contestant: x.Label, Over: true, Figures: values, Units: x.units()})
	}
	if round == 0 {
		x.shares = st.waits.shares()
		return nil
	}
	x.values = append(x.values, values)
	x.used, x.costs = x.used.plus(used), append(x.costs, (used.process+used.postgres).Seconds())
	return nil
}

// run prepares a measurement, makes it and checks that the work was done.
func (s *Stage) run(ctx context.Context, x *series) (values []float64, used usage, err error) {
	prepare := x.Prepare
	if prepare == nil {
		prepare = func(ctx context.Context, s *Stage) error { return s.Queue(ctx) }
	}
	if err := s.open(ctx); err != nil {
		return nil, used, err
	}
	if err := prepare(ctx, s); err != nil {
		return nil, used, fmt.Errorf("prepare: %w", err)
	}
	s.Pool.Reset() // sessions report what they did when they end
	before, err := s.use(ctx)
	if err != nil {
		return nil, used, err
	}
	if values, err = x.Race(ctx, s); err != nil {
		return nil, used, err
	}
	s.Pool.Close()
	after, err := s.use(ctx)
	if err != nil {
		return nil, used, err
	}
	if x.Check != nil {
		err = x.Check(ctx, s)
	}
	return values, after.minus(before), err
}
