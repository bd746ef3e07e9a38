package soak

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/settlemq/settle/internal/provider"
)

// fault is one thing that goes wrong. It returns what it did, and whether it did it.
type fault struct {
	name string
	do   func(*soaking, context.Context) (what string, ok bool)
	ends bool // processes, which take a while to be there again
}

// faults are all that a run knows. Those that matter most come more often.
var faults = []fault{
	{"kill", (*soaking).kill, true},
	{"kill", (*soaking).kill, true},
	{"freeze", (*soaking).freeze, false},
	{"term", (*soaking).term, true},
	{"provider", (*soaking).lie, false},
	{"provider", (*soaking).lie, false},
	{"connections", (*soaking).cutConnections, false},
	{"postgres", (*soaking).killPostgres, true},
	{"nats", (*soaking).killNATS, true},
}

// Amnesia makes the provider break its own promise: it ignores keys. A run with it has to fail, or it would notice nothing.
const Amnesia = "amnesia"

// Names are the faults that Options.Faults may name, beside Amnesia.
func Names() (names []string) {
	for _, f := range faults {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	return names
}

// breakThings does one fault after the other until ctx ends, and leaves nothing broken behind.
func (s *soaking) breakThings(ctx context.Context) {
	defer s.mend()
	var known []fault
	for _, f := range faults {
		if slices.Contains(s.Faults, f.name) {
			known = append(known, f)
		}
	}
	if slices.Contains(s.Faults, Amnesia) {
		known = append(known, fault{Amnesia, (*soaking).forget, false})
	}
	for len(known) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(s.random.ExpFloat64() * float64(s.Every))):
		}
		f := known[s.random.IntN(len(known))]
		if f.ends {
			s.awaitWork(ctx)
		}
		what, ok := f.do(s, ctx)
		if !ok {
			continue
		}
		s.mu.Lock()
		s.done[f.name]++
		s.mu.Unlock()
		s.say("%s: %s", f.name, what)
	}
}

// awaitWork waits until something was done since it was called before: on a slow machine workers would be killed before they
// have begun, and nothing would be shown.
func (s *soaking) awaitWork(ctx context.Context) {
	for ctx.Err() == nil {
		if x, err := s.state(ctx); err == nil && x.Done > s.worked {
			s.worked = x.Done
			return
		}
		_ = pause(ctx, 50*time.Millisecond)
	}
}

// mend ends what is still broken.
func (s *soaking) mend() {
	if err := s.provider.SetFaults(nil); err != nil {
		s.say("cannot mend the provider: %v", err)
	}
	s.thaws.Wait()
}

func (s *soaking) kill(context.Context) (string, bool) {
	all := s.workers()
	if len(all) == 0 {
		return "", false
	}
	w := all[s.random.IntN(len(all))]
	w.Signal(syscall.SIGKILL)
	<-w.Exited()
	s.mu.Lock()
	s.kills++
	s.mu.Unlock()
	return "a worker", true
}

func (s *soaking) term(context.Context) (string, bool) {
	all := s.workers()
	if len(all) == 0 {
		return "", false
	}
	all[s.random.IntN(len(all))].Signal(syscall.SIGTERM)
	return "a worker drains", true
}

// freeze stops a worker, mostly for longer than its lease, and lets it go on later; meanwhile other things happen.
func (s *soaking) freeze(ctx context.Context) (string, bool) {
	all := s.workers()
	if len(all) == 0 {
		return "", false
	}
	w := all[s.random.IntN(len(all))]
	d := lease/2 + time.Duration(s.random.Int64N(int64(2*lease)))
	w.Signal(syscall.SIGSTOP)
	s.thaws.Go(func() {
		_ = pause(ctx, d)
		w.Signal(syscall.SIGCONT)
	})
	return "a worker for " + d.Round(time.Millisecond).String(), true
}

// lies are what the provider and the network do to the next requests.
func lies(r *rand.Rand) (string, provider.Fault) {
	n := 1 + r.IntN(20)
	all := []struct {
		name string
		f    provider.Fault
	}{
		{"hangs up after the effect", provider.Fault{Close: provider.After, Count: n}},
		{"hangs up before the effect", provider.Fault{Close: provider.Before, Count: n}},
		{"answers too late", provider.Fault{DelayAfter: 2 * callTimeout, Count: n}},
		{"acts too late", provider.Fault{DelayBefore: 2 * callTimeout, Count: n}},
		{"500 after the effect", provider.Fault{Status: 500, StatusAt: provider.After, Count: n}},
		{"503", provider.Fault{Status: 503, Count: n}},
		{"429", provider.Fault{Status: 429, RetryAfter: "1", Count: n}},
		{"cuts the answer", provider.Fault{Cut: provider.CutLength, Count: n}},
		{"says in progress", provider.Fault{InProgress: true, Count: n}},
		{"look-ups do not find", provider.Fault{Hide: lease, Count: n}},
		{"look-ups fail", provider.Fault{Method: "GET", Status: 500, Count: n}},
		{"look-ups hang up", provider.Fault{Method: "GET", Close: provider.Before, Count: n}},
	}
	x := all[r.IntN(len(all))]
	return x.name, x.f
}

// lie makes the provider misbehave, in up to three ways at once.
func (s *soaking) lie(context.Context) (string, bool) {
	var (
		names []string
		rules []provider.Fault
	)
	for range 1 + s.random.IntN(3) {
		name, f := lies(s.random)
		names, rules = append(names, name), append(rules, f)
	}
	if err := s.provider.SetFaults(rules); err != nil {
		s.say("the provider cannot: %v", err)
		return "", false
	}
	return strings.Join(names, "; "), true
}

// forget makes the provider act twice for whoever sends twice, and makes everybody do so.
func (s *soaking) forget(context.Context) (string, bool) {
	err := s.provider.SetFaults([]provider.Fault{{IgnoreKeys: true, Hide: lease, Close: provider.After, Count: 5}})
	return "the provider ignores keys", err == nil
}

// cutConnections ends database connections of workers, wherever they are in a transaction.
func (s *soaking) cutConnections(ctx context.Context) (string, bool) {
	n, err := s.number(ctx, s.pool, `select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`)
	return "all to the database", err == nil && n > 0
}

// killPostgres kills the server and starts it again: what was committed is there, what was not is gone.
func (s *soaking) killPostgres(ctx context.Context) (string, bool) {
	if s.random.IntN(2) > 0 { // it costs seconds
		return "", false
	}
	s.postgres.Kill()
	return "killed and started again", s.again(ctx, s.postgres.Restart)
}

// killNATS kills the broker and starts it again. It may have forgotten acks that it had confirmed.
func (s *soaking) killNATS(ctx context.Context) (string, bool) {
	if s.random.IntN(2) > 0 {
		return "", false
	}
	s.nats.Kill()
	return "killed and started again", s.again(ctx, s.nats.Restart)
}

// again starts a server again; a run that is over still needs it.
func (s *soaking) again(ctx context.Context, start func(context.Context) error) bool {
	if err := start(context.WithoutCancel(ctx)); err != nil {
		s.say("a server does not start again: %v", err)
		return false
	}
	return true
}
