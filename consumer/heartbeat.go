package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// One loop per process keeps both clocks of every attempt: it renews the leases of all held tasks in one statement, and
// tells the broker about them. An attempt whose renewal was not confirmed in time has its gate shut and its context
// cancelled, and its delivery goes silent.

// holdings are the attempts that this process works on. They are a list of whom to renew; what they hold is
// decided by their rows.
type holdings struct {
	mu       sync.Mutex
	attempts map[*attempt]struct{}
	draining bool
}

// hold adds an attempt, or returns why no attempt may begin any more.
func (e *Engine) hold(a *attempt) error {
	h := &e.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return ErrDraining
	}
	if h.attempts == nil {
		h.attempts = map[*attempt]struct{}{}
	}
	h.attempts[a] = struct{}{}
	return nil
}

func (e *Engine) letGo(a *attempt) {
	e.held.mu.Lock()
	defer e.held.mu.Unlock()
	delete(e.held.attempts, a)
}

// opened tells the holdings about a gate: one that opens while the process drains is shut at once.
func (e *Engine) opened(a *attempt, g *gate) {
	e.held.mu.Lock()
	defer e.held.mu.Unlock()
	a.gate.Store(g)
	if e.held.draining && g.shut(ErrDraining) {
		a.cancel(ErrDraining)
	}
	if !a.kind.mayPerform() && g.shut(ErrPaused) {
		a.cancel(ErrPaused)
	}
}

func (h *holdings) list() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*attempt, 0, len(h.attempts))
	for a := range h.attempts {
		out = append(out, a)
	}
	return out
}

func (h *holdings) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attempts)
}

// drain lets nothing begin and stops attempts that have sent nothing yet. Those that have sent, and local jobs, go on.
func (h *holdings) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for a := range h.attempts {
		if a.kind.apply != nil {
			continue // most end in no time; one that does not is cancelled with the grace time
		}
		if g := a.gate.Load(); g == nil || g.shutUnsent(ErrDraining) {
			a.cancel(ErrDraining)
		}
	}
}

// shutAll lets nothing more leave.
func (h *holdings) shutAll(cause error) {
	for _, a := range h.list() {
		if g := a.gate.Load(); g != nil {
			g.shut(cause)
		}
	}
}

// heartbeat renews until ctx ends. It goes on through outages: failures are seen, and the next beat is a retry. Beats are
// counted from start to start: one that has waited for a broker in vain does not make the next renewal late.
func (e *Engine) heartbeat(ctx context.Context) {
	for last := now(); ; {
		every := e.beatEvery()
		select {
		case <-ctx.Done():
			return
		case <-e.after(every - now().Sub(last)):
		}
		last = now()
		e.beat(ctx, every)
	}
}

// beatEvery is a third of the shortest clock.
func (e *Engine) beatEvery() time.Duration {
	shortest := e.config.Lease
	for _, k := range e.kinds {
		shortest = min(shortest, k.ackWaitNow())
	}
	return shortest / 3
}

// beat renews the leases that still run and tells the broker about them, both at once: a slow database does not make the
// broker deliver again, nor a slow broker the leases end.
func (e *Engine) beat(ctx context.Context, limit time.Duration) {
	held := e.alive(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { e.prolong(ctx, held, limit) })
	e.renew(ctx, held, limit)
	e.alive(ctx)
	telling.Wait()
}

// prolong restarts the broker's clocks. What is written to a connection may lie in a buffer of a network that is gone, so it
// counts only once the broker has answered what was sent behind it.
func (e *Engine) prolong(ctx context.Context, attempts []*attempt, limit time.Duration) {
	before := now()
	var told []*attempt
	for _, a := range attempts {
		switch sent, err := a.inProgress(); {
		case err != nil:
			a.heartbeatLost(ctx, err)
		case sent:
			told = append(told, a)
		}
	}
	if len(told) == 0 {
		return
	}
	err := e.answered(ctx, limit)
	for _, a := range told {
		switch {
		case err == nil:
			a.keepUntil(before)
		case ctx.Err() == nil:
			a.heartbeatLost(ctx, err)
		}
	}
}

func (a *attempt) heartbeatLost(ctx context.Context, err error) {
	a.engine.meters.acks.one()
	a.log.WarnContext(ctx, "heartbeat did not reach the broker", "error", err)
	a.mark(eventHeartbeatLost)
}

// alive are the attempts whose lease still runs by our own clock. The others are lost, and are not renewed any more:
// this process may have claimed the same task again, and a renewal of that claim would pass for one of theirs. A local
// job has its row locked and needs no lease, but its message must not go to somebody else meanwhile.
func (e *Engine) alive(ctx context.Context) []*attempt {
	return slices.DeleteFunc(e.held.list(), func(a *attempt) bool {
		if a.locksRow() {
			return !now().Before(a.renewUntil())
		}
		over := !now().Before(*a.leaseEnd.Load())
		if over && !a.saving.Load() {
			a.log.WarnContext(ctx, "lease lost: not confirmed in time; nothing more is sent")
			a.lose()
		}
		return over
	})
}

// renew asks for longer leases. It counts them from before it asked.
func (e *Engine) renew(ctx context.Context, attempts []*attempt, limit time.Duration) {
	var ask []idemstore.Renewal
	for _, a := range attempts {
		if !a.saving.Load() && now().Before(a.renewUntil()) {
			ask = append(ask, idemstore.Renewal{Fence: a.task.Fence, Lease: e.config.Lease})
		}
	}
	if len(ask) == 0 {
		e.renewals.failed(nil) // nothing to renew, nothing that fails
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before := now()
	confirmed, err := e.store.Renew(ctx, ask...)
	if err != nil {
		e.database.failed(err)
		e.renewals.failed(fmt.Errorf("leases are not renewed: %w", err))
		e.meters.leases.one()
		e.log.WarnContext(ctx, "leases not renewed", "attempts", len(ask), "error", err)
		for _, a := range attempts {
			a.mark(eventHeartbeatLost)
		}
		return
	}
	e.database.failed(nil)
	e.renewals.failed(nil)
	for _, a := range attempts {
		if confirmed[a.task.Fence] {
			a.renewed(before.Add(e.config.Lease))
		}
	}
}

// renewed moves the end of the lease on, for the gate as well.
func (a *attempt) renewed(end time.Time) {
	a.leaseEnd.Store(&end)
	if g := a.gate.Load(); g != nil {
		g.renew(end)
	}
}

// renewUntil caps the renewals: a handler that never returns must not hold its task for ever. An attempt may ask,
// check and perform, each under the deadline.
func (a *attempt) renewUntil() time.Time {
	return a.began().Add(3*a.kind.policy.Deadline + handlerGrace)
}

// shutUnsent shuts the gate only if nothing has passed; an attempt that has sent may finish what it began.
func (g *gate) shutUnsent(cause error) bool {
	for {
		s := g.state.Load()
		if s.passed > 0 || s.cause != nil {
			return s.passed == 0
		}
		if g.state.CompareAndSwap(s, &gateState{cause: cause}) {
			return true
		}
	}
}
