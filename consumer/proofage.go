package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrProofAge: key rows would go while their jobs can still come again, and a job whose row is gone counts as new.
var ErrProofAge = errors.New("proof retention is too short")

// CheckProofAge returns ErrProofAge, with all numbers, if the key rows of the given kinds would go at c.ProofRetention
// although their jobs can still come again. Run makes the same check. It is for whoever deletes the rows, and blocks for
// one round trip.
func CheckProofAge(ctx context.Context, js jetstream.JetStream, c Config, kinds ...Definition) error {
	c = c.withDefaults()
	defs, err := defineAll(c, kinds)
	if err := errors.Join(c.check(), err); err != nil {
		return err
	}
	e := &Engine{config: c, js: js}
	for _, d := range defs {
		e.kinds = append(e.kinds, &kind{definition: d})
	}
	return e.checkProofAge(ctx)
}

// checkProofAge compares the age at which key rows go with the longest way on which a job can come again.
func (e *Engine) checkProofAge(ctx context.Context) error {
	if e.config.ProofRetention == 0 {
		return nil
	}
	s, err := e.js.Stream(ctx, jobStream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", jobStream, err)
	}
	config, state := s.CachedInfo().Config, s.CachedInfo().State
	way := comesAgain{stream: jobStream, maxAge: config.MaxAge, horizon: e.config.ReplayHorizon}
	if state.Msgs > 0 {
		way.oldest = max(now().Sub(state.FirstTime), 0)
	}
	for _, k := range e.kinds {
		way.nak = max(way.nak, k.policy.longestDelay(k.provider))
	}
	if err := way.allows(e.config.ProofRetention); err != nil {
		return &fatalError{err}
	}
	return nil
}

// checkProofAge refuses to make a consumer that would begin with events whose keys may be forgotten: to JOBS they would be new.
func (b *Bridge) checkProofAge(stream jetstream.Stream) error {
	state := stream.CachedInfo().State
	if b.config.ProofRetention == 0 || state.Msgs == 0 {
		return nil
	}
	oldest := state.FirstTime
	if since := b.config.Since; since.After(oldest) {
		oldest = since
	}
	way := comesAgain{stream: b.config.Stream, oldest: max(now().Sub(oldest), 0), nak: b.longest, horizon: b.config.ReplayHorizon}
	if err := way.allows(b.config.ProofRetention); err != nil {
		return &fatalError{fmt.Errorf("bridge: consumer %s of %s is missing, and a new one would begin with old events: %w; or let it begin "+
			"later (Since), without the events that were passed on", b.config.Durable, b.config.Stream, err)}
	}
	return nil
}

// comesAgain is how long after its publish a job can come again: the stream holds its message, a nak delays it, and
// then somebody publishes it once more by hand.
type comesAgain struct {
	stream  string        // that holds it
	maxAge  time.Duration // of the stream; 0: messages stay until they are settled
	oldest  time.Duration // age of the oldest message that it holds
	nak     time.Duration // the longest delay of any kind
	horizon time.Duration // Config.ReplayHorizon
}

// allows returns ErrProofAge, with all numbers, for rows that go before that.
func (w comesAgain) allows(proof time.Duration) error {
	reach, what := w.oldest, "age of its oldest message"
	if w.maxAge > 0 {
		reach, what = w.maxAge, "its max age"
	}
	if needed := sum(reach, w.nak, w.horizon); proof < needed {
		return fmt.Errorf("%w: key rows go at an age of %v, but a job can come again for %v: %v in stream %s (%s), %v for the longest "+
			"nak, %v for replays by hand; keep the rows for at least that long, or for ever (0)",
			ErrProofAge, proof, ceiling(needed), ceiling(reach), w.stream, what, w.nak, w.horizon)
	}
	return nil
}

// ceiling is d in whole seconds, so that what an error asks for is enough.
func ceiling(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Second); whole < d {
		return sum(whole, time.Second)
	}
	return d
}
