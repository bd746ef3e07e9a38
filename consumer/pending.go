package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A message that was given back with a delay counts as pending at the server, like one that is being worked on. When
// MaxAckPending of them are, the server delivers nothing new and says nothing. So the intake watches their number; a
// provider that is down fills it. At 80 % the intake pauses, and says so.
//
// It must not stop pulling altogether: the server gives a message again only to a pull, so nothing would ever be
// settled, and the number never fall. But it gives what comes again before anything new. A paused intake therefore
// asks for one message; as long as all that come are known ones it asks for twice as many, and when a new one comes it
// rests.
const (
	pauseAt  = 80 // percent of MaxAckPending at which the intake pauses
	resumeAt = 70 // percent below which it goes on
	watchAt  = 40 // percent from which the number is looked at often

	lookOften  = time.Second // also how long a paused intake rests
	lookSeldom = 5 * time.Second

	largestProbe = 1 << 16 // messages; more than there are slots
)

// pressure is what an intake knows of the messages that are pending at the server.
type pressure struct {
	looked         time.Time // when the number was read, or tried to be
	pending, limit int       // as they were then; a limit below 1 is none
	asked          int       // messages asked for since
	paused         bool
	probe          int // messages that the next pull may ask for while paused
}

// due reports whether the number should be read again: once in lookOften at most, however much is going on.
func (p *pressure) due(at time.Time) bool {
	since := at.Sub(p.looked)
	if since < lookOften {
		return false
	}
	return since >= lookSeldom || p.limit > 0 && (p.paused || p.pending+p.asked >= p.limit*watchAt/100)
}

// read takes a new number and reports whether the intake begins or ends to pause with it.
func (p *pressure) read(pending, limit int) (turned bool) {
	was := p.paused
	p.pending, p.limit, p.asked = pending, limit, 0
	switch {
	case limit < 1, pending*100 < limit*resumeAt:
		p.paused = false
	case pending*100 >= limit*pauseAt:
		p.paused = true
	}
	if p.paused && !was {
		p.probe = 1
	}
	return p.paused != was
}

// allow is how many of n messages a pull may ask for.
func (p *pressure) allow(n int) int {
	if p.paused {
		n = min(n, p.probe)
	}
	p.asked += n
	return n
}

// pulled is what a pull brought. The messages are counted only while the intake is paused.
type pulled struct {
	known, fresh int
	nothing      bool
}

// after takes what a pull has brought and reports whether to rest: nothing that the server had given before is due.
// A pull that nothing came for has waited already.
func (p *pressure) after(r pulled) (rest bool) {
	if r.fresh == 0 && r.known > 0 {
		p.probe = min(2*p.probe, largestProbe)
	} else {
		p.probe = 1
	}
	return p.paused && r.fresh > 0
}

// note counts a message.
func (r *pulled) note(msg jetstream.Msg) {
	if meta, err := msg.Metadata(); err == nil && meta.NumDelivered > 1 {
		r.known++
		return
	}
	r.fresh++
}

// look reads the number of pending messages when that is due, and says when the intake begins or ends to pause. A server
// that does not answer leaves things as they are.
func (in *intake) look(ctx context.Context) {
	p := &in.pressure
	if !p.due(now()) {
		return
	}
	asking, cancel := context.WithTimeout(ctx, lookOften)
	defer cancel()
	cons, err := in.js.Consumer(asking, jobStream, consumerName(in.kind.name))
	p.looked = now()
	if err != nil {
		return // a consumer that is gone is for the next pull to find
	}
	if born(cons) != in.kind.identity.born.Load() {
		in.unbind(ctx, in.kind, errReplaced) // while no pull was open: the server tells nobody
		return
	}
	info := cons.CachedInfo()
	if !p.read(info.NumAckPending, info.Config.MaxAckPending) {
		return
	}
	if p.paused {
		in.log.WarnContext(ctx, "intake pauses: the server counts so many messages as pending that it would soon deliver none; "+
			"those that come again are taken", "kind", in.kind.name, "ack_pending", p.pending, "max_ack_pending", p.limit)
		return
	}
	in.log.InfoContext(ctx, "intake goes on", "kind", in.kind.name, "ack_pending", p.pending, "max_ack_pending", p.limit)
}

var errReplaced = errors.New("another consumer has its name")

// ease keeps a paused intake to one pull at a time, and lets it rest where that is called for.
func (in *intake) ease(ctx context.Context) {
	if !in.pressure.paused {
		return
	}
	for in.open > 0 {
		in.closed(<-in.ended)
	}
	if in.resting {
		in.resting = false
		in.rest(ctx, lookOften)
		in.look(ctx)
	}
}

// closed notes the end of a pull.
func (in *intake) closed(r pulled) {
	in.open--
	in.resting, in.idle = in.pressure.after(r), r.nothing
}
