package consumer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answers scripts the provider's next POSTs.
func answers(h ...http.HandlerFunc) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, _ *Kind[payJob, paid]) { p.then(h...) }
}

// performs replaces the handler. It gets the usual one to call.
func performs(f func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error)) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, k *Kind[payJob, paid]) {
		k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
			return f(ctx, a, func() (paid, error) { return p.perform(ctx, a) })
		}
	}
}

// commits replaces what is queued beside a final outcome.
func commits(f func(*Writes, Final[payJob, paid]) error) func(*payProvider, *Kind[payJob, paid]) {
	return func(_ *payProvider, k *Kind[payJob, paid]) { k.Commit = f }
}

// all does several of these.
func all(fs ...func(*payProvider, *Kind[payJob, paid])) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, k *Kind[payJob, paid]) {
		for _, f := range fs {
			f(p, k)
		}
	}
}

// unkeyed is a provider that keeps no keys.
func unkeyed(resend bool) func(*payProvider, *Kind[payJob, paid]) {
	return func(_ *payProvider, k *Kind[payJob, paid]) {
		k.Provider.Unkeyed, k.Provider.ResendUnkeyed, k.Provider.AbsentAfter = true, resend, longAbsent
	}
}

// absentOnce is a row at an unkeyed provider that read one settled "absent".
var absentOnce = map[string]string{"first_sent_at": hoursAgo(60), "last_sent_by": hoursAgo(60), "absent_at": hoursAgo(1)}

// nobody listens at the provider's address.
func nobody(p *payProvider, _ *Kind[payJob, paid]) {
	closed := httptest.NewUnstartedServer(nil)
	_ = closed.Listener.Close()
	p.server.Close()
	p.server = closed
	p.server.URL = "http://" + closed.Listener.Addr().String()
}

// wishes is what a handler makes of a Retry-After.
func wishes(f func(time.Duration, error) error) func(*payProvider, *Kind[payJob, paid]) {
	return wishesFor(askedWait, f)
}

func wishesFor(d time.Duration, f func(time.Duration, error) error) func(*payProvider, *Kind[payJob, paid]) {
	return performs(func(_ context.Context, _ *Attempt[payJob], pay func() (paid, error)) (paid, error) {
		out, err := pay()
		return out, f(d, err)
	})
}

// impatient gives up waiting for the answer, as a handler with a short HTTP timeout does.
func impatient(p *payProvider, k *Kind[payJob, paid]) {
	k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		return p.perform(ctx, a)
	}
}

// never answers, until the client gives up.
func never(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// body answers with a body as it is, under a declared length.
func body(length, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", length)
		_, _ = w.Write([]byte(text))
	}
}

// declined answers with a refusal that has an id.
func declined(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusPaymentRequired)
	_, _ = w.Write([]byte(`{"id":"pay_9"}`))
}

// cutChunk closes the connection within a chunk.
func cutChunk(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"id\":\"pay"))
		_ = conn.Close()
	}
}

// effectThen makes the effect happen before each of the answers.
func effectThen(hs ...http.HandlerFunc) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, _ *Kind[payJob, paid]) {
		for _, h := range hs {
			p.then(p.effectThen(h))
		}
	}
}

func TestPerformTable(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "done", want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "a redirect is not followed", set: answers(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently) // a POST would become a GET, which is answered
		}), want: `
			unknown attempt 1, unsure, class misconfigured, wait long
			W=1 E=0 asks=0
			nak kept
			unknown: the provider cannot be used as configured`},
		{name: "done, with another id than the row's", set: performs(func(ctx context.Context, a *Attempt[payJob], pay func() (paid, error)) (paid, error) {
			if err := a.SaveExternalID(ctx, "pay_0"); err != nil {
				return paid{}, err
			}
			return pay()
		}), want: `
			needs_review (two_effects) attempt 1, unsure, id pay_0, evidence pay_1, class two_effects
			W=1 E=1 asks=0
			term
			needs_review: two effects? the provider answered with another id than the one on the row (pay_0)`},
		{name: "accepted", set: effectThen(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(`{"id":"pay_1"}`))
		}), want: `
			unknown attempt 1, unsure, id pay_1, class accepted, wait poll
			W=1 E=1 asks=0
			nak kept
			unknown: accepted by the provider, not done yet (pay_1)`},
		{name: "conflict", set: answers(status(409)), want: `
			needs_review (conflict) attempt 1, unsure, class conflict
			W=1 E=0 asks=0
			term
			needs_review: contradictory data or a missing record`},
		{name: "conflict before anything was sent", set: performs(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
			return paid{}, Conflict(errors.New("no such customer"))
		}), want: `
			needs_review (conflict) attempt 1, class conflict
			W=0 E=0 asks=0
			term
			needs_review: contradictory data or a missing record`},

		{name: "misconfigured: forbidden", set: answers(status(403)), want: `
			unknown attempt 1, unsure, class misconfigured, wait long
			W=1 E=0 asks=0
			nak kept
			unknown: the provider cannot be used as configured`},
		{name: "misconfigured, and surely not applied: unauthorized", set: answers(status(401)), want: `
			started attempt 1, class misconfigured, released, wait long
			W=1 E=0 asks=0
			nak kept`},
	})
}

func TestPerformRefused(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "refused", set: answers(declined), want: `
			failed attempt 1, id pay_9, class refused, {"id":"pay_9"}
			W=1 E=0 asks=0
			booked declined by perform
			ack`},
		{name: "while unsure, the refusal is stored under the key", row: oldRow, set: answers(status(402)), want: `
			failed attempt 2, unsure, class refused, {"id":""}
			W=1 E=0 asks=1
			booked declined by perform
			ack
			started: the provider does not know it; sent again under the same key`},
		{name: "while unsure, refusals are forgotten", row: oldRow,
			set: all(answers(status(402)), func(_ *payProvider, k *Kind[payJob, paid]) { k.Provider.Stored = []int{} }), want: `
			unknown attempt 2, failures 1, unsure, class refused, wait backoff
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key
			unknown: refused, but an earlier attempt may have been applied`},
		{name: "while unsure, and the id of the refusal is not what is asked about", row: absentOnce, set: all(unkeyed(true), answers(declined)), want: `
			unknown attempt 2, failures 1, unsure, class refused, wait settled
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it, twice and settled; sent again as permitted
			unknown: refused, but an earlier attempt may have been applied`},
		{name: "while unsure, no keys", row: absentOnce, set: all(unkeyed(true), answers(status(402))), want: `
			unknown attempt 2, failures 1, unsure, class refused, wait settled
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it, twice and settled; sent again as permitted
			unknown: refused, but an earlier attempt may have been applied`},
	})
}

// Nothing can have been applied: the task is released and costs no failure. With an attempt before it that may have
// been applied it is unknown nonetheless.
func TestPerformNotSent(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "throttled", set: answers(status(429)), want: `
			started attempt 1, class not_sent, released, wait backoff
			W=1 E=0 asks=0
			nak kept`},
		{name: "throttled, with a wish", set: all(answers(status(429)), wishes(NotSentAfter)), want: `
			started attempt 1, class not_sent, released, wait asked
			W=1 E=0 asks=0
			nak kept`},
		{name: "D-32: throttled, with a wish beyond all reason", set: all(answers(status(429)), wishesFor(30*time.Hour, NotSentAfter)), want: `
			started attempt 1, class not_sent, released, wait cut
			W=1 E=0 asks=0
			nak kept
			started: the provider asked to be left alone for 30h0m0s, longer than the 20h0m0s that are obeyed`},
		{name: "D-32: unavailable, with a wish beyond all reason", set: all(answers(status(503)), wishesFor(30*time.Hour, UnknownAfter)), want: `
			unknown attempt 1, failures 1, unsure, class unknown, wait cut
			W=1 E=0 asks=0
			nak kept
			unknown: no outcome is known; the provider asked to be left alone for 30h0m0s, longer than the 20h0m0s that are obeyed`},
		{name: "throttled, and the handler has no word for it", set: all(answers(status(429)), wishes(UnknownAfter)), want: `
			started attempt 1, class unknown, released, wait asked
			W=1 E=0 asks=0
			nak kept`},
		{name: "throttled while unsure", row: oldRow, set: answers(status(429)), want: `
			unknown attempt 2, unsure, class not_sent, wait backoff
			W=1 E=0 asks=1
			nak kept
			started: the provider does not know it; sent again under the same key`},
		{name: "nobody listens", set: nobody, want: `
			started attempt 1, class unknown, released, wait backoff
			W=0 E=0 asks=0
			nak kept`},
		{name: "no TLS where TLS should be", set: func(p *payProvider, _ *Kind[payJob, paid]) {
			p.server.URL = strings.Replace(p.server.URL, "http:", "https:", 1)
		}, want: `
			started attempt 1, class unknown, released, wait backoff
			W=0 E=0 asks=0
			nak kept`},
		{name: "said by the handler, who sent nothing", set: performs(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
			return paid{}, NotSent(errors.New("no token"))
		}), want: `
			started attempt 1, class not_sent, released, wait backoff
			W=0 E=0 asks=0
			nak kept`},
		{name: "said by the handler, who sent", set: wishes(NotSentAfter), want: `
			unknown attempt 1, failures 1, unsure, id pay_1, class not_sent, wait asked
			W=1 E=1 asks=0
			nak kept
			unknown: no outcome is known (pay_1)`},
	})
}

// The outcome is unknown; the effect may have happened or not.
func TestPerformUnknown(t *testing.T) {
	t.Parallel()
	const (
		withEffect = `
			unknown attempt 1, failures 1, unsure, class unknown, wait backoff
			W=1 E=1 asks=0
			nak kept
			unknown: no outcome is known`
		withoutEffect = `
			unknown attempt 1, failures 1, unsure, class unknown, wait backoff
			W=1 E=0 asks=0
			nak kept
			unknown: no outcome is known`
		timedOut = `
			unknown attempt 1, failures 1, unsure, class timeout, wait backoff
			W=1 E=1 asks=0
			nak kept
			unknown: no outcome is known`
		panicked = `
			unknown attempt 1, failures 1, unsure, class panic, wait backoff
			W=1 E=1 asks=0
			nak kept
			unknown: no outcome is known`
		panickedUnsent = `
			unknown attempt 1, failures 1, unsure, class panic, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: no outcome is known`
	)
	panics := func(value any, after bool) func(*payProvider, *Kind[payJob, paid]) {
		return performs(func(_ context.Context, _ *Attempt[payJob], pay func() (paid, error)) (paid, error) {
			if after {
				_, _ = pay()
			}
			panic(value)
		})
	}
	newBench(t).play([]scenario{
		{name: "timeout", set: all(effectThen(never), impatient), want: timedOut},
		{name: "cut after the effect", set: effectThen(noAnswer), want: withEffect},
		{name: "cut before the effect", set: answers(noAnswer), want: withoutEffect},
		{name: "D-30: effect, then 500", set: effectThen(status(500)), want: withEffect},
		{name: "D-30: effect, then 502", set: effectThen(status(502)), want: withEffect},
		{name: "D-30: 503 without effect", set: answers(status(503)), want: withoutEffect},
		{name: "503 with a wish", set: all(answers(status(503)), wishes(UnknownAfter)), want: `
			unknown attempt 1, failures 1, unsure, class unknown, wait asked
			W=1 E=0 asks=0
			nak kept
			unknown: no outcome is known`},
		{name: "D-34: short body", set: effectThen(body("100", `{"id":"pay_1`)), want: withEffect},
		{name: "D-34: cut chunk", set: effectThen(cutChunk), want: withEffect},
		{name: "D-34: no body", set: effectThen(body("0", "")), want: withEffect},
		{name: "a status that nobody mapped", set: answers(status(418)), want: withoutEffect},
		{name: "no keys: not before absent may count", set: all(unkeyed(false), effectThen(noAnswer)), want: `
			unknown attempt 1, failures 1, unsure, class unknown, wait settled
			W=1 E=1 asks=0
			nak kept
			unknown: no outcome is known`},
		{name: "D-41: panic before the send", set: panics("boom", false), want: panickedUnsent},
		{name: "D-41: panic with nil", set: panics(nil, false), want: panickedUnsent},
		{name: "D-41: panic after the answer", set: panics("boom", true), want: panicked},
		{name: "sent by other means than HTTP", set: performs(func(_ context.Context, a *Attempt[payJob], _ func() (paid, error)) (paid, error) {
			if err := a.MaySend(); err != nil {
				return paid{}, err
			}
			return paid{}, NotSent(errors.New("queue is full"))
		}), want: `
			unknown attempt 1, failures 1, unsure, class not_sent, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: no outcome is known`},
		{name: "an error before anything was sent, in no words of ours", set: performs(func(context.Context, *Attempt[payJob], func() (paid, error)) (paid, error) {
			return paid{}, &net.OpError{Op: "dial", Err: errors.New("by a client of its own")}
		}), want: `
			unknown attempt 1, failures 1, unsure, class unknown, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: no outcome is known`},
		{name: "an id next to the error", set: performs(func(_ context.Context, _ *Attempt[payJob], pay func() (paid, error)) (paid, error) {
			out, _ := pay()
			return out, errors.New("cannot read the rest")
		}), want: `
			unknown attempt 1, failures 1, unsure, id pay_1, class unknown, wait backoff
			W=1 E=1 asks=0
			nak kept
			unknown: no outcome is known (pay_1)`},
		{name: "an error, and no result to take an id from", set: all(effectThen(noAnswer), func(_ *payProvider, k *Kind[payJob, paid]) {
			k.ExternalID = func(r paid) string {
				if r.ID == "" {
					panic("nothing to take it from")
				}
				return r.ID
			}
		}), want: withEffect},
	})
}

// The budget of failures or the age limit is used up: a person is called, and the message goes.
func TestPerformSpent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.play([]scenario{
		{name: "last failure", set: all(effectThen(noAnswer), func(_ *payProvider, k *Kind[payJob, paid]) { k.Policy.MaxFailures = 1 }), want: `
			needs_review (budget) attempt 1, failures 1, unsure, class unknown
			W=1 E=1 asks=0
			term
			needs_review: no outcome is known; parked: budget or age limit used up`},
		{name: "too old by the time it is saved", set: all(effectThen(noAnswer), performs(func(ctx context.Context, a *Attempt[payJob], pay func() (paid, error)) (paid, error) {
			if _, err := b.pool.Exec(ctx, `update settle.tasks set give_up_at = clock_timestamp() where id = $1`, a.TaskID); err != nil {
				return paid{}, err
			}
			return pay()
		})), want: `
			needs_review (age) attempt 1, failures 1, unsure, class unknown
			W=1 E=1 asks=0
			term
			needs_review: no outcome is known; parked: budget or age limit used up`},
		{name: "done is done, however old", set: performs(func(ctx context.Context, a *Attempt[payJob], pay func() (paid, error)) (paid, error) {
			if _, err := b.pool.Exec(ctx, `update settle.tasks set give_up_at = clock_timestamp() where id = $1`, a.TaskID); err != nil {
				return paid{}, err
			}
			return pay()
		}), want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "too old at the claim", row: map[string]string{"give_up_at": hoursAgo(1)}, want: `
			needs_review (age) attempt 2, unsure
			W=0 E=0 asks=0
			term
			needs_review: parked: not settled within its age limit`},
		{name: "budget used up at the claim", row: map[string]string{"failures": `5`}, want: `
			needs_review (budget) attempt 2, failures 5, unsure
			W=0 E=0 asks=0
			term
			needs_review: parked: 5 failures, the budget is used up`},
		{name: "D-11: the last of the attempts that died", row: map[string]string{"status": `'started'`, "unsure": `false`, "sending": `true`,
			"failures": `4`, "lease_until": hoursAgo(0)}, want: `
			needs_review (budget) attempt 2, failures 5, unsure
			W=0 E=0 asks=0
			term
			needs_review: parked: 5 failures, the budget is used up`},
	})
}

// Local rows are looked at before anything is sent.
func TestCheck(t *testing.T) {
	t.Parallel()
	checks := func(f func() (paid, bool, error)) func(*payProvider, *Kind[payJob, paid]) {
		return func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Check = func(context.Context, DB, payJob) (paid, bool, error) { return f() }
		}
	}
	newBench(t).play([]scenario{
		{name: "done already", set: checks(func() (paid, bool, error) { return paid{ID: "pay_7"}, true, nil }), want: `
			finished attempt 1, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=0
			booked pay_7 by check
			ack`},
		{name: "not done", set: checks(func() (paid, bool, error) { return paid{}, false, nil }), want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "contradiction", set: checks(func() (paid, bool, error) { return paid{}, false, Conflict(errors.New("amounts differ")) }), want: `
			needs_review (conflict) attempt 1, class conflict
			W=0 E=0 asks=0
			term
			needs_review: contradictory data or a missing record`},
		{name: "refused", set: checks(func() (paid, bool, error) { return paid{}, false, Refused(errors.New("order is closed")) }), want: `
			failed attempt 1, class refused
			W=0 E=0 asks=0
			booked order is closed by check
			ack`},
		{name: "cannot look", set: checks(func() (paid, bool, error) { return paid{}, false, errors.New("no such table") }), want: `
			started attempt 1, class unknown, released, wait backoff
			W=0 E=0 asks=0
			nak kept`},
		{name: "cannot look, and yet says done", set: checks(func() (paid, bool, error) { return paid{ID: "pay_7"}, true, errors.New("cut") }), want: `
			started attempt 1, class unknown, released, wait backoff
			W=0 E=0 asks=0
			nak kept`},
		{name: "panics", set: checks(func() (paid, bool, error) { panic("boom") }), want: `
			unknown attempt 1, failures 1, unsure, class panic, wait backoff
			W=0 E=0 asks=0
			nak kept
			unknown: no outcome is known`},
		{name: "before a resend, done already", row: oldRow, set: checks(func() (paid, bool, error) { return paid{ID: "pay_7"}, true, nil }), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by check
			ack`},
		{name: "before a resend, cannot look", row: oldRow, set: checks(func() (paid, bool, error) { return paid{}, false, errors.New("no such table") }), want: `
			unknown attempt 2, unsure, class unknown, wait backoff
			W=0 E=0 asks=1
			nak kept`},
	})
}
