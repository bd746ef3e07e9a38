package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/settlemq/settle/idemstore"
)

// group runs requests of the same sort together. No request waits for company: the first one runs at once, and while it
// is in flight the next group gathers. So a lone job waits for nobody, and under load one commit serves many.
//
// Requests of one group are run in the order of their keys, and no key is in a group twice.
type group[Q, A any] struct {
	key      func(Q) string
	run      func(context.Context, []Q) []outcomeOf[A] // answers in the order of the requests
	bounds   func() (limit, lanes int)                 // requests per group, groups in flight; at least 1 of each
	ample    time.Duration                             // for one group, its members' single runs included
	patience time.Duration                             // of a request, for its group to begin and to end

	late  time.Duration // after which a group's lane is no longer counted, and slow is told; 0: never
	most  int           // lanes, with those that are not counted; 0: any number
	slow  func([]Q)     // may be nil
	sizes timer         // of groups; no times

	mu      sync.Mutex
	waiting []*member[Q, A]
	lanes   int // that there are
	flying  int // those of them that are counted
	runners sync.WaitGroup
}

// outcomeOf is the answer to one request of a group.
type outcomeOf[A any] struct {
	answer A
	err    error
}

type member[Q, A any] struct {
	request Q
	key     string
	outcome outcomeOf[A]  // once it is done
	done    chan struct{} // closed then
}

// Bounds of grouping: a group must stay well below the lock timeout. One group is in flight at a time, because two of half
// the size cost more; another one joins it where the server takes its time or makes it wait for a lock. There are no more
// than that, so that heartbeats find a connection.
const (
	groupLimit = 256
	groupLanes = 1
	groupLate  = 10 * time.Millisecond
	groupMost  = 2
)

var errPatience = fmt.Errorf("the group does not end: %w", context.DeadlineExceeded)

// fixed are bounds that do not change.
func fixed(limit, lanes int) func() (int, int) { return func() (int, int) { return limit, lanes } }

// do runs a request with whatever else is waiting. When ctx ends first, or patience does, nobody knows what became of
// it.
func (g *group[Q, A]) do(ctx context.Context, request Q) (A, error) {
	m := &member[Q, A]{request: request, key: g.key(request), done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, m)
	_, lanes := g.bounds()
	g.start(context.WithoutCancel(ctx), lanes)
	g.mu.Unlock()
	limit := time.NewTimer(g.patience) // a context with a timeout costs five times as much
	defer limit.Stop()
	var none A
	select {
	case <-m.done:
		return m.outcome.answer, m.outcome.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-limit.C:
		return none, errPatience
	}
}

// start opens one more lane, if there may be one. It is called under the lock.
func (g *group[Q, A]) start(ctx context.Context, lanes int) {
	if g.flying < lanes && (g.most == 0 || g.lanes < g.most) {
		g.flying++
		g.lanes++
		g.runners.Go(func() { g.fly(ctx) })
	}
}

// fly runs one group after the other while requests are waiting.
func (g *group[Q, A]) fly(ctx context.Context) {
	for {
		members := g.take(ctx)
		if len(members) == 0 {
			return
		}
		requests := make([]Q, len(members))
		for i, m := range members {
			requests[i] = m.request
		}
		g.runOne(ctx, members, requests)
	}
}

func (g *group[Q, A]) runOne(ctx context.Context, members []*member[Q, A], requests []Q) {
	ctx, cancel := context.WithTimeout(ctx, g.ample)
	defer cancel()
	g.sizes.record(float64(len(requests)))
	defer g.watch(ctx, requests)()
	for i, o := range g.run(ctx, requests) {
		members[i].outcome = o
		close(members[i].done)
	}
}

// watch opens another lane if a group is not over in time, so that it holds up none but its members.
func (g *group[Q, A]) watch(ctx context.Context, requests []Q) (over func()) {
	if g.late == 0 {
		return func() {}
	}
	ctx = context.WithoutCancel(ctx)
	timer := time.AfterFunc(g.late, func() {
		if g.slow != nil {
			g.slow(requests)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.flying--
		if _, lanes := g.bounds(); len(g.waiting) > 0 {
			g.start(ctx, lanes)
		}
	})
	return func() {
		if !timer.Stop() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.flying++
		}
	}
}

// take removes the next group from those that wait. When there is none the lane is given up, under the same lock,
// so that a request that comes later starts it again. Those that are left may have another lane.
func (g *group[Q, A]) take(ctx context.Context) []*member[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, lanes := g.bounds()
	if len(g.waiting) == 0 || g.flying > lanes {
		g.flying--
		g.lanes--
		return nil
	}
	taken := make([]*member[Q, A], 0, min(len(g.waiting), limit))
	seen := make(map[string]bool, cap(taken))
	left := g.waiting[:0]
	for _, m := range g.waiting {
		if len(taken) == limit || seen[m.key] {
			left = append(left, m)
			continue
		}
		seen[m.key] = true
		taken = append(taken, m)
	}
	clear(g.waiting[len(left):])
	g.waiting = left
	if len(left) > 0 {
		g.start(ctx, lanes)
	}
	slices.SortFunc(taken, func(a, b *member[Q, A]) int { return strings.Compare(a.key, b.key) })
	return taken
}

// together runs a whole group with f, and each request by itself if the group fails: what is wrong with one member
// is then that member's alone. A failure that every single run would meet again is given to all members at once.
func together[Q, A any](f func(context.Context, ...Q) ([]A, error), general func(error) bool) func(context.Context, []Q) []outcomeOf[A] {
	return func(ctx context.Context, requests []Q) []outcomeOf[A] {
		out := make([]outcomeOf[A], len(requests))
		answers, err := f(ctx, requests...)
		single := err != nil && len(requests) > 1 && !general(err)
		for i := range out {
			switch {
			case single:
				out[i] = alone(ctx, f, requests[i])
			case err != nil:
				out[i].err = err
			default:
				out[i].answer = answers[i]
			}
		}
		return out
	}
}

func alone[Q, A any](ctx context.Context, f func(context.Context, ...Q) ([]A, error), request Q) (out outcomeOf[A]) {
	answers, err := f(ctx, request)
	if err != nil {
		out.err = err
		return out
	}
	out.answer = answers[0]
	return out
}

// newGroups makes the groups of an engine.
func (e *Engine) newGroups() {
	sizes := func(statement string) timer { return e.meters.timer(metricGroup, groupSizes, statement) }
	claims := func(f func(context.Context, ...idemstore.Claim) ([]idemstore.Claimed, error), statement string) *group[idemstore.Claim, idemstore.Claimed] {
		return &group[idemstore.Claim, idemstore.Claimed]{
			key:    func(c idemstore.Claim) string { return c.Kind + " " + c.Key },
			run:    together(f, nobodyAnswers),
			bounds: fixed(groupLimit, groupLanes), late: groupLate, most: groupMost, ample: e.config.Lease, patience: e.config.Lease, sizes: sizes(statement),
		}
	}
	e.newClaims, e.claims = claims(e.store.ClaimNew, "claim_new"), claims(e.store.Claim, "claim")
	e.saves = &group[idemstore.Save, idemstore.Saved]{
		key:    func(s idemstore.Save) string { return s.Kind + " " + s.Key },
		run:    together(e.store.Save, func(error) bool { return false }),
		bounds: fixed(groupLimit, groupLanes), late: groupLate, most: groupMost, ample: saveTimeout, patience: saveTimeout, sizes: sizes("save"),
	}
	e.guards = &group[idemstore.Guard, idemstore.Guarded]{
		key:    func(g idemstore.Guard) string { return g.Kind + " " + g.ID },
		run:    together(e.store.Guard, nobodyAnswers),
		bounds: fixed(groupLimit, groupLanes), late: groupLate, most: groupMost, ample: e.config.Lease, patience: e.config.Lease, sizes: sizes("guard"),
	}
}

// waitForGroups returns when the last group in flight is answered.
func (e *Engine) waitForGroups() {
	e.newClaims.runners.Wait()
	e.claims.runners.Wait()
	e.guards.runners.Wait()
	e.saves.runners.Wait()
	for _, k := range e.kinds {
		k.locals.runners.Wait()
	}
}

// nobodyAnswers tells a database that is away from one that refused: no member would get further by itself.
func nobodyAnswers(err error) bool {
	var answered *pgconn.PgError
	return !errors.As(err, &answered) && !errors.Is(err, idemstore.ErrCommitUnanswered)
}
