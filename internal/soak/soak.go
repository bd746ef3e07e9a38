// Package soak runs many jobs through real worker processes while everything breaks by a random schedule, and then counts what
// happened in the provider's own tables. The same seed gives the same schedule; what it meets depends on the machine, so the log of
// what was done belongs to a finding.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle/consumer"
)

// Options say how a run goes.
type Options struct {
	Jobs    int
	Workers int
	Seed    uint64
	Faults  []string      // names of Faults
	Every   time.Duration // mean time between two faults

	Charge  consumer.Definition // payment.charge
	Contact consumer.Definition // contact.sync
	Program string              // the settle program, whose `work` is the worker

	Log      io.Writer // one line per fault and finding
	WorkLogs string    // file that workers write to; empty: a temporary one
	Live     func(State)
}

// State is how far a run is.
type State struct {
	Published, Done, Effects, Unknown, Parked int
	Faults                                    int
	Kills                                     int
	Began                                     time.Time
}

// Report is the end of a run.
type Report struct {
	OK         bool           `json:"ok"`
	Seed       uint64         `json:"seed"`
	Jobs       int            `json:"jobs"` // charges, and as many events of contacts
	Workers    int            `json:"workers"`
	Messages   int            `json:"messages"` // published, repeats included
	Seconds    float64        `json:"seconds"`
	Faults     map[string]int `json:"faults"`
	Kills      int            `json:"kills"`
	Requests   int            `json:"requests"` // for an effect, at the provider
	Attempts   int            `json:"attempts"`
	Duplicates int            `json:"duplicates"`
	Broken     []string       `json:"broken"`
}

// soaking is a run.
type soaking struct {
	Options
	*stage
	random    *rand.Rand // of the schedule; the publisher has its own
	published atomic.Int64
	messages  atomic.Int64
	mu        sync.Mutex
	done      map[string]int // faults
	kills     int
	thaws     sync.WaitGroup // frozen workers
	worked    int            // jobs done when a process was last ended
}

// Run starts servers and workers of its own, publishes the jobs while faults happen, waits until all have come to rest, and
// judges. The error is about the run itself; whether the promise was kept is in the report. It stops all that it has started.
func Run(ctx context.Context, o Options) (r Report, err error) {
	if err := CheckFaults(o.Faults); err != nil {
		return r, err
	}
	began := time.Now()
	st, err := setUp(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, st.tearDown()) }()
	s := &soaking{Options: o, stage: st, random: rand.New(rand.NewPCG(o.Seed, 1)), done: map[string]int{}} //nolint:gosec // repeatable, no secret
	if err := s.play(ctx, began); err != nil {
		return r, err
	}
	r, err = s.judge(ctx)
	r.Seconds = time.Since(began).Seconds()
	return r, err
}

// CheckFaults refuses names of faults that there are not.
func CheckFaults(names []string) error {
	for _, name := range names {
		if name != Amnesia && !slices.Contains(Names(), name) {
			return fmt.Errorf("unknown fault %q: use some of %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// play breaks things as long as there is something to publish, and for a while after.
func (s *soaking) play(ctx context.Context, began time.Time) error {
	breaking, calm := context.WithCancel(ctx)
	var side sync.WaitGroup
	side.Go(func() { s.breakThings(breaking) })
	live, quiet := context.WithCancel(ctx)
	side.Go(func() { s.show(live, began) })
	err := s.publishAll(ctx)
	if err == nil {
		err = s.awaitMost(ctx)
	}
	calm()
	if err == nil {
		err = s.rest(ctx)
	}
	quiet()
	side.Wait()
	return err
}

// say writes a line of the log, with its time.
func (s *soaking) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.Log, "%s  %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// show tells how far the run is, once a second.
func (s *soaking) show(ctx context.Context, began time.Time) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for s.Live != nil {
		if state, err := s.state(ctx); err == nil {
			state.Began = began
			s.Live(state)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
