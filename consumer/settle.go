package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sethvargo/go-retry"
)

// This file is the only place that speaks to the broker about a delivery.
//
//	ack   only after a commit of finished or failed    safe at any time: the row decides
//	term  only after a commit of needs_review, or of a refusal    safe at any time
//	nak, in-progress    only while the delivery is ours by our own clock: a late one would hit the next holder
//	nothing at all      once the consumer was made anew: the sequence may be another job's
//
// JetStream does not compare who acks: a late ack removes the message under the hands of the next holder. So an
// attempt that has lost its task says nothing at all.

// ackTimeout bounds one confirmed ack; ackTries bounds the resends. A lost ack costs one replay, nothing else.
const (
	ackTimeout = 5 * time.Second
	ackTries   = 3
)

// termReason tells our terms from those of others, in what the server says about them.
const termReason = "settle: committed"

// settlement is how a delivery ends.
type settlement struct {
	verb  verb
	delay time.Duration
	reply *reply // to whoever waits for the outcome, once the broker is told
}

// settle tells the broker. Errors are logged: the message comes again and is answered from the row.
func (d *delivery) settle(ctx context.Context, s settlement) {
	if s.verb == silent || d.msg == nil {
		return
	}
	if err := d.sameConsumer(ctx, s.verb); err != nil {
		d.log.InfoContext(ctx, "the broker is not told", "verb", s.verb.String(), "error", err)
		return
	}
	ctx, span := d.engine.startSettle(ctx, d, s.verb)
	var err error
	defer func() { endSpan(span, err) }()
	switch s.verb {
	case ack:
		began := now()
		err = d.confirmedAck(ctx)
		d.kind.meters.ack.since(began)
	case term:
		err = d.msg.TermWithReason(termReason)
	case nak:
		err = d.nak(s.delay)
	case silent:
	}
	if err != nil {
		d.log.InfoContext(ctx, "broker not told; the message will come again", "verb", s.verb.String(), "error", err)
		return
	}
	if s.verb != nak {
		d.kind.meters.through.since(d.meta.Timestamp)
		d.reply(ctx, s.reply)
	}
}

// confirmedAck waits for the server's answer and asks again if it does not come.
func (d *delivery) confirmedAck(ctx context.Context) error {
	if d.ackOnce(ctx) == nil {
		return nil
	}
	b := retry.WithMaxRetries(ackTries-2, retry.WithFullJitter(retry.NewExponential(50*time.Millisecond)))
	return retry.Do(ctx, b, func(ctx context.Context) error {
		if err := d.sameConsumer(ctx, ack); err != nil { // meanwhile the broker may have lost its stream
			return err
		}
		return retry.RetryableError(d.ackOnce(ctx))
	})
}

func (d *delivery) ackOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	err := d.msg.DoubleAck(ctx)
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return nil
	}
	return err
}

var errNotOurs = errors.New("delivery is no longer ours by our own clock")

func (d *delivery) nak(delay time.Duration) error {
	if !d.ours() {
		return errNotOurs
	}
	return d.msg.NakWithDelay(max(delay, time.Millisecond))
}

// inProgress asks the broker to restart its clock for this delivery. It is sent by the heartbeat, for tasks still held. One
// that is not ours any more says nothing, and was told so by an earlier beat.
func (d *delivery) inProgress() (sent bool, err error) {
	if d.msg == nil || !d.stillOurs() {
		return false, nil
	}
	if !d.engine.connected() {
		return false, nats.ErrDisconnected
	}
	err = d.msg.InProgress()
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return false, nil // settled a moment ago
	}
	return err == nil, err
}

// answered waits until the broker has read all that was sent before.
func (e *Engine) answered(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return e.js.Conn().FlushWithContext(ctx)
}

// A message that the broker gave up on has nobody who waits for an ack. An ack and a term remove it from the stream; until
// then it stays where it is, so there is nothing to hand back and no clock to keep.

// DoubleAck removes the message.
func (m *givenUpMessage) DoubleAck(ctx context.Context) error { return m.remove(ctx) }

// TermWithReason removes the message.
func (m *givenUpMessage) TermWithReason(string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ackTimeout)
	defer cancel()
	return m.remove(ctx)
}

// Ack is DoubleAck.
func (m *givenUpMessage) Ack() error { return m.TermWithReason("") }

// Term is TermWithReason.
func (m *givenUpMessage) Term() error { return m.TermWithReason("") }

// Nak does nothing.
func (m *givenUpMessage) Nak() error { return nil }

// NakWithDelay does nothing.
func (m *givenUpMessage) NakWithDelay(time.Duration) error { return nil }

// InProgress does nothing.
func (m *givenUpMessage) InProgress() error { return nil }

// remove deletes the message from the stream if it is still this one: in a stream that was made anew another job may have
// its sequence.
func (m *givenUpMessage) remove(ctx context.Context) error {
	there, err := m.stream.GetMsg(ctx, m.raw.Sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return err
	case there.Subject != m.raw.Subject || !there.Time.Equal(m.raw.Time):
		return nil
	}
	return m.stream.DeleteMsg(ctx, m.raw.Sequence)
}

// settle tells the broker about an event that a bridge has taken: an ack once its job is in JOBS or it is kept as a refusal,
// and otherwise a nak. Passing it on twice is harmless, so a late nak is, too.
func (p transit) settle(done bool) error {
	if !done {
		return p.msg.NakWithDelay(bridgeAgain)
	}
	return p.msg.Ack()
}

// outlived reports whether the consumer of this delivery is gone and another has its name. In a stream that was made
// anew another job has the same sequence, and the server would take an ack of this delivery for one of that.
func (d *delivery) outlived() bool { return d.born != d.kind.identity.born.Load() }

var errOutlived = errors.New("consumer was made anew")

// sameConsumer refuses what outlived does, and for what removes a message it has the broker's word for it. Without that word
// the broker is told nothing: the message comes again, and the row answers.
func (d *delivery) sameConsumer(ctx context.Context, v verb) error {
	if v != nak {
		if err := d.engine.identify(ctx, d.kind); err != nil {
			return err
		}
	}
	if d.outlived() {
		return errOutlived
	}
	return nil
}

// ackMargin is how early a delivery stops counting as ours: the broker's clock started before we saw the message.
func ackMargin(ackWait time.Duration) time.Duration { return ackWait / 10 }

// keepUntil counts the delivery as ours for one AckWait from start, less the margin.
func (d *delivery) keepUntil(start time.Time) {
	end := start.Add(d.kind.ackWaitNow() - ackMargin(d.kind.ackWaitNow()))
	d.oursUntil.Store(&end)
}

// ours reports whether a nak would be about this delivery and no later one: by our own clock, and while connected, for
// what is written to a broken connection is sent after the reconnect.
func (d *delivery) ours() bool { return d.stillOurs() && d.engine.connected() }

// stillOurs reports whether the broker counts this delivery as ours, by our own clock.
func (d *delivery) stillOurs() bool { return !d.outlived() && now().Before(*d.oursUntil.Load()) }

func (e *Engine) connected() bool { return e.js.Conn().Status() == nats.CONNECTED }

// String names a verb in spans and logs.
func (v verb) String() string {
	switch v {
	case ack:
		return "ack"
	case nak:
		return "nak"
	case term:
		return "term"
	case silent:
	}
	return "silent"
}
