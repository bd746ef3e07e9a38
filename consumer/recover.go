package consumer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// Recovery takes up tasks without their messages: of a message that was deleted, of a stream that was lost, of a worker
// that died after its claim when nobody delivers again. The row is the whole job. An attempt comes about through the same
// claim as any other, so a recovery is safe beside live messages and beside other recoveries: of all that want a task one
// gets it. What cannot be resolved now becomes due later, and what is chosen is paged by due time, so no task hides the rest.
//
// Tasks that were parked only because budget or age was used up go on being asked about, and nothing is sent for them.

const (
	// recovery is the actor, in the audit, of what an engine takes up by itself.
	recovery = "recovery"
	// recoverPage is how many tasks are chosen at once. They grow old while they wait for slots; the claim decides.
	recoverPage = 100
	// parkedEvery is how often the provider is asked about a parked task.
	parkedEvery = time.Hour
)

// taker is who takes up a task without its message.
type taker struct {
	actor string // in the audit
	note  string // why; empty unless a person did
}

// keepRecovering runs a pass at once and then every Config.RecoverEvery, until ctx ends. Attempts run under work, which
// outlives ctx by the grace time.
func (e *Engine) keepRecovering(ctx, work context.Context, k *kind) {
	for ctx.Err() == nil {
		if e.database.state() == nil && k.mayRecover() { // else the intake asks until it answers
			p := e.newPass(k, taker{actor: recovery}, max(e.config.Slots/2, 1))
			p.yields = true
			p.run(ctx, work)
			p.report(ctx)
		}
		select {
		case <-ctx.Done():
		case <-e.after(spread(e.config.RecoverEvery, rand.Float64())):
		}
	}
}

// LastRecovery is when recovery last chose among the due tasks, by this process's clock: of the kind for which that is
// longest ago. It is zero as long as there is a kind for which that has not happened. It does not block.
func (e *Engine) LastRecovery() time.Time {
	var oldest time.Time
	for _, k := range e.kinds {
		at := k.looked.Load()
		if at == 0 {
			return time.Time{}
		}
		if t := time.Unix(0, at); oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest
}

// pass is one recovery of a kind's tasks.
type pass struct {
	*Engine
	kind   *kind
	by     taker
	most   int                         // hands: part of the kind's slots stays with the messages
	yields bool                        // to messages: a part of the hands works while there are many
	chores chan chore                  // for a hand that has none
	over   sync.WaitGroup              // chores
	then   func(idemstore.Task, taken) // called when a chore has ended

	mu    sync.Mutex
	hands int // that are there
	count map[RecoverOutcome]int
}

// yielding is the share of its hands that a pass keeps while messages have more than that share of the slots: a provider
// that is back has a queue to work off, and the live jobs have customers who wait.
const yielding = 4

// chore is what a pass does about one task.
type chore struct {
	ctx  context.Context //nolint:containedctx // that of the delivery
	task idemstore.Task
	do   func(*delivery, context.Context, idemstore.Task) taken
}

func (e *Engine) newPass(k *kind, by taker, most int) *pass {
	return &pass{Engine: e, kind: k, by: by, most: most, chores: make(chan chore), count: map[RecoverOutcome]int{},
		then: func(idemstore.Task, taken) {}}
}

// run takes up what is due and asks about what is parked. It returns when all of that has ended, or what had begun when ctx
// ended.
func (p *pass) run(ctx, work context.Context) {
	defer p.end()
	if p.takeDue(ctx, work) && p.kind.lookup != nil {
		p.takeParked(ctx)
	}
}

// end waits for what has begun.
func (p *pass) end() {
	close(p.chores)
	p.over.Wait()
}

// takeDue pages through all tasks that are due now. It returns false if that was cut short.
func (p *pass) takeDue(ctx, work context.Context) bool {
	f := idemstore.DueFilter{Kind: p.kind.name, Limit: recoverPage}
	for {
		tasks, next, err := p.store.Due(ctx, f)
		if err != nil {
			p.failed(ctx, err)
			return false
		}
		p.kind.looked.Store(now().UnixNano())
		for _, t := range tasks {
			if !p.begin(ctx, chore{work, t, (*delivery).takeUp}) {
				return false
			}
		}
		if len(tasks) < f.Limit {
			return true
		}
		f.After = next
	}
}

// takeParked asks about parked tasks, as many at a time as there are hands: one that is chosen and not asked about waits for
// an hour.
func (p *pass) takeParked(ctx context.Context) {
	f := idemstore.ParkedFilter{Kind: p.kind.name, Again: parkedEvery, Limit: p.most}
	for ctx.Err() == nil {
		tasks, err := p.store.TakeParked(ctx, f)
		if err != nil {
			p.failed(ctx, err)
			return
		}
		for _, t := range tasks {
			if !p.begin(ctx, chore{ctx, t, (*delivery).askParked}) { // to ask may be cut short at any time
				return
			}
		}
		if len(tasks) < f.Limit {
			return
		}
	}
}

// failed ends a pass whose choosing failed; the next one is the repetition.
func (p *pass) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p.database.failed(err)
	p.log.WarnContext(ctx, "recovery cannot choose tasks", "kind", p.kind.name, "error", err)
}

// begin hands a chore over, and waits until there is a hand for it. It returns false if ctx ends first.
func (p *pass) begin(ctx context.Context, c chore) bool {
	p.over.Add(1)
	if p.joins() {
		go p.hand(ctx, c)
		return true
	}
	select {
	case p.chores <- c:
		return true
	case <-ctx.Done():
		p.finish(c, taken{RecoverSkipped, notItsTurn})
		return false
	}
}

// wanted is how many hands may work now; at least one.
func (p *pass) wanted() int {
	if p.yields && int(p.kind.live.Load()) > cap(p.kind.slots)/yielding {
		return max(p.most/yielding, 1)
	}
	return p.most
}

// joins makes room for one more hand, if there may be one.
func (p *pass) joins() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hands >= p.wanted() {
		return false
	}
	p.hands++
	return true
}

// leaves gives up a hand, if there are more than there may be.
func (p *pass) leaves() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hands <= p.wanted() {
		return false
	}
	p.hands--
	return true
}

const notItsTurn = "the recovery ended before its turn"

// hand does one chore after the other, on one of the kind's slots. Whoever waits longest for a slot gets the next one, so it
// does not have to wait for an intake that has nothing to do; and it keeps the slot until it is through, or that intake would
// have it next. A slot that is the only one goes back after each chore: there, messages and recovery take turns.
func (p *pass) hand(ctx context.Context, c chore) {
	slots, held := p.kind.slots, false
	for ok := true; ok; c, ok = p.next() {
		if !held {
			select {
			case slots <- struct{}{}:
				held = true
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			p.finish(c, taken{RecoverSkipped, notItsTurn})
			continue
		}
		p.handle(ctx, c)
		if cap(slots) == 1 {
			p.kind.free(1)
			held = false
		}
	}
	if held {
		p.kind.free(1)
	}
}

// next waits for a chore. There is none for a hand that is to leave, or at the end of the pass.
func (p *pass) next() (c chore, ok bool) {
	if p.leaves() {
		return c, false
	}
	c, ok = <-p.chores
	return c, ok
}

// handle does a chore, if its kind may be served now. A handler that ignores its context keeps the hand, and its slot, but
// not the pass.
func (p *pass) handle(ctx context.Context, c chore) {
	d := &delivery{engine: p.Engine, kind: p.kind, by: p.by, key: c.task.Key}
	d.task.Store(&c.task)
	d.log = slog.New(journal{p.log.Handler(), d})
	defer func() { d.permit.end(now()) }()
	defer d.handlers.Wait()
	p.deliveries.Add(1)
	came := taken{RecoverSkipped, d.leaveFor(ctx, c.task)}
	if came.message == "" {
		came = c.do(d, c.ctx, c.task)
	}
	p.deliveries.Done()
	p.finish(c, came)
}

// finish counts a chore and tells.
func (p *pass) finish(c chore, came taken) {
	defer p.over.Done()
	p.mu.Lock()
	p.count[came.outcome]++
	p.mu.Unlock()
	p.then(c.task, came)
}

// report logs a pass that did something.
func (p *pass) report(ctx context.Context) {
	did := len(p.count)
	if _, skipped := p.count[RecoverSkipped]; skipped {
		did--
	}
	if did == 0 {
		return
	}
	level := slog.LevelInfo
	if p.count[RecoverParked] > 0 {
		level = slog.LevelWarn
	}
	p.log.Log(ctx, level, "recovery", "kind", p.kind.name, "settled", p.count[RecoverSettled], "parked", p.count[RecoverParked],
		"still_parked", p.count[RecoverStillParked], "open", p.count[RecoverOpen], "skipped", p.count[RecoverSkipped])
}
