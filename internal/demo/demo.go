package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
)

// Options say how a run goes.
type Options struct {
	Jobs     int    // business keys of charges and reports; at least 6. For each six a contact with three events
	Seed     uint64 // the same seed gives the same plan
	Sabotage Sabotage
	Keep     bool // leave everything running until ctx ends
	Kinds    map[string]consumer.Definition

	Jaeger string                          // base URL of a Jaeger that gets the traces, "" for none: the report leads there
	Traced func(http.Handler) http.Handler // makes the provider's spans; nil for none

	Words    io.Writer // what a person reads: the story so far
	Progress io.Writer // the live line
	Terminal bool      // whether Progress can rewrite a line
}

// LeastJobs is the smallest number of jobs: each misfortune needs a victim of its own.
const LeastJobs = leastJobs

// A run that has not come to rest by then has lost something. A sabotage is known to, so it waits less.
const (
	restLimit         = 40 * time.Second
	sabotageRestLimit = 20 * time.Second
)

// Run plays the story and proves its end. The error is about the run itself; whether the claim holds is in the
// report. Cancelling ctx stops everything that was started, and Run returns when it is gone.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if o.Jobs < leastJobs {
		return report, fmt.Errorf("jobs: at least %d, each misfortune needs one of its own", leastJobs)
	}
	began := time.Now()
	jobs := plan(o.Jobs, o.Seed)
	s := &stage{options: o}
	if s.workers, err = s.crewFor(jobs); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	s.say("Starting a PostgreSQL, a JetStream and a stand-in provider of its own …")
	if err := s.setUp(ctx); err != nil {
		return report, err
	}
	if err := s.misfortunes(jobs); err != nil {
		return report, err
	}
	s.say("Starting two workers …")
	s.later(func() error { s.workers.stop(); return nil })
	if err := s.workers.hire(2); err != nil {
		return report, err
	}
	report, err = s.play(ctx, jobs)
	report.Seed, report.Seconds = o.Seed, time.Since(began).Seconds()
	if err == nil && o.Keep {
		report.Print(o.Words)
		err = s.keep(ctx)
	}
	return report, err
}

// keep leaves everything running until ctx ends, with the support screen beside it.
func (s *stage) keep(ctx context.Context) error {
	screen, err := s.startScreen(ctx)
	if err != nil {
		return err
	}
	s.tell(s.options.Words, screen)
	err = s.workers.hire(2)
	<-ctx.Done()
	return err
}

// misfortunes arms the provider: some calls are answered too late, and under some sabotages keys are ignored.
func (s *stage) misfortunes(jobs []job) error {
	var faults []provider.Fault
	for _, j := range jobs {
		if j.timeout {
			faults = append(faults, provider.Fault{Key: j.key, Count: 1, DelayAfter: 3 * callTimeout})
		}
	}
	if s.options.Sabotage.providerIgnoresKeys() {
		faults = append(faults, provider.Fault{IgnoreKeys: true})
	}
	return s.provider.SetFaults(faults)
}

// crewFor aims at the victims of a plan.
func (s *stage) crewFor(jobs []job) (*crew, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	victims, frozen := map[string]bool{}, ""
	for _, j := range jobs {
		if j.kill {
			victims[s.providerKey(j)] = true
		}
		if j.freeze {
			frozen = j.key
		}
	}
	return newCrew(victims, func() (*devenv.Program, error) {
		return devenv.StartProgram(s.worker(program, frozen))
	}), nil
}

func (s *stage) worker(program, frozen string) *exec.Cmd {
	own := []string{breakVariable + "=" + string(s.options.Sabotage), freezeVariable + "=" + frozen}
	return workerCommand(program, s.logs, append(own, s.environment()...)...)
}

// providerKey is the key that the first call for a job carries.
func (s *stage) providerKey(j job) string {
	if s.options.Sabotage == NewKey {
		return j.key + "-attempt-1"
	}
	return j.key
}

// play publishes, waits until everything has come to rest, and proves.
func (s *stage) play(ctx context.Context, jobs []job) (Report, error) {
	p := &publisher{stage: s, kinds: s.options.Kinds, sent: map[string]int{}, dropped: map[string]int{}}
	s.say(fmt.Sprintf("Publishing %d jobs, some of them twice …", len(jobs)))
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- s.watch(watching, jobs, p) }()
	err := p.all(ctx, jobs)
	if err == nil {
		err = <-watched
		watched = nil
	}
	stop()
	if watched != nil {
		<-watched
	}
	if err != nil {
		return Report{}, err
	}
	return s.conclude(ctx, jobs, p)
}

func (s *stage) conclude(ctx context.Context, jobs []job, p *publisher) (r Report, err error) {
	if err := r.count(ctx, s, jobs, p); err != nil {
		return r, err
	}
	faults, err := s.prove(ctx, jobs)
	if err != nil {
		return r, err
	}
	r.Broken = []string{}
	for _, f := range faults {
		r.Broken = append(r.Broken, f.String())
	}
	r.Kills, err = s.workers.state()
	r.Timeouts = count(jobs, func(j job) bool { return j.timeout })
	r.Traces = s.tracesOf(jobs)
	r.Frozen = count(jobs, func(j job) bool { return j.freeze })
	r.Broken = append(r.Broken, s.missed(r, jobs)...)
	r.OK = len(r.Broken) == 0
	return r, err
}

// missed are misfortunes that did not happen: a proof without them would prove less than it says.
func (s *stage) missed(r Report, jobs []job) []string {
	planned := count(jobs, func(j job) bool { return j.kill })
	if r.Kills < planned && s.options.Sabotage == "" {
		return []string{fmt.Sprintf("only %d of %d kills happened; the run proves nothing", r.Kills, planned)}
	}
	return nil
}

// settled reports whether a job has come to rest.
func settled(t idemstore.Task) bool { return t.Status.Final() || t.Status == idemstore.NeedsReview }

func (s *stage) say(text string) { fmt.Fprintln(s.options.Words, text) }
