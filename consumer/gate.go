package consumer

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// gate is the send gate of one attempt: the last thing that every request passes. The fence protects the row,
// the gate protects the socket.
//
// It goes from open to sent, or from open to shut, by one compare-and-swap, so that "nothing was sent, and
// nothing can be sent any more" is a fact and not a hope. A gate that has let a request through may be shut as
// well: later requests of the same attempt are then refused.
//
// The limits are compared on the monotonic clock of this process, which goes on while the process is stopped
// by a signal: a worker that wakes from a freeze finds its gate expired, whatever its context still says.
type gate struct {
	now            func() time.Time // the clock of the package, except in tests
	state          atomic.Pointer[gateState]
	lease          atomic.Pointer[time.Time] // moved on by renewals
	keyAge         atomic.Pointer[time.Time] // nil: the send does not rest on the age of the provider's key
	deadline       time.Time
	appliedNothing []int

	wasRefused  atomic.Bool
	harmless    atomic.Int64 // requests that ended and surely had no effect
	unconnected atomic.Bool  // a request ended without a connection
	lastStatus  atomic.Int64 // of the last answer; 0 if none came
}

// gateState is immutable: each transition swaps in a new one.
type gateState struct {
	passed int64 // requests let through
	cause  error // why the gate is shut; nil while it is open
}

// judgement is what the gate's own log says about the effect of an attempt.
type judgement int

// The judgements.
const (
	maybeApplied   judgement = iota // a request may have had its effect, or is still on its way
	sentNothing                     // no request passed
	appliedNothing                  // requests passed, but each ended before a connection or with a status that applied nothing
)

// defaultAppliedNothing are the statuses after which surely nothing was applied, where the provider's profile
// lists none: who asks, how he asks and how often is checked before anything is done.
var defaultAppliedNothing = []int{
	http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusTooManyRequests,
}

// newGate makes an open gate. Both times need a monotonic reading. leaseEnd counts from before the claim was
// sent, because the database may have set its lease at any moment after that. harmlessStatuses is
// Provider.AppliedNothing; nil means the default.
func newGate(leaseEnd, deadline time.Time, harmlessStatuses []int) *gate {
	if harmlessStatuses == nil {
		harmlessStatuses = defaultAppliedNothing
	}
	g := &gate{now: now, deadline: deadline, appliedNothing: harmlessStatuses}
	g.state.Store(&gateState{})
	g.lease.Store(&leaseEnd)
	return g
}

// renew moves the lease's end on. An earlier end than the known one is ignored: two confirmed renewals may be
// reported in either order. It does not open a gate that is shut.
func (g *gate) renew(leaseEnd time.Time) {
	for {
		old := g.lease.Load()
		if !leaseEnd.After(*old) || g.lease.CompareAndSwap(old, &leaseEnd) {
			return
		}
	}
}

// limitKeyAge sets the time until which the provider surely remembers the key that a resend rests on.
func (g *gate) limitKeyAge(until time.Time) { g.keyAge.Store(&until) }

// pass lets one request through, or says why nothing may leave: ErrLost, ErrDraining or ErrDeadline, wrapped.
// Nobody reports how a request ended that passed this way, so it counts as maybe applied.
func (g *gate) pass() error {
	for {
		now := g.state.Load()
		if err := g.check(now); err != nil {
			g.wasRefused.Store(true)
			return err
		}
		if g.state.CompareAndSwap(now, &gateState{passed: now.passed + 1}) {
			return nil
		}
	}
}

// recheck is for a request that has passed and waited since, for a connection.
func (g *gate) recheck() error {
	err := g.check(g.state.Load())
	if err != nil {
		g.wasRefused.Store(true)
	}
	return err
}

// check tells whether a request may leave in this state. A limit that has passed shuts the gate for good.
func (g *gate) check(state *gateState) error {
	if state.cause == nil {
		cause := g.expired()
		if cause == nil {
			return nil
		}
		g.shut(cause)
		state = g.state.Load()
	}
	return fmt.Errorf("send gate: %w", state.cause)
}

// expired names the limit that has passed. The lease goes first: who has lost it must not even report.
func (g *gate) expired() error {
	now := g.now()
	keyAge := g.keyAge.Load()
	switch {
	case !now.Before(*g.lease.Load()):
		return ErrLost
	case !now.Before(g.deadline), keyAge != nil && !now.Before(*keyAge):
		return ErrDeadline
	}
	return nil
}

// shut closes the gate for good and tells whether it was in time: true means that nothing has passed and that
// nothing can pass. The first cause stays.
func (g *gate) shut(cause error) (unsent bool) {
	for {
		now := g.state.Load()
		if now.cause != nil {
			return now.passed == 0
		}
		if g.state.CompareAndSwap(now, &gateState{passed: now.passed, cause: cause}) {
			return now.passed == 0
		}
	}
}

// cause tells why the gate is shut; nil while it is open.
func (g *gate) cause() error { return g.state.Load().cause }

// sent reports whether anything has passed.
func (g *gate) sent() bool { return g.state.Load().passed > 0 }

// refused reports whether a request of the handler was ever refused here.
func (g *gate) refused() bool { return g.wasRefused.Load() }

// ended reports the end of a request that had passed. connected is false only if it surely never had a
// connection; status is 0 if no answer came.
func (g *gate) ended(connected bool, status int) {
	g.unconnected.Store(status == 0 && !connected || g.unconnected.Load())
	g.lastStatus.Store(int64(status))
	if status == 0 && !connected || slices.Contains(g.appliedNothing, status) {
		g.harmless.Add(1)
	}
}

// judgement tells what the requests of this attempt can have done. A request still under way may have done
// anything. Ask after shut, else the next request makes the answer old.
func (g *gate) judgement() judgement {
	harmless := g.harmless.Load() // first: it never exceeds the requests that had passed by then
	switch g.state.Load().passed {
	case 0:
		return sentNothing
	case harmless:
		return appliedNothing
	}
	return maybeApplied
}

type gateKey struct{}

// withGate gives a handler's context the gate that its requests have to pass.
func withGate(ctx context.Context, g *gate) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

// gateFrom finds the gate of ctx; nil means a look-up, or a call that is not the engine's.
func gateFrom(ctx context.Context) *gate {
	g, _ := ctx.Value(gateKey{}).(*gate)
	return g
}
