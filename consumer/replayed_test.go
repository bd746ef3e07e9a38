package consumer

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// replays is a handler that sees by a mark of the provider's that an error is a stored one.
func replays(p *payProvider, k *Kind[payJob, paid]) {
	k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		out, err := p.perform(ctx, a)
		if err != nil {
			err = Replayed(err)
		}
		return out, err
	}
}

// keeps is a handler that keeps each answer with its status, and knows of no marks.
func keeps(p *payProvider, k *Kind[payJob, paid]) {
	k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		out, code, err := p.do(ctx, http.MethodPost, "", a.ProviderKey)
		a.KeepAnswer(code, nil)
		switch {
		case code == http.StatusPaymentRequired, code == http.StatusBadRequest:
			return out, Refused(errors.New("declined"))
		case err == nil && code >= 300:
			err = errors.New("no good")
		}
		return out, err
	}
}

// stores is a provider that stores answers with these statuses, and shows late what it did.
func stores(statuses ...int) func(*payProvider, *Kind[payJob, paid]) {
	return func(_ *payProvider, k *Kind[payJob, paid]) {
		k.Provider.Stored, k.Provider.AbsentAfter, k.Provider.KeyLifetime = statuses, longAbsent, 1000*time.Hour
	}
}

// always gives every POST the same answer.
func always(h http.HandlerFunc) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, _ *Kind[payJob, paid]) { p.then(h, h, h, h, h, h, h, h) }
}

// A stored error says nothing about the effect, and no resend under the key brings anything else: the provider is asked
// once all must show, and then a person is.
func TestReplayedError(t *testing.T) {
	t.Parallel()
	settled := with("last_sent_by", hoursAgo(60), "first_sent_at", hoursAgo(60))
	const (
		askedFirst = `
			unknown attempt 1, failures 1, unsure, class replayed_error, wait settled
			W=1 E=0 asks=0
			nak kept
			unknown: no outcome is known; the provider stores this error under the key`
		stopped = `
			needs_review (replayed_error) attempt 2, unsure, class replayed_error
			W=1 E=0 asks=1
			term
			started: the provider does not know it; sent again under the same key
			needs_review: the provider answers every resend with the same stored error, and no look-up knows the effect`
	)
	newBench(t).play([]scenario{
		{name: "at the first send", set: all(replays, stores(), answers(status(500))), want: askedFirst},
		{name: "absent, too early to believe", row: oldRow, set: all(replays, stores(), answers(status(500))), want: `
			unknown attempt 2, failures 1, unsure, class replayed_error, wait settled
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key
			unknown: no outcome is known; the provider stores this error under the key`},
		{name: "absent for sure", row: settled, set: all(replays, stores(), answers(status(500))), want: stopped},
		{name: "known by the profile, first send", set: all(keeps, stores(500), answers(status(500))), want: `
			unknown attempt 1, failures 1, unsure, class unknown, wait settled
			W=1 E=0 asks=0
			nak kept
			unknown: no outcome is known; the provider stores this error under the key`},
		{name: "known by the profile, absent for sure", row: settled, set: all(keeps, stores(500), answers(status(500))), want: `
			needs_review (replayed_error) attempt 2, unsure, class unknown
			W=1 E=0 asks=1
			term
			started: the provider does not know it; sent again under the same key
			needs_review: the provider answers every resend with the same stored error, and no look-up knows the effect`},
		{name: "a status that is not stored", row: settled, set: all(keeps, stores(500), answers(status(502))), want: `
			unknown attempt 2, failures 1, unsure, class unknown, wait backoff
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key
			unknown: no outcome is known`},
		{name: "nobody to ask", set: all(replays, noLookup, answers(status(500))), want: `
			needs_review (replayed_error) attempt 1, unsure, class replayed_error
			W=1 E=0 asks=0
			term
			needs_review: the provider answers every resend with the same stored error, and no look-up knows the effect`},
		{name: "a provider without keys stores nothing", set: all(replays, unkeyed(true), answers(status(500))), want: askedFirst},
		{name: "nothing sent", set: all(stores(), performs(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
			return paid{}, Replayed(errors.New("from a cache of the handler's own"))
		})), want: `
			unknown attempt 1, failures 1, unsure, class replayed_error, wait settled
			W=0 E=0 asks=0
			nak kept
			unknown: no outcome is known; the provider stores this error under the key`},
	})
}

// A refusal that the provider does not store, or that is not the provider's, is only its own attempt's.
func TestRefusalByProfile(t *testing.T) {
	t.Parallel()
	const (
		final = `
			failed attempt 2, unsure, class refused, {"id":""}
			W=1 E=0 asks=1
			booked declined by perform
			ack
			started: the provider does not know it; sent again under the same key`
		open = `
			unknown attempt 2, failures 1, unsure, class refused, wait backoff
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key
			unknown: refused, but an earlier attempt may have been applied`
		unsent = `
			unknown attempt 2, failures 1, unsure, class refused, wait backoff
			W=0 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key
			unknown: refused, but an earlier attempt may have been applied`
	)
	newBench(t).play([]scenario{
		{name: "402, by default", row: oldRow, set: all(keeps, answers(status(402))), want: final},
		{name: "400, by default", row: oldRow, set: all(keeps, answers(status(400))), want: open},
		{name: "400, said to be stored", row: oldRow, set: all(keeps, stores(400, 402), answers(status(400))), want: final},
		{name: "402, said not to be stored", row: oldRow, set: all(keeps, stores(500), answers(status(402))), want: open},
		{name: "by the handler itself, unsent", row: oldRow, set: performs(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
			return paid{}, Refused(errors.New("no longer wanted"))
		}), want: unsent},
		{name: "by Check", row: oldRow, set: func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Check = func(context.Context, DB, payJob) (paid, bool, error) {
				return paid{}, false, Refused(errors.New("no longer wanted"))
			}
		}, want: `
			unknown attempt 2, failures 1, unsure, class refused, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: refused, but an earlier attempt may have been applied`},
		{name: "400, nothing sent before", set: all(keeps, answers(status(400))), want: `
			failed attempt 1, class refused, {"id":""}
			W=1 E=0 asks=0
			booked declined by perform
			ack`},
	})
}

// An earlier request with the key is still at work: that is no failure.
func TestInProgress(t *testing.T) {
	t.Parallel()
	busy := performs(func(_ context.Context, _ *Attempt[payJob], pay func() (paid, error)) (paid, error) {
		out, err := pay()
		if err != nil {
			err = InProgress(err)
		}
		return out, err
	})
	newBench(t).play([]scenario{
		{name: "first send", set: all(busy, answers(status(500))), want: `
			unknown attempt 1, unsure, class in_progress, wait backoff
			W=1 E=0 asks=0
			nak kept
			unknown: the provider is still at work on an earlier request`},
		{name: "resend", row: oldRow, set: all(busy, answers(status(500))), want: `
			unknown attempt 2, unsure, class in_progress, wait backoff
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key
			unknown: the provider is still at work on an earlier request`},
		{name: "no keys: not before absent may count", set: all(busy, unkeyed(true), answers(status(500))), want: `
			unknown attempt 1, unsure, class in_progress, wait settled
			W=1 E=0 asks=0
			nak kept
			unknown: the provider is still at work on an earlier request`},
		{name: "until it has done it", set: all(quick, busy, func(_ *payProvider, k *Kind[payJob, paid]) { k.Policy.MaxFailures = 1 },
			answers(status(500), status(500), status(500))), want: `
			finished attempt 4, unsure, id pay_1, class in_progress, {"id":"pay_1"}
			W=4 E=1 asks=3
			booked pay_1 by perform
			nak nak nak ack
			unknown: the provider is still at work on an earlier request
			started: the provider does not know it; sent again under the same key
			unknown: the provider is still at work on an earlier request
			started: the provider does not know it; sent again under the same key
			unknown: the provider is still at work on an earlier request
			started: the provider does not know it; sent again under the same key`},
	})
}

// A stored error for ever ends with a person after as few requests as it takes to be sure, and with the effect
// wherever the provider finds it after all.
func TestReplayedErrorStories(t *testing.T) {
	t.Parallel()
	soon := func(p *payProvider, k *Kind[payJob, paid]) {
		quick(p, k)
		k.Provider.AbsentAfter = 300 * time.Millisecond
	}
	newBench(t).play([]scenario{
		{name: "for ever", set: all(replays, soon, always(status(500))), want: `
			needs_review (replayed_error) attempt 2, failures 1, unsure, class replayed_error
			W=2 E=0 asks=1
			nak term
			unknown: no outcome is known; the provider stores this error under the key
			started: the provider does not know it; sent again under the same key
			needs_review: the provider answers every resend with the same stored error, and no look-up knows the effect`},
		{name: "the effect is there", set: all(replays, soon, effectThen(status(500))), want: `
			finished attempt 2, failures 1, unsure, id pay_1, class replayed_error, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by look-up
			nak ack
			unknown: no outcome is known; the provider stores this error under the key
			finished: the provider was asked: it happened (pay_1)`},
		{name: "marked from the second time on", set: all(soon, func(p *payProvider, k *Kind[payJob, paid]) {
			k.Provider.AbsentAfter = 5 * time.Second // the first look-up comes sooner, also on a busy machine
			usual := k.Perform
			k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
				out, err := usual(ctx, a)
				if a.Number > 1 && err != nil {
					err = Replayed(err)
				}
				return out, err
			}
		}, always(status(500))), want: `
			needs_review (replayed_error) attempt 3, failures 2, unsure, class replayed_error
			W=3 E=0 asks=2
			nak nak term
			unknown: no outcome is known
			started: the provider does not know it; sent again under the same key
			unknown: no outcome is known; the provider stores this error under the key
			started: the provider does not know it; sent again under the same key
			needs_review: the provider answers every resend with the same stored error, and no look-up knows the effect`},
	})
}

// A person's retry sends once more and no more often; once the provider has mended the key, that brings the effect.
func TestRetryOfAStoredError(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) {
		replays(b.pay, &b.kind)
		b.kind.Provider.AbsentAfter = time.Nanosecond // every reading is settled
	})
	d.pay.then(status(500), status(500), status(500))
	d.run()
	d.publish(plainJob)
	for w := 2; w <= 3; w++ {
		parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
		d.awaitSettled()
		if got, e, _ := d.pay.counts(); got != w || e != 0 || parked.Cause != idemstore.CauseReplayedError {
			t.Fatalf("W=%d E=%d, parked because of %q; want W=%d", got, e, parked.Cause, w)
		}
		acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked before anything is sent")
		d.publish(plainJob)
	}
	d.awaitStatus("pay_1", idemstore.Finished)
	if w, e, _ := d.pay.counts(); w != 4 || e != 1 {
		t.Errorf("W=%d E=%d", w, e)
	}
}
