package consumer

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestProofAge(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for what, c := range map[string]struct {
		way   comesAgain
		proof time.Duration
		ok    bool
		says  []string
	}{
		"just enough": {comesAgain{nak: time.Hour, horizon: 72 * time.Hour}, 73 * time.Hour, true, nil},
		"just too short": {comesAgain{nak: time.Hour, horizon: 72 * time.Hour}, 73*time.Hour - 1, false,
			[]string{"age of 72h59m59.999999999s", "for 73h0m0s", "0s in stream JOBS (age of its oldest message)", "1h0m0s for the longest nak", "72h0m0s for replays", "for ever (0)"}},
		"the oldest message counts": {comesAgain{oldest: 5*day + time.Millisecond, nak: time.Hour, horizon: day}, 6 * day, false,
			[]string{"for 145h0m1s", "120h0m1s in stream JOBS (age of its oldest message)"}},
		"max age counts, not what is there now": {comesAgain{maxAge: 10 * day, oldest: time.Minute, horizon: day}, 10 * day, false,
			[]string{"240h0m0s in stream JOBS (its max age)"}},
		"max age ends the wait of a message":  {comesAgain{maxAge: day, oldest: 9 * day, horizon: day}, 2 * day, true, nil},
		"the longest there are":               {comesAgain{maxAge: math.MaxInt64, nak: math.MaxInt64, horizon: math.MaxInt64}, math.MaxInt64 - 1, false, nil},
		"as long as the longest there can be": {comesAgain{maxAge: math.MaxInt64, nak: math.MaxInt64, horizon: math.MaxInt64}, math.MaxInt64, true, nil},
	} {
		c.way.stream = jobStream
		err := c.way.allows(c.proof)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrProofAge) {
			t.Errorf("%s: %v", what, err)
		}
		if !c.ok {
			says(t, what, err, c.says...)
		}
	}
}

// A7: the engine does not start where proof would go before the last message that needs it.
func TestRunRefusesAShortProofAge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.ProofRetention = 72 * time.Hour // the horizon alone, without the longest nak
	err := b.engine(b.kind).Run(t.Context())
	if !errors.Is(err, ErrProofAge) {
		t.Errorf("run: %v", err)
	}
	says(t, "run", err, "proof age", "72h0m0s", "1h0m0s for the longest nak")

	b.conf.ProofRetention = 73 * time.Hour
	e, stop := b.serve(b.kind)
	if !eventually(t, 10*time.Second, func() bool { return e.Ready() == nil }) {
		t.Errorf("does not start with enough: %v", e.Ready())
	}
	stop()
	k := b.kind // what one kind delays for longer counts
	k.Policy.MisconfiguredWait = 2 * time.Hour
	says(t, "run", b.engine(k).Run(t.Context()), "2h0m0s for the longest nak")
}

// What the stream can still deliver counts: its max age, or else how old its oldest message is.
func TestProofAgeReadsTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.ProofRetention, b.conf.ReplayHorizon, b.conf.Policy.RetryAfterMax = 2*time.Second, time.Second, time.Second
	e := b.engine(b.kind)
	if err := e.checkProofAge(t.Context()); err == nil {
		t.Error("the absent-after time of the kind does not count")
	}
	b.kind.Provider.AbsentAfter = time.Millisecond
	e = b.engine(b.kind)
	if err := e.checkProofAge(t.Context()); err != nil {
		t.Errorf("an empty stream: %v", err)
	}
	b.publish(plainJob)
	if !eventually(t, 10*time.Second, func() bool { return errors.Is(e.checkProofAge(t.Context()), ErrProofAge) }) {
		t.Error("the message in the stream does not count")
	}
	config := b.stream().CachedInfo().Config
	config.MaxAge, config.Duplicates = time.Hour, time.Minute
	if _, err := b.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	says(t, "max age", e.checkProofAge(t.Context()), "1h0m0s in stream JOBS (its max age)")
}
