package consumer

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// remote is a provider as one engine sees it: what all kinds of the same identity share. A kind without an identity, or
// without a provider, has one of its own.
type remote struct {
	identity string
	name     string // identity without credentials, or the kind
	kinds    []*kind
	longest  time.Duration // that one call may take
	breaker  *breaker      // nil: off
	share    *share        // nil: no cap
	bell     bell          // rings when there may be more to take, or to do, than before
}

// longestTry bounds the time between two tries of an open breaker; the back-off maximum, if that is less.
const longestTry = 30 * time.Second

// addRemotes gives each kind its provider, so far without breaker and cap.
func (e *Engine) addRemotes() {
	known := map[string]*remote{}
	for _, k := range e.kinds {
		r := known[k.provider.Identity]
		if r == nil || k.provider.Identity == "" {
			r = newRemote(k)
			known[k.provider.Identity] = r
			e.remotes = append(e.remotes, r)
		}
		k.remote = r
		r.kinds = append(r.kinds, k)
		r.longest = max(r.longest, k.policy.Deadline+handlerGrace)
	}
}

// limitRemotes gives each provider its breaker and its share of a cap.
func (e *Engine) limitRemotes() {
	for _, r := range e.remotes {
		r.addBreaker(e.config.Breaker)
		r.addShare()
	}
}

func newRemote(k *kind) *remote {
	return &remote{identity: k.provider.Identity, name: cmp.Or(withoutSecrets(k.provider.Identity), k.name)}
}

func (r *remote) addBreaker(limit int) {
	if limit < 0 || r.kinds[0].apply != nil {
		return
	}
	every, least := longestTry, longestTry
	for _, k := range r.kinds {
		every, least = min(every, k.policy.BackoffMax), min(least, k.policy.BackoffMin)
	}
	r.breaker = newBreaker(limit, every, least)
}

func (r *remote) addShare() {
	var perSecond float64
	var inFlight int
	for _, k := range r.kinds { // they agree, where they say anything
		perSecond, inFlight = max(perSecond, k.provider.MaxPerSecond), max(inFlight, k.provider.MaxInFlight)
	}
	if perSecond > 0 || inFlight > 0 {
		r.share = newShare(perSecond, inFlight)
	}
}

// checkCaps refuses caps that kinds of one provider do not agree on, and those of a provider without a name: workers
// share a cap by it.
func checkCaps(defs []*definition) error {
	type caps struct {
		perSecond float64
		inFlight  int
		kind      string
	}
	known := map[string]caps{}
	for _, d := range defs {
		c := caps{d.provider.MaxPerSecond, d.provider.MaxInFlight, d.name}
		if c.perSecond == 0 && c.inFlight == 0 {
			continue
		}
		if d.provider.Identity == "" {
			return fmt.Errorf("kind %s: provider: MaxPerSecond and MaxInFlight need an Identity", d.name)
		}
		other, ok := known[d.provider.Identity]
		if ok && (other.perSecond != c.perSecond || other.inFlight != c.inFlight) {
			return fmt.Errorf("kinds %s and %s have one provider and differ in its MaxPerSecond or MaxInFlight", other.kind, d.name)
		}
		known[d.provider.Identity] = c
	}
	return nil
}

// withoutSecrets is an identity as it may be logged.
func withoutSecrets(identity string) string {
	u, err := url.Parse(identity)
	if err != nil || u.User == nil && u.RawQuery == "" {
		return identity
	}
	return maskURL(u)
}

// BreakerState tells how a provider's breaker stands. While it is open the provider's kinds take no messages.
type BreakerState struct {
	Provider      string    // its identity without credentials, or the kind where that has none
	Kinds         []string  // that it holds back
	Failures      int       // in a row
	Open          bool      // intake pauses; the next send that succeeds closes it, also long after the provider is back
	Misconfigured bool      // it is open because the provider lets nobody in as things are
	Since         time.Time // it is open, by the clock of this process
	NextTry       time.Time // while it is open
}

// Breakers tells how all breakers of this engine stand, by provider. It is safe to call at any time.
func (e *Engine) Breakers() []BreakerState {
	var out []BreakerState
	for _, r := range e.remotes {
		if r.breaker == nil {
			continue
		}
		c := r.breaker.state()
		b := BreakerState{Provider: r.name, Failures: c.failures, Open: c.open, Misconfigured: c.open && c.barred, Since: c.since, NextTry: c.next}
		for _, k := range r.kinds {
			b.Kinds = append(b.Kinds, k.name)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b BreakerState) int { return cmp.Compare(a.Provider, b.Provider) })
	return out
}
