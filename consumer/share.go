package consumer

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// A provider's cap holds for all workers together. Each has a share of it, which it asks for with a check-in
// (idemstore.CheckIn) and may use for one lease by its own clock, counted from before it asked. A worker that cannot
// check in, or was frozen, so stops by itself before its share is given to others.
//
// A rate is handed out in parts of one request per second, or somewhat more where the cap is no whole number; a cap
// below that has a single part. Where there are more workers than parts, or than requests that may be in flight, some
// have nothing to do: the first ones by their id have it.
//
// The share bounds what is taken from the stream, so that no message waits in this process for its turn while its
// AckWait runs; the moment of each request is kept apart from the one before it as well.

// share is this worker's part of one provider's cap.
type share struct {
	perSecond float64 // of all workers; 0: not capped
	parts     int     // that the rate is handed out in
	inFlight  int     // of all workers; 0: not capped

	mu     sync.Mutex
	grant  idemstore.Grant
	until  time.Time // the grant may be used
	flying int       // deliveries that may call the provider now
	tokens float64   // messages that may be taken under the rate; below 0: calls were made on credit
	filled time.Time // when tokens was last brought up to date
	next   time.Time // no request before
}

func newShare(perSecond float64, inFlight int) *share {
	s := &share{perSecond: perSecond, inFlight: inFlight}
	if perSecond > 0 {
		s.parts = max(int(perSecond), 1)
	}
	return s
}

// rate is what this worker may send per second.
func (s *share) rate() float64 {
	if s.parts == 0 {
		return 0
	}
	return float64(s.grant.Rate) * s.perSecond / float64(s.parts)
}

// take gives leave to take up to n messages, and counts them.
func (s *share) take(n int, at time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.Before(s.until) {
		return 0
	}
	if s.inFlight > 0 {
		n = min(n, s.grant.Flights-s.flying)
	}
	if s.parts > 0 {
		s.fill(at)
		n = min(n, int(s.tokens))
		if s.rate() <= 0 { // what was saved up is of no use: no call passes
			n = 0
		}
	}
	n = max(n, 0)
	s.tokens -= float64(n)
	s.flying += n
	return n
}

// fill adds the tokens of the time that has passed, up to those of a second.
func (s *share) fill(at time.Time) {
	if s.filled.IsZero() {
		s.filled = at
	}
	if !at.After(s.filled) {
		return
	}
	s.tokens = min(s.tokens+s.rate()*at.Sub(s.filled).Seconds(), max(s.rate(), 1))
	s.filled = at
}

// done ends deliveries that take has counted; those unused never called the provider.
func (s *share) done(n, unused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying -= n
	s.tokens += float64(unused)
}

// wait reports whether a message may be taken. If not, it may be after wait, or after the bell where that is 0.
func (s *share) wait(at time.Time) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.Before(s.until) || s.inFlight > 0 && s.flying >= s.grant.Flights {
		return 0, false
	}
	if s.parts == 0 {
		return 0, true
	}
	s.fill(at)
	rate := s.rate()
	if s.tokens >= 1 || rate <= 0 {
		return 0, rate > 0
	}
	return time.Duration(math.Ceil((1 - s.tokens) / rate * float64(time.Second))), false
}

// slot gives the moment of the next request, as a wait. paid says that take has counted it already. ok is false where
// the grant ends before, or the wait is longer than limit.
func (s *share) slot(at time.Time, paid bool, limit time.Duration) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts == 0 {
		return 0, at.Before(s.until)
	}
	rate, moment := s.rate(), at
	if s.next.After(at) {
		moment = s.next
	}
	if rate <= 0 || !moment.Before(s.until) || moment.Sub(at) > limit {
		return 0, false
	}
	s.next = moment.Add(time.Duration(float64(time.Second) / rate))
	if !paid {
		s.tokens--
	}
	return moment.Sub(at), true
}

// usable reports whether the grant holds.
func (s *share) usable(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at.Before(s.until)
}

// holds is what this worker uses, or may use, of the cap.
func (s *share) holds(at time.Time) (rate, flights int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Before(s.until) {
		rate, flights = s.grant.Rate, s.grant.Flights
	}
	if s.inFlight == 0 {
		return rate, 0
	}
	return rate, max(flights, s.flying)
}

// granted takes a new grant over. less reports that others wait for what this worker does not have any more.
func (s *share) granted(g idemstore.Grant, at, until time.Time) (less bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	less = at.Before(s.until) && (g.Rate < s.grant.Rate || g.Flights < s.grant.Flights)
	if s.parts > 0 {
		s.fill(at) // at the rate until now
	}
	s.grant, s.until = g, until
	return less
}

// Times of the registry of workers.
const (
	longestShare = 10 * time.Second // how long a grant holds; the lease, if that is less
	checkInsEach = 5                // per grant
)

// shareLease is how long a grant holds.
func (e *Engine) shareLease() time.Duration { return min(e.config.Lease, longestShare) }

// checkIn keeps this worker's shares until ctx ends, and gives them back then. It returns at once where no provider of
// its kinds is capped.
func (e *Engine) checkIn(ctx context.Context) {
	var capped []*remote
	for _, r := range e.remotes {
		if r.share != nil {
			capped = append(capped, r)
		}
	}
	if len(capped) == 0 {
		return
	}
	worker := uuid.New()
	for ctx.Err() == nil {
		again := false
		for _, r := range capped {
			again = e.checkInAt(ctx, r, worker) || again
		}
		if again {
			continue
		}
		e.rest(ctx, e.shareLease()/checkInsEach)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkOutTimeout)
	defer cancel()
	if err := e.store.CheckOut(ctx, worker); err != nil {
		e.log.WarnContext(ctx, "shares not given back; others wait for their end", "error", err)
	}
}

// checkOutTimeout bounds what a drain may lose by giving shares back.
const checkOutTimeout = time.Second

// checkInAt asks for a share once. again reports that it became less: the sooner that is said, the sooner another
// worker has it.
func (e *Engine) checkInAt(ctx context.Context, r *remote, worker uuid.UUID) (again bool) {
	lease := e.shareLease()
	ctx, cancel := context.WithTimeout(ctx, lease/checkInsEach)
	defer cancel()
	before := now()
	rate, flights := r.share.holds(before)
	g, err := e.store.CheckIn(ctx, idemstore.CheckIn{Provider: r.identity, Worker: worker,
		Rate: r.share.parts, Flights: r.share.inFlight, HoldsRate: rate, HoldsFlights: flights, Lease: lease + r.longest})
	if err != nil {
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "share of a provider's cap not renewed", "provider", r.name, "error", err)
		}
		return false
	}
	again = r.share.granted(g, now(), before.Add(lease))
	r.bell.ring()
	return again
}
