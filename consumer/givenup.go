package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A consumer with MaxDeliver gives a message up after so many deliveries: it stays in the stream and is delivered to
// nobody, and no count shows it. Consumers that the engine makes have none, but an existing one may. So the engine listens
// for the server's word (an advisory, which nobody hears while no worker runs) and also looks by itself. What it finds
// goes the way of every delivery: decode, claim, attempt, in a slot of its kind. The claim is what makes it safe: whoever
// still works on the task keeps it. Instead of an ack the message is removed from the stream, after the commit.
//
// A message that is not settled stays where it is. Recovery goes on with its task, and a later look removes the message.

const (
	// givenUpEvery is how often the engine looks for messages that were given up.
	givenUpEvery = 2 * time.Minute
	// unsureAtOnce is how many messages one look takes up that may be under way as well as given up.
	unsureAtOnce = 256
	// heardAtOnce is how many advisories may wait; the next look finds what more there is.
	heardAtOnce = 256

	advisorySubjects = "$JS.EVENT.ADVISORY.CONSUMER."
	givenUpQueue     = "settle-given-up" // one worker of all hears each advisory
	maxDeliveries    = "MAX_DELIVERIES"
	terminated       = "MSG_TERMINATED"
)

// advisory is what the server says about one message.
type advisory struct {
	Sequence   uint64 `json:"stream_seq"`
	Deliveries uint64 `json:"deliveries"`
	Reason     string `json:"reason"` // of a termination
}

// watchGivenUp takes up what the broker gives up on, of one kind, until ctx ends. Attempts run under work.
func (e *Engine) watchGivenUp(ctx, work context.Context, k *kind) {
	heard := make(chan uint64, heardAtOnce)
	defer e.listen(ctx, k, heard)()
	look := e.after(0)
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case first := <-heard:
			err = e.takeUpHeard(ctx, work, k, waiting(first, heard))
		case <-look:
			err = e.lookForGivenUp(ctx, work, k)
			look = e.after(spread(e.givenUpEvery, rand.Float64()))
		}
		if err != nil && ctx.Err() == nil {
			e.log.InfoContext(ctx, "messages that the broker gave up not read; they are looked for later", "kind", k.name, "error", err)
		}
	}
}

// waiting is a value and all that wait behind it.
func waiting[T any](first T, more <-chan T) (all []T) {
	for all = append(all, first); ; {
		select {
		case v := <-more:
			all = append(all, v)
		default:
			return all
		}
	}
}

// listen passes on the sequences that advisories name. Without permission to listen, looking has to do.
func (e *Engine) listen(ctx context.Context, k *kind, heard chan<- uint64) (stop func()) {
	given, err := e.hear(k, maxDeliveries, func(a advisory) {
		select {
		case heard <- a.Sequence:
		default:
		}
	})
	ended, err2 := e.hear(k, terminated, func(a advisory) {
		if a.Reason != termReason {
			e.lost(ctx, k, a)
		}
	})
	if err := errors.Join(err, err2); err != nil {
		e.log.InfoContext(ctx, "the server's advisories are not heard", "kind", k.name, "error", err)
	}
	return func() { given(); ended() }
}

// hear calls f for the advisories of one sort about a kind's consumer.
func (e *Engine) hear(k *kind, sort string, f func(advisory)) (stop func(), err error) {
	conn := e.js.Conn()
	s, err := conn.QueueSubscribe(advisorySubjects+sort+"."+jobStream+"."+consumerName(k.name), givenUpQueue, func(m *nats.Msg) {
		var a advisory
		if json.Unmarshal(m.Data, &a) == nil && a.Sequence > 0 {
			f(a)
		}
	})
	if err != nil {
		return func() {}, err
	}
	closed := make(chan struct{})
	s.SetClosedHandler(func(string) { close(closed) })
	return func() {
		if s.Unsubscribe() == nil {
			<-closed
		}
	}, nil
}

// lookForGivenUp takes up all messages that are surely given up, and some of those that may be.
func (e *Engine) lookForGivenUp(ctx, work context.Context, k *kind) error {
	if e.database.state() != nil || !k.mayRecover() {
		return nil // nothing could be claimed, or nothing may be done
	}
	stream, err := e.js.Stream(ctx, jobStream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", jobStream, err)
	}
	s, err := standingOf(ctx, stream, consumerName(k.name), subject(k.name))
	if err != nil || s.givenUp() == 0 {
		return err
	}
	if s.info.Config.MaxDeliver > 0 { // without a limit nothing is given up now, and the counts only disagreed in a rush
		e.givenUp(ctx, k, int(s.givenUp()), true)
	}
	t := e.takingUp(ctx, work, k, stream)
	defer t.end()
	found := uint64(0)
	err = s.walk(ctx, stream, 0, s.sureThrough(), func(m *jetstream.RawStreamMsg) bool {
		found++
		return t.begin(m)
	})
	if err != nil || found >= s.givenUp() || s.info.Config.MaxDeliver < 1 {
		return err
	}
	return t.some(s)
}

// some takes up messages of which the server does not say whether they are given up or under way, and goes on where it ended
// the last time, so that none hides the others. The claim leaves alone what somebody works on or what is not due.
func (t *takingUp) some(s standing) error {
	n, after := 0, max(s.sureThrough(), t.kind.unsureAfter)
	t.kind.unsureAfter = 0
	return s.walk(t.ctx, t.stream, after, s.info.Delivered.Stream, func(m *jetstream.RawStreamMsg) bool {
		if n++; n > unsureAtOnce {
			t.kind.unsureAfter = m.Sequence - 1
			return false
		}
		return t.begin(m)
	})
}

// takeUpHeard takes up the messages that advisories named, except those that are gone.
func (e *Engine) takeUpHeard(ctx, work context.Context, k *kind, sequences []uint64) error {
	e.givenUp(ctx, k, len(sequences), false)
	if !k.mayRecover() {
		return nil
	}
	stream, err := e.js.Stream(ctx, jobStream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", jobStream, err)
	}
	t := e.takingUp(ctx, work, k, stream)
	defer t.end()
	for _, sequence := range sequences {
		m, err := stream.GetMsg(ctx, sequence)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // settled by whoever had it
		case err != nil:
			return fmt.Errorf("read message %d of %s: %w", sequence, jobStream, err)
		case m.Subject == subject(k.name):
			t.begin(m)
		}
	}
	return nil
}

// givenUp tells of messages that the broker gave up on, in one line for all: those of which the server told now, or all that
// there are.
func (e *Engine) givenUp(ctx context.Context, k *kind, n int, inAll bool) {
	e.alarm.raise(givenUpAlert(k.name, n, inAll))
	e.log.ErrorContext(ctx, "the broker gave messages up; they are taken up all the same", "kind", k.name, "messages", n)
}

// lost tells of a message that somebody else has terminated: on a work-queue stream it is gone, and nobody can tell what it
// asked for.
func (e *Engine) lost(ctx context.Context, k *kind, a advisory) {
	e.alarm.raise(terminatedAlert(k.name))
	e.log.ErrorContext(ctx, "a message was terminated by somebody who is no worker; it is gone from the stream", "kind", k.name,
		"sequence", a.Sequence, "delivered", a.Deliveries, "reason", a.Reason)
}
