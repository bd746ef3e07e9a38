package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Taking messages: a slot first, then the message. A pull asks for exactly as many messages as there are free
// slots, and each begins the moment it arrives, so that nothing waits in a buffer while its AckWait runs.

const (
	// pullWait is how long one pull stays open. A drain waits for open pulls rather than cutting them: what
	// the server has sent into a cut one would lie there for a whole AckWait.
	pullWait = time.Second
	// pulls is how many may be open at once, per kind: one waits while others are being filled.
	pulls = 4
	// worthwhile is the share of the slots that a further pull must ask for while one is open: under load slots
	// become free one by one, and a pull for each would cost more than its job.
	worthwhile = 8
)

// intake is the taking of one kind's messages.
type intake struct {
	*Engine
	kind     *kind
	open     int         // pulls under way
	ended    chan pulled // one per pull that has ended
	pressure pressure
	resting  bool // before the next pull of a paused intake
	idle     bool // nothing came for the last pull
}

// take pulls messages of a kind until ctx ends. Deliveries run under work, which outlives ctx by the grace time.
func (e *Engine) take(ctx, work context.Context, k *kind) {
	in := &intake{Engine: e, kind: k, ended: make(chan pulled, pulls)}
	defer func() {
		for ; in.open > 0; in.open-- {
			<-in.ended
		}
	}()
	for {
		e.database.await(ctx, e.pool)
		in.look(ctx)
		in.ease(ctx)
		e.awaitLeave(ctx, k)
		reserved := in.reserve(ctx)
		if reserved == 0 {
			return
		}
		leave := k.permit(in.pressure.allow(in.modest(reserved)), now())
		k.free(reserved - leave.n)
		if leave.n == 0 {
			continue
		}
		cons, err := e.bind(ctx, k)
		if err != nil {
			k.free(leave.n)
			leave.end(now())
			continue
		}
		in.open++
		paused := in.pressure.paused
		go func() { in.ended <- e.pull(ctx, work, k, cons, &leave, paused) }()
	}
}

// modest is how many messages to ask for: where leave is scarce, an intake that nothing comes for holds little of it.
func (in *intake) modest(n int) int {
	if in.idle && in.kind.remote.share != nil {
		return 1
	}
	return n
}

// reserve takes free slots for the next pull: any number if none is open, else as many as are worthwhile. 0 means
// that ctx ended.
func (in *intake) reserve(ctx context.Context) (n int) {
	for ctx.Err() == nil {
		n += in.kind.takeFree()
		if n > 0 && in.open == 0 || n > cap(in.kind.slots)/worthwhile && in.open < pulls {
			return n
		}
		select {
		case <-ctx.Done():
		case r := <-in.ended:
			in.closed(r)
		case in.kind.slots <- struct{}{}:
			n++
		}
	}
	in.kind.free(n)
	return 0
}

// takeFree takes all slots that are free now.
func (k *kind) takeFree() (n int) {
	for ; ; n++ {
		select {
		case k.slots <- struct{}{}:
		default:
			return n
		}
	}
}

func (k *kind) free(n int) {
	for range n {
		<-k.slots
	}
}

// pull asks for as many messages as it has leave for, and begins each as it comes. Slots that no message came for are
// freed. Whether messages had come before is counted only where that is asked for.
func (e *Engine) pull(ctx, work context.Context, k *kind, cons jetstream.Consumer, leave *permit, count bool) (r pulled) {
	defer func() { k.free(leave.n); leave.end(now()) }()
	r.nothing = true
	batch, err := cons.Fetch(leave.n, jetstream.FetchMaxWait(leave.pullWait()))
	if err != nil {
		e.unbind(ctx, k, err)
		return r
	}
	for msg := range batch.Messages() {
		r.nothing = false
		d := e.newDelivery(k)
		d.msg, d.born, d.permit = msg, born(cons), leave.one()
		d.keepUntil(now())
		if count {
			r.note(msg)
		}
		e.deliveries.Add(1)
		k.live.Add(1)
		e.do(func() {
			defer func() { k.free(1); d.permit.end(now()) }()
			defer d.handlers.Wait() // a handler that ignores its context keeps its slot
			defer e.deliveries.Done()
			defer k.live.Add(-1)
			defer func() { d.permit.endTry(now()) }()
			switch {
			case ctx.Err() != nil:
				d.handBack(0)
			case d.unwanted():
				d.handBack(k.policy.delay(waitShort, counts{jitter: rand.Float64()}))
			default:
				d.handle(work)
			}
		})
	}
	if err := batch.Error(); err != nil {
		e.unbind(ctx, k, err)
	}
	return r
}

// handBack returns a message that arrived while the process drains, or when its kind takes none any more: nothing was
// done for it, so it costs nothing.
func (d *delivery) handBack(delay time.Duration) {
	if err := d.nak(delay); err != nil {
		d.log.Info("message not handed back; it comes again after its AckWait", "error", err)
	}
}

// unbind notes that a pull failed. A consumer that is gone is looked for, and made again, at the next pull.
func (e *Engine) unbind(ctx context.Context, k *kind, err error) {
	if ctx.Err() != nil || errors.Is(err, jetstream.ErrConsumerLeadershipChanged) {
		return
	}
	k.bound.Store(false)
	e.log.WarnContext(ctx, "pull failed", "kind", k.name, "error", err)
}
