package consumer

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// looks scripts every look-up.
func looks(h http.HandlerFunc) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, _ *Kind[payJob, paid]) { p.onLookup = h }
}

// told answers with a status and a result.
func told(code int, id string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"id":"` + id + `"}`))
	}
}

// lookup replaces the look-up itself.
func lookup(f func(context.Context, *Attempt[payJob]) (paid, Verdict, error)) func(*payProvider, *Kind[payJob, paid]) {
	return func(_ *payProvider, k *Kind[payJob, paid]) { k.Lookup = f }
}

// noLookup is a kind that cannot ask.
func noLookup(_ *payProvider, k *Kind[payJob, paid]) { k.Lookup = nil }

// with is oldRow with some columns changed.
func with(pairs ...string) map[string]string {
	row := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		row[pairs[i]] = pairs[i+1]
	}
	return row
}

// and is a row with more columns changed.
func and(row map[string]string, pairs ...string) map[string]string {
	row = maps.Clone(row)
	maps.Copy(row, with(pairs...))
	return row
}

var (
	// oldKey is a row whose key the provider may have forgotten, a day later and long settled.
	oldKey = with("first_sent_at", hoursAgo(60), "last_sent_by", hoursAgo(60))
	// expired is the row that a crash leaves behind.
	expired = with("status", `'started'`, "lease_until", hoursAgo(0), "unsure", `false`, "last_sent_by", `null`)
)

// What the verdict alone decides, whatever the provider keeps.
func TestAskVerdicts(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "found", row: oldRow, set: looks(told(200, "pay_7")), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			ack
			finished: the provider was asked: it happened (pay_7)`},
		{name: "found refused", row: oldRow, set: looks(told(402, "pay_7")), want: `
			failed attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked refused by the provider by look-up
			ack
			failed: the provider was asked: it refused (pay_7)`},
		{name: "other content, or two", row: oldRow, set: looks(told(409, "pay_7")), want: `
			needs_review (contradictory) attempt 2, unsure, id pay_7
			W=0 E=0 asks=1
			term
			needs_review: the provider was asked: it has other content, or two effects (pay_7)`},
		{name: "still running", row: oldRow, set: looks(status(202)), want: `
			unknown attempt 2, unsure, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider was asked: still under way`},
		{name: "cannot tell", row: oldRow, set: looks(status(500)), want: `
			unknown attempt 2, unsure, class unknown, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider was asked and cannot tell`},
		{name: "cannot tell, with a wish", row: oldRow, set: lookup(func(context.Context, *Attempt[payJob]) (paid, Verdict, error) {
			return paid{}, CannotTell, UnknownAfter(askedWait, errors.New("503"))
		}), want: `
			unknown attempt 2, unsure, class unknown, wait asked
			W=0 E=0 asks=0
			nak kept
			unknown: the provider was asked and cannot tell`},
		{name: "an error beside a verdict", row: oldRow, set: lookup(func(context.Context, *Attempt[payJob]) (paid, Verdict, error) {
			return paid{ID: "pay_7"}, Absent, errors.New("cut")
		}), want: `
			unknown attempt 2, unsure, id pay_7, class unknown, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: the provider was asked and cannot tell (pay_7)`},
		{name: "panic", row: oldRow, set: lookup(func(context.Context, *Attempt[payJob]) (paid, Verdict, error) { panic("boom") }), want: `
			unknown attempt 2, unsure, class panic, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: the provider was asked and cannot tell`},
		{name: "a verdict that does not exist", row: oldRow, set: lookup(func(context.Context, *Attempt[payJob]) (paid, Verdict, error) {
			return paid{}, Contradictory + 1, nil
		}), want: `
			unknown attempt 2, unsure, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: the provider was asked and cannot tell`},
		{name: "a look-up that sends", row: oldRow, set: lookup(func(_ context.Context, a *Attempt[payJob]) (paid, Verdict, error) {
			return paid{}, Found, a.MaySend()
		}), want: `
			unknown attempt 2, unsure, class unknown, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: the provider was asked and cannot tell`},
		{name: "another verdict clears the first absent", row: and(oldKey, "absent_at", hoursAgo(1)), set: looks(status(202)), want: `
			unknown attempt 2, unsure, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider was asked: still under way`},
	})
}

// "The provider does not know it", where it keeps keys.
func TestAskAbsentKeyed(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "young", row: oldRow, want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: the provider does not know it; sent again under the same key`},
		{name: "D-37: a crash in the middle of a send", row: and(expired, "sending", `true`), want: `
			finished attempt 2, failures 1, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: taken over: the lease of attempt 1 ran out
			started: the provider does not know it; sent again under the same key`},
		{name: "a crash while only asking, nothing sent before", row: expired, want: `
			finished attempt 2, failures 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack
			started: taken over: the lease of attempt 1 ran out`},
		{name: "a crash while only asking, unsure", row: and(expired, "unsure", `true`, "last_sent_by", `clock_timestamp()`), want: `
			finished attempt 2, failures 1, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: taken over: the lease of attempt 1 ran out
			started: the provider does not know it; sent again under the same key`},
		{name: "D-36: made by hand, nobody knows what was sent", row: with("first_sent_at", `null`, "last_sent_by", `null`), want: `
			unknown attempt 2, unsure, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`},
		{name: "D-40: forgotten key, not settled", row: with("first_sent_at", hoursAgo(60)), set: func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Provider.AbsentAfter = longAbsent
		}, want: `
			unknown attempt 2, unsure, wait settled
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`},
		{name: "D-40: forgotten key, first reading", row: oldKey, want: `
			unknown attempt 2, unsure, absent once, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it; asked once more before that counts`},
		{name: "D-40: forgotten key, second reading", row: and(oldKey, "absent_at", hoursAgo(1)), want: `
			needs_review (absent) attempt 2, unsure, absent once
			W=0 E=0 asks=1
			term
			needs_review: the provider does not know it; resend or resolve?`},
		{name: "D-40: forgotten key, and a person allows one resend", row: and(oldKey, "absent_at", hoursAgo(1), "resend_once", "true"), want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: the provider does not know it, twice and settled; sent again as permitted`},
		{name: "ResendUnkeyed is not for providers with keys", row: and(oldKey, "absent_at", hoursAgo(1)), set: func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Provider.ResendUnkeyed = true
		}, want: `
			needs_review (absent) attempt 2, unsure, absent once
			W=0 E=0 asks=1
			term
			needs_review: the provider does not know it; resend or resolve?`},
		{name: "another provider than the first send's", row: with("provider", `'elsewhere'`, "last_sent_by", hoursAgo(60)), want: `
			unknown attempt 2, unsure, absent once, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it; asked once more before that counts`},
		{name: "a key that lives shorter than an attempt", row: oldRow, set: func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Provider.KeyLifetime, k.Provider.AbsentAfter = k.Policy.Deadline+5*time.Second, longAbsent
		}, want: `
			unknown attempt 2, unsure, wait settled
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`},
	})
}

// D-29: "the provider does not know it", where it keeps no keys.
func TestAskAbsentUnkeyed(t *testing.T) {
	t.Parallel()
	const settledAgo = 60
	newBench(t).play([]scenario{
		{name: "not settled", row: oldRow, set: unkeyed(true), want: `
			unknown attempt 2, unsure, wait settled
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`},
		{name: "not settled, although absent once", row: with("first_sent_at", hoursAgo(60), "absent_at", hoursAgo(1)), set: unkeyed(true), want: `
			unknown attempt 2, unsure, absent once, wait settled
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`},
		{name: "first reading", row: with("first_sent_at", hoursAgo(settledAgo), "last_sent_by", hoursAgo(settledAgo)), set: unkeyed(true), want: `
			unknown attempt 2, unsure, absent once, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it; asked once more before that counts`},
		{name: "second reading, resend permitted", row: absentOnce, set: unkeyed(true), want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: the provider does not know it, twice and settled; sent again as permitted`},
		{name: "second reading, resend permitted, and it was sent to another account", row: and(absentOnce, "provider", `'test, account 2'`), set: unkeyed(true), want: `
			needs_review (absent) attempt 2, unsure, absent once
			W=0 E=0 asks=1
			term
			needs_review: it was sent to another provider than the one that is set up now, which does not know it`},
		{name: "second reading, not permitted", row: absentOnce, set: unkeyed(false), want: `
			needs_review (absent) attempt 2, unsure, absent once
			W=0 E=0 asks=1
			term
			needs_review: the provider does not know it; resend or resolve?`},
		{name: "second reading, a person allows one resend", row: and(absentOnce, "resend_once", "true"), set: all(unkeyed(false), answers(noAnswer)), want: `
			unknown attempt 2, failures 1, unsure, class unknown, wait settled
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it, twice and settled; sent again as permitted
			unknown: no outcome is known`},
		{name: "a crash: counted from the end of its lease", row: and(expired, "sending", `true`), set: unkeyed(true), want: `
			unknown attempt 2, failures 1, unsure, wait settled
			W=0 E=0 asks=1
			nak kept
			started: taken over: the lease of attempt 1 ran out
			unknown: the provider does not know it yet; too early to believe`},
	})
}

func TestAskNoLookup(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "young", row: oldRow, set: noLookup, want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack
			started: no look-up; sent again under the same key, which the provider still keeps`},
		{name: "D-40: forgotten key", row: oldKey, set: noLookup, want: `
			needs_review (no_lookup) attempt 2, unsure
			W=0 E=0 asks=0
			term
			needs_review: may have been applied; this kind has no look-up and the key no longer protects a resend`},
		{name: "no keys", row: oldKey, set: all(noLookup, unkeyed(true)), want: `
			needs_review (no_lookup) attempt 2, unsure
			W=0 E=0 asks=0
			term
			needs_review: may have been applied; this kind has no look-up and the key no longer protects a resend`},
		{name: "an id is known", row: with("external_id", `'pay_7'`), set: noLookup, want: `
			needs_review (no_lookup) attempt 2, unsure, id pay_7
			W=0 E=0 asks=0
			term
			needs_review: the provider has an id for it, and this kind has no look-up (pay_7)`},
	})
}

// An id that is known, or that a lost attempt brought, is what is asked about, and nothing is created.
func TestAskKnownID(t *testing.T) {
	t.Parallel()
	const id, evidence = "external_id", "evidence_id"
	askedFor := func(p *payProvider, k *Kind[payJob, paid]) {
		p.onLookup = func(w http.ResponseWriter, _ *http.Request) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !slices.Equal(p.asked, []string{"pay_7"}) {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte(`{"id":"pay_7"}`))
		}
	}
	newBench(t).play([]scenario{
		{name: "D-33: accepted before, ready now", row: with(id, `'pay_7'`), set: askedFor, want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			ack
			finished: the provider was asked: it happened (pay_7)`},
		{name: "D-33: accepted before, refused now", row: with(id, `'pay_7'`), set: looks(told(402, "pay_7")), want: `
			failed attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked refused by the provider by look-up
			ack
			failed: the provider was asked: it refused (pay_7)`},
		{name: "not known to the provider", row: with(id, `'pay_7'`), want: `
			needs_review (vanished) attempt 2, unsure, id pay_7
			W=0 E=0 asks=1
			term
			needs_review: the provider does not know an effect whose id it once gave (pay_7)`},
		{name: "found under another id", row: with(id, `'pay_7'`), set: looks(told(200, "pay_8")), want: `
			needs_review (two_effects) attempt 2, unsure, id pay_7, evidence pay_8, class two_effects
			W=0 E=0 asks=1
			term
			needs_review: two effects? the provider answered with another id than the one on the row (pay_7)`},
		{name: "refused under another id", row: with(id, `'pay_7'`), set: looks(told(402, "pay_8")), want: `
			needs_review (two_effects) attempt 2, unsure, id pay_7, evidence pay_8, class two_effects
			W=0 E=0 asks=1
			term
			needs_review: two effects? the provider answered with another id than the one on the row (pay_7)`},
		{name: "D-38: late proof", row: with(evidence, `'pay_7'`), set: askedFor, want: `
			finished attempt 2, unsure, id pay_7, evidence pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			ack
			finished: the provider was asked: it happened (pay_7)`},
		{name: "D-38: late proof, not known to the provider", row: with(evidence, `'pay_7'`), want: `
			needs_review (vanished) attempt 2, unsure, evidence pay_7
			W=0 E=0 asks=1
			term
			needs_review: the provider does not know an effect whose id it once gave`},
		{name: "D-38: late proof, found under another id", row: with(evidence, `'pay_7'`), set: looks(told(200, "pay_8")), want: `
			needs_review (contradictory) attempt 2, unsure, id pay_8, evidence pay_7
			W=0 E=0 asks=1
			term
			needs_review: the provider was asked: it has other content, or two effects (pay_8)`},
	})
}

// The row decides what the job is and which key it has, not the message at hand.
func TestAskStoredJob(t *testing.T) {
	t.Parallel()
	sees := lookup(func(_ context.Context, a *Attempt[payJob]) (paid, Verdict, error) {
		return paid{ID: a.Job.Note + " under " + a.ProviderKey}, Found, nil
	})
	newBench(t).play([]scenario{
		{name: "payload and key of the row", row: with("payload", `{"order":"1","note":"first"}`, "provider_key", `'first-key'`), set: sees, want: `
			finished attempt 2, unsure, id first under first-key, {"id":"first under first-key"}
			W=0 E=0 asks=0
			booked first under first-key by look-up
			ack
			finished: the provider was asked: it happened (first under first-key)`},
		{name: "payload that cannot be decoded", row: with("payload", `{"order":`), want: `
			needs_review (conflict) attempt 2, unsure, class conflict
			W=0 E=0 asks=0
			term
			needs_review: contradictory data or a missing record`},
	})
}
