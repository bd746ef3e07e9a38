package consumer

import (
	"sync"
	"sync/atomic"
	"time"
)

// The breaker of a provider: a state machine without clock, lock or timer. Others tell it what happened and when, and
// obey.
//
// It is closed while all is well, and opens after a number of sends in a row that failed; then the kinds of this provider
// take no messages but one at a time, and one send per interval tries whether the provider is back. What is under way is
// never cut. Look-ups go on: they cannot do harm, and they tell whether the provider answers. While they fail too, tasks
// are asked about only by those tries.
//
// They do not say whether sending works: a provider may read and not write, or write and not read. So failed look-ups open
// nothing, and an answered one ends only a run of failures in which nothing had reached the provider. Otherwise it brings
// the next try forward, once, if look-ups had failed as well.

// signal is what one call says about its provider.
type signal int

const (
	signalNone      signal = iota // it came to nothing on our side, or the provider throttles
	signalWorks                   // a send was answered as a provider answers: done, accepted, refused, a conflict
	signalFails                   // a send reached it, and no outcome is known: timeout, cut, 5xx
	signalUnreached               // a send got no connection
	signalBarred                  // nobody is let in as things are: 401, 405, a certificate
	signalRebuffed                // the same, or only about this job: 403, 404, a redirect
	signalAnswered                // a look-up was answered
	signalMute                    // a look-up was not
)

// rebuffLimit is how many rebuffs in a row mean all jobs: one alone may be about its own.
const rebuffLimit = 2

// circuit is the state of a breaker. It is a value: each transition returns the next one.
type circuit struct {
	limit int           // failures in a row that open it
	every time.Duration // between two sends that try, while it is open
	least time.Duration // between two tries that came to a look-up only

	failures int  // of sends, in a row
	rebuffs  int  // in a row
	reached  bool // one of them had reached the provider

	open   bool
	barred bool      // it is open because our side is set up wrongly
	since  time.Time // it is open
	next   time.Time // no try before
	trying bool      // a try is under way
	ticket int       // its number: tries of an earlier opening do not count
	deaf   bool      // a look-up failed since it opened
}

// turn is what a signal changed.
type turn int

const (
	stays turn = iota
	opens
	closes
)

// quiet reports whether nothing is to be remembered: closed, and no failure since the last success.
func (c circuit) quiet() bool { return !c.open && c.failures == 0 && c.rebuffs == 0 }

// after is the circuit after a signal.
func (c circuit) after(s signal, at time.Time) (circuit, turn) {
	switch {
	case s == signalNone:
		return c, stays
	case s == signalWorks, s == signalAnswered && !c.reached:
		return c.closed()
	case c.open:
		return c.whileOpen(s, at), stays
	case s == signalAnswered, s == signalMute:
		return c, stays // what reached the provider and failed is not undone by a look-up, and sends may work while none does
	}
	return c.count(s, at)
}

// closed is the circuit after a success.
func (c circuit) closed() (circuit, turn) {
	t := stays
	if c.open {
		t = closes
	}
	return circuit{limit: c.limit, every: c.every, least: c.least, ticket: c.ticket}, t
}

// whileOpen keeps what look-ups say. Failures are no news.
func (c circuit) whileOpen(s signal, at time.Time) circuit {
	switch s {
	case signalMute:
		c.deaf = true
	case signalAnswered:
		if c.deaf {
			c.deaf, c.next = false, at
		}
	case signalNone, signalWorks, signalFails, signalUnreached, signalBarred, signalRebuffed:
	}
	return c
}

// count adds a failure to a closed circuit.
func (c circuit) count(s signal, at time.Time) (circuit, turn) {
	c.failures++
	c.reached = c.reached || s == signalFails || s == signalBarred || s == signalRebuffed
	c.rebuffs++
	if s != signalRebuffed {
		c.rebuffs = 0
	}
	c.barred = s == signalBarred || c.rebuffs >= rebuffLimit
	if !c.barred && c.failures < c.limit {
		return c, stays
	}
	c.open, c.since, c.next = true, at, at.Add(c.every)
	return c, opens
}

// try is the circuit once an attempt has gone out to try, if one may. Its ticket is then that try's.
func (c circuit) try(at time.Time) (circuit, bool) {
	if !c.open || c.trying || at.Before(c.next) {
		return c, false
	}
	c.trying, c.next = true, at.Add(c.every)
	c.ticket++
	return c, true
}

// effort is what a try, or another delivery, has called the provider for.
type effort int

const (
	calledNot effort = iota // it did not call the provider
	calledToAsk
	calledToSend
)

// tried is the circuit once a try is over. One that sent nothing leaves its turn to the next, unless it came to a look-up
// that failed: that was a try as good as any.
func (c circuit) tried(ticket int, did effort, at time.Time) circuit {
	if !c.trying || ticket != c.ticket {
		return c // it closed meanwhile, and may have opened again
	}
	c.trying = false
	switch soon := at.Add(c.least); did {
	case calledNot:
		c.next = at
	case calledToAsk:
		if !c.deaf && soon.Before(c.next) {
			c.next = soon
		}
	case calledToSend:
	}
	return c
}

// breaker is a circuit that the jobs of a provider share. While all is well it costs a job one atomic load.
type breaker struct {
	isQuiet, isOpen atomic.Bool

	mu sync.Mutex
	circuit
}

func newBreaker(limit int, every, least time.Duration) *breaker {
	b := &breaker{circuit: circuit{limit: limit, every: every, least: least}}
	b.isQuiet.Store(true)
	return b
}

// report takes a signal in, and says whether it opened or closed the breaker.
func (b *breaker) report(s signal, at time.Time) (t turn) {
	if s == signalNone || (s == signalWorks || s == signalAnswered) && b.isQuiet.Load() {
		return stays
	}
	b.change(func(c circuit) circuit {
		c, t = c.after(s, at)
		return c
	})
	return t
}

// tryNow takes the try of this interval, if it is not taken yet.
func (b *breaker) tryNow(at time.Time) (ticket int, ok bool) {
	b.change(func(c circuit) circuit {
		c, ok = c.try(at)
		ticket = c.ticket
		return c
	})
	return ticket, ok
}

// mayTry reports whether a send may pass, as the next try if it is open. If not, one may after wait, or when the try that
// is under way has ended, where that is 0. No breaker lets everything pass.
func (b *breaker) mayTry(at time.Time) (wait time.Duration, ok bool) {
	if b == nil || !b.isOpen.Load() {
		return 0, true
	}
	c := b.state()
	return max(c.next.Sub(at), 0), !c.open || !c.trying && !at.Before(c.next)
}

// silent reports that it is open and that the provider does not even answer look-ups: then they are tries as well. A task
// that nobody can ask about is not asked about again and again, for its waits grow, up to long after the provider is back.
func (b *breaker) silent() bool {
	return b != nil && b.isOpen.Load() && b.state().deaf
}

// triedNow gives the try of a ticket back.
func (b *breaker) triedNow(ticket int, did effort, at time.Time) {
	b.change(func(c circuit) circuit { return c.tried(ticket, did, at) })
}

func (b *breaker) change(f func(circuit) circuit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.circuit = f(b.circuit)
	b.isOpen.Store(b.open)
	b.isQuiet.Store(b.quiet())
}

// state is a copy of the circuit.
func (b *breaker) state() circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.circuit
}
