package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// permit is the leave to take messages, and to call the provider for them.
type permit struct {
	remote *remote
	n      int
	ticket int  // it is the try of an open breaker; 0: it is not
	capped bool // it is counted in the provider's share
	did    effort
}

// permit gives leave for up to n messages of a kind, or for none.
func (k *kind) permit(n int, at time.Time) permit {
	r := k.remote
	p := permit{remote: r, n: n}
	if !k.mayPerform() {
		p.n = 0
		return p
	}
	if r.breaker != nil && r.breaker.isOpen.Load() {
		ticket, ok := r.breaker.tryNow(at)
		if !ok {
			p.n = 0
			return p
		}
		p.n, p.ticket = 1, ticket
	}
	p.count(at)
	return p
}

// count has the permit counted in the share, which may leave fewer messages, or none.
func (p *permit) count(at time.Time) {
	if p.remote.share == nil {
		return
	}
	p.n = p.remote.share.take(p.n, at)
	if p.capped = p.n > 0; !p.capped {
		p.endTry(at)
	}
}

// one splits off the leave for one message.
func (p *permit) one() permit {
	x := *p
	x.n, p.n, p.ticket = 1, p.n-1, 0
	return x
}

// end gives back what was not used.
func (p *permit) end(at time.Time) {
	p.endTry(at)
	if !p.capped {
		return
	}
	unused := p.n
	if p.did != calledNot {
		unused = 0
	}
	p.remote.share.done(p.n, unused)
	p.n, p.capped = 0, false
	p.remote.bell.ring()
}

// endTry lets the next one try whether the provider is back.
func (p *permit) endTry(at time.Time) {
	if p.ticket == 0 {
		return
	}
	p.remote.breaker.triedNow(p.ticket, p.did, at)
	p.ticket = 0
	p.remote.bell.ring()
}

// awaitLeave blocks until a message of the kind may be taken, or ctx ends. It takes no leave.
func (e *Engine) awaitLeave(ctx context.Context, k *kind) {
	if _, ok := k.leaveIn(now()); ok {
		return
	}
	for ctx.Err() == nil {
		changed := k.remote.bell.listen()
		wait, ok := k.leaveIn(now())
		if ok {
			return
		}
		awaitChange(ctx, changed, wait)
	}
}

// leaveIn reports whether a message may be taken now. If not, it may be after wait, or after the bell where that is 0.
func (k *kind) leaveIn(at time.Time) (wait time.Duration, ok bool) {
	r := k.remote
	if !k.mayPerform() {
		return 0, false
	}
	if wait, ok := r.breaker.mayTry(at); !ok {
		return wait, false
	}
	if r.share == nil {
		return 0, true
	}
	return r.share.wait(at)
}

// pullWait is how long a pull may hold its leave while no message comes. Where that is scarce, another kind may need it,
// or recovery.
func (p *permit) pullWait() time.Duration {
	if p.capped || p.ticket != 0 && len(p.remote.kinds) > 1 {
		return scarcePullWait
	}
	return pullWait
}

// scarcePullWait is pullWait where others compete.
const scarcePullWait = 200 * time.Millisecond

// unwanted reports that a message was asked for a moment ago, and may not be worked on any more.
func (d *delivery) unwanted() bool {
	b := d.kind.remote.breaker
	return !d.kind.mayPerform() || b != nil && b.isOpen.Load() && d.permit.ticket == 0
}

// leaveFor says why a task may not be taken up without its message now; empty if it may. Where the provider has a cap it
// waits for leave to call it, until ctx ends.
func (d *delivery) leaveFor(ctx context.Context, t idemstore.Task) (why string) {
	k := d.kind
	released := t.Status == idemstore.Started && t.LeaseUntil == nil // it would be performed, with nothing to ask before
	switch {
	case !k.mayAsk():
		return heldPaused
	case !k.mayPerform() && (released || k.apply != nil):
		return heldAsking
	case !d.awaitShare(ctx):
		return heldCapped
	case (released || k.remote.breaker.silent()) && !d.permit.mayTry(now()):
		return heldOpen
	}
	return ""
}

// awaitShare waits until the provider's cap leaves room for one more call. It reports false if ctx ends first.
func (d *delivery) awaitShare(ctx context.Context) bool {
	r := d.kind.remote
	for ctx.Err() == nil {
		changed := r.bell.listen()
		d.permit = permit{remote: r, n: 1}
		if d.permit.count(now()); d.permit.n > 0 {
			return true
		}
		wait, _ := r.share.wait(now())
		awaitChange(ctx, changed, wait)
	}
	return false
}

// awaitChange blocks until c is closed, ctx ends, or wait is over where it is not 0.
func awaitChange(ctx context.Context, c <-chan struct{}, wait time.Duration) {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-c:
	case <-over:
	}
}

// Why a call to the provider is held back, in words for the audit.
const (
	heldPaused = "the kind is paused"
	heldAsking = "the kind is set to ask only"
	heldOpen   = "the provider fails, and is only tried now and then"
	heldCapped = "the worker's share of the provider's cap is used up"
)

// heldByMode says why nothing may be asked, or sent, as a person has set the kind; empty if it may.
func (k *kind) heldByMode(sending bool) (why string) {
	switch {
	case !k.mayAsk():
		return heldPaused
	case sending && !k.mayPerform():
		return heldAsking
	}
	return ""
}

// heldBack says why the provider may not be called for this attempt now; empty if it may. sending tells a perform from
// a look-up. Where the provider has a cap it waits for the attempt's turn. When ctx ends meanwhile the call goes on to
// what ctx ended for.
func (a *attempt) heldBack(ctx context.Context, sending bool) (why string) {
	a.permit.remote = a.kind.remote
	if why := a.kind.heldByMode(sending); why != "" {
		return why
	}
	switch {
	case sending && !a.permit.mayTry(now()):
		return heldOpen
	case !a.awaitTurn(ctx):
		return heldCapped
	}
	a.permit.did = max(a.permit.did, calledToAsk)
	if sending {
		a.permit.did = calledToSend
	}
	return ""
}

// mayTry reports whether the breaker lets a send pass. While it is open that takes its next try.
func (p *permit) mayTry(at time.Time) bool {
	b := p.remote.breaker
	if b == nil || !b.isOpen.Load() || p.ticket != 0 {
		return true
	}
	ticket, ok := b.tryNow(at)
	if ok {
		p.ticket = ticket
	}
	return ok || !b.isOpen.Load() // it may have closed meanwhile
}

// awaitTurn waits until the provider's cap lets the next call pass. It reports false where there is no share, or so
// many wait for it that the attempt had better come back.
func (a *attempt) awaitTurn(ctx context.Context) bool {
	p := &a.permit
	if p.remote.share == nil {
		return true
	}
	if !p.capped {
		p.n = 1
		if p.count(now()); p.n == 0 {
			return false
		}
	}
	return p.remote.await(ctx, p.capped && p.did == calledNot, a.kind.policy.Deadline)
}

// await waits for the moment of the next request, up to limit.
func (r *remote) await(ctx context.Context, paid bool, limit time.Duration) bool {
	wait, ok := r.share.slot(now(), paid, limit)
	if !ok {
		return false
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return true
		case <-timer.C:
		}
	}
	return r.share.usable(now())
}

// holdBack gives the task of an attempt back that may not call the provider now.
func (a *attempt) holdBack(ctx context.Context, why string) settlement {
	a.log.InfoContext(ctx, "held back", "why", why)
	return a.giveBack(ctx, decideOutcome(outcomeFacts{outcome: outcomeHeld}), conclusion{})
}

type paceKey struct{}

// paced lets further requests of one call wait for the provider's cap as the first one did.
func (a *attempt) paced(ctx context.Context) context.Context {
	if a.kind.remote.share == nil {
		return ctx
	}
	return context.WithValue(ctx, paceKey{}, &pace{a: a})
}

// pace counts the requests of one call. The call has waited for the first of them.
type pace struct {
	a     *attempt
	began atomic.Bool
}

// awaitPace blocks until the provider's cap lets the next request of ctx pass.
func awaitPace(ctx context.Context) error {
	p, _ := ctx.Value(paceKey{}).(*pace)
	if p == nil || p.began.CompareAndSwap(false, true) {
		return nil
	}
	if !p.a.kind.remote.await(ctx, false, p.a.kind.policy.Deadline) {
		return fmt.Errorf("share of the provider's cap: %w", ErrPaused)
	}
	return nil
}
