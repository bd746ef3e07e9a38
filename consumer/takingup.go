package consumer

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// takingUp runs messages that the broker gave up on, on slots of their kind. The intake holds all slots that are free in an
// open pull and gives them back one by one; so a hand that has a slot keeps it until nothing is left to do.
type takingUp struct {
	*Engine
	ctx, work context.Context //nolint:containedctx // of one look
	kind      *kind
	stream    jetstream.Stream
	hands     int
	messages  chan *jetstream.RawStreamMsg // for a hand that has none
	over      sync.WaitGroup               // messages
}

func (e *Engine) takingUp(ctx, work context.Context, k *kind, stream jetstream.Stream) *takingUp {
	return &takingUp{Engine: e, ctx: ctx, work: work, kind: k, stream: stream, messages: make(chan *jetstream.RawStreamMsg)}
}

// begin hands a message over, and waits until there is a hand for it. It returns false if ctx ended first. At most half of
// the slots are for such messages.
func (t *takingUp) begin(m *jetstream.RawStreamMsg) bool {
	t.over.Add(1)
	if t.hands < max(cap(t.kind.slots)/2, 1) {
		t.hands++
		go t.hand(m)
		return true
	}
	select {
	case t.messages <- m:
		return true
	case <-t.ctx.Done():
		t.over.Done()
		return false
	}
}

// end waits for the messages that were handed over.
func (t *takingUp) end() {
	close(t.messages)
	t.over.Wait()
}

// hand runs one message after the other. A slot that is the only one goes back after each: there, they take turns with those
// that are delivered. When ctx ends it leaves those that have not begun where they are. A handler that ignores its context
// keeps the hand and its slot, but not the look.
func (t *takingUp) hand(m *jetstream.RawStreamMsg) {
	held := false
	for ok := true; ok; m, ok = <-t.messages {
		if !held {
			select {
			case t.kind.slots <- struct{}{}:
				held = true
			case <-t.ctx.Done():
			}
		}
		t.run(m)
		if held && cap(t.kind.slots) == 1 {
			t.kind.free(1)
			held = false
		}
	}
	if held {
		t.kind.free(1)
	}
}

func (t *takingUp) run(m *jetstream.RawStreamMsg) {
	d := t.newDelivery(t.kind)
	d.msg, d.born = &givenUpMessage{stream: t.stream, raw: m}, t.kind.identity.born.Load()
	d.keepUntil(now())
	defer func() { d.permit.end(now()) }()
	defer d.handlers.Wait()
	defer t.over.Done()
	if t.ctx.Err() == nil {
		d.handle(t.work)
	}
}

// givenUpMessage is a message that the broker delivers to nobody, read from the stream by its sequence. How it is settled is
// in settle.go.
type givenUpMessage struct {
	stream jetstream.Stream
	raw    *jetstream.RawStreamMsg
}

// Metadata makes it a redelivery: it was delivered before, or a local job might take its claim for the first.
func (m *givenUpMessage) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: m.raw.Sequence}, NumDelivered: 2, Timestamp: m.raw.Time,
		Stream: jobStream}, nil
}

func (m *givenUpMessage) Data() []byte         { return m.raw.Data }
func (m *givenUpMessage) Headers() nats.Header { return m.raw.Header }
func (m *givenUpMessage) Subject() string      { return m.raw.Subject }
func (m *givenUpMessage) Reply() string        { return "" }
