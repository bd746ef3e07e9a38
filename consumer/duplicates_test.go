package consumer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// A message whose key has a row already.
func TestMessageForARow(t *testing.T) {
	t.Parallel()
	finished := with("status", `'finished'`, "external_id", `'pay_7'`, "result", `'{"id":"pay_7"}'`, "finished_at", `clock_timestamp()`)
	newBench(t).play([]scenario{
		{name: "D-01: finished, redelivered", row: finished, want: `
			finished attempt 1, unsure, id pay_7, duplicates 1, {"id":"pay_7"}
			W=0 E=0 asks=0
			ack`},
		{name: "failed", row: with("status", `'failed'`, "finished_at", `clock_timestamp()`), want: `
			failed attempt 1, unsure, duplicates 1
			W=0 E=0 asks=0
			ack`},
		{name: "D-14: finished, and other content", row: finished, messages: []string{`{"order":"1","note":"other"}`, plainJob}, want: `
			finished attempt 1, unsure, id pay_7, duplicates 1, {"id":"pay_7"}
			W=0 E=0 asks=0
			term; ack
			refused: conflict with the task`},
		{name: "waits for a person", row: with("status", `'needs_review'`), messages: []string{plainJob, plainJob}, want: `
			needs_review attempt 1, unsure, duplicates 2
			W=0 E=0 asks=0
			term; term
			needs_review: message 5 of stream JOBS came while a person is asked
			needs_review: message 6 of stream JOBS came while a person is asked`},
		{name: "held by somebody", row: with("status", `'started'`, "sending", `true`, "lease_until", `clock_timestamp() + interval '1 hour'`), want: `
			started attempt 1, unsure, leased
			W=0 E=0 asks=0
			nak kept`},
		{name: "held by somebody, and other content", row: with("status", `'started'`, "sending", `true`, "lease_until", `clock_timestamp() + interval '1 hour'`),
			messages: []string{`{"order":"1","note":"other"}`}, want: `
			started attempt 1, unsure, leased
			W=0 E=0 asks=0
			term
			refused: conflict with the task`},
		{name: "not due", row: with("next_attempt_at", `clock_timestamp() + interval '5 hours'`), want: `
			unknown attempt 1, unsure, wait poll
			W=0 E=0 asks=0
			nak kept`},
		{name: "released", row: with("status", `'started'`, "unsure", `false`, "first_sent_at", `null`, "last_sent_by", `null`), want: `
			finished attempt 2, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "hashed by an older build, same bytes", row: and(finished, "hash_algorithm", `'c0'`), want: `
			finished attempt 1, unsure, id pay_7, duplicates 1, {"id":"pay_7"}
			W=0 E=0 asks=0
			ack`},
		{name: "hashed by an older build, other bytes", row: and(finished, "hash_algorithm", `'c0'`), messages: []string{`{ "order": "1" }`}, want: `
			finished attempt 1, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=0
			nak kept`},
	})
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	const twice = `
			finished attempt 1, id pay_1, duplicates 1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack; ack`
	newBench(t).play([]scenario{
		{name: "the same bytes", messages: []string{plainJob, plainJob}, want: twice},
		{name: "D-15: other order and spelling", messages: []string{`{"order":"1","note":"n"}`, "{ \"note\" : \"\\u006e\",\n\"order\":1}"}, want: twice},
		{name: "D-15: a volatile member", messages: []string{`{"order":"1","sent_at":1}`, `{"order":"1","sent_at":2}`},
			set: func(_ *payProvider, k *Kind[payJob, paid]) { k.Content.Volatile = []string{"sent_at"} }, want: twice},
		{name: "D-15: order within an array", messages: []string{`{"order":"1","lines":[1,2]}`, `{"order":"1","lines":[2,1]}`}, want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack; term
			refused: conflict with the task`},
		{name: "D-14: other content, then the first again", messages: []string{plainJob, `{"order":"1","note":"x"}`, plainJob}, want: `
			finished attempt 1, id pay_1, duplicates 1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack; term; ack
			refused: conflict with the task`},
	})
}

// A message that cannot be a job is kept as a refusal and goes; the good one behind it is processed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	many := func(reason string, bodies ...string) scenario {
		n := len(bodies)
		return scenario{messages: append(bodies, plainJob), want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			` + strings.Repeat("term; ", n) + `ack
			refused: ` + strings.Join(slices.Repeat([]string{reason}, n), "; ")}
	}
	named := func(name string, s scenario) scenario {
		s.name = name
		return s
	}
	newBench(t).play([]scenario{
		named("D-10: not one clean object", many("malformed", ``, `{"order":"A"`, "\ufeff"+`{"order":"A"}`, `[]`,
			`{"order":"A"}{"order":"B"}`, `{"order":"A","order":"B"}`, `{"order":"A","ORDER":"B"}`)),
		named("D-13: no usable key", many("bad_key", `{}`, `{"order":null}`, `{"order":""}`, `{"order":"   "}`, `{"order":{}}`,
			`{"order":false}`, `{"order":[]}`, `{}`, `{"order":null}`)),
		named("too large", many("too_large, cut", `{"order":"1","note":"`+strings.Repeat("x", maxBody)+`"}`)),
		named("D-17: key too long", many("bad_key", `{"order":"`+strings.Repeat("x", 600)+`"}`)),
	})
}

// quick is a tempo at which stories end soon.
func quick(_ *payProvider, k *Kind[payJob, paid]) {
	k.Policy = Policy{BackoffMin: 20 * time.Millisecond, BackoffMax: 100 * time.Millisecond, MisconfiguredWait: 100 * time.Millisecond}
}

// soonSettled is a provider without keys that shows every request soon.
func soonSettled(resend bool) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, k *Kind[payJob, paid]) {
		quick(p, k)
		k.Provider.Unkeyed, k.Provider.ResendUnkeyed, k.Provider.AbsentAfter = true, resend, 300*time.Millisecond
	}
}

// in answers look-ups in this order; the last answer stays.
func in(hs ...http.HandlerFunc) func(*payProvider, *Kind[payJob, paid]) {
	return func(p *payProvider, _ *Kind[payJob, paid]) {
		p.onLookup = func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			h := hs[min(p.lookups, len(hs))-1]
			p.mu.Unlock()
			h(w, r)
		}
	}
}

// Whole stories, delivery by delivery. A nak that came back before its task is due would show as one nak more.
func TestStories(t *testing.T) {
	t.Parallel()
	newBench(t).play([]scenario{
		{name: "D-33: accepted, polled until ready, never created again", set: all(quick, effectThen(told(202, "pay_1")), in(status(202), status(202), told(200, "pay_1")),
			func(p *payProvider, _ *Kind[payJob, paid]) { p.poll = 30 * time.Millisecond }), want: `
			finished attempt 4, unsure, id pay_1, class accepted, {"id":"pay_1"}
			W=1 E=1 asks=3
			booked pay_1 by look-up
			nak nak nak ack
			unknown: accepted by the provider, not done yet (pay_1)
			unknown: the provider was asked: still under way (pay_1)
			unknown: the provider was asked: still under way (pay_1)
			finished: the provider was asked: it happened (pay_1)`},
		{name: "D-32: throttled twice, then done", set: all(quick, answers(status(429), status(429))), want: `
			finished attempt 3, id pay_1, class not_sent, {"id":"pay_1"}
			W=3 E=1 asks=0
			booked pay_1 by perform
			nak nak ack`},
		{name: "wrong credentials, mended", set: all(quick, answers(status(401))), want: `
			finished attempt 2, id pay_1, class misconfigured, {"id":"pay_1"}
			W=2 E=1 asks=0
			booked pay_1 by perform
			nak ack`},
		{name: "D-28: effect without an answer, adopted", set: all(quick, effectThen(noAnswer)), want: `
			finished attempt 2, failures 1, unsure, id pay_1, class unknown, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by look-up
			nak ack
			unknown: no outcome is known
			finished: the provider was asked: it happened (pay_1)`},
		{name: "D-29: no effect, sent again under the young key", set: all(quick, answers(noAnswer)), want: `
			finished attempt 2, failures 1, unsure, id pay_1, class unknown, {"id":"pay_1"}
			W=2 E=1 asks=1
			booked pay_1 by perform
			nak ack
			unknown: no outcome is known
			started: the provider does not know it; sent again under the same key`},
		{name: "D-29: no keys, the look-up lags behind", set: all(soonSettled(true), effectThen(noAnswer), in(status(404), told(200, "pay_1"))), want: `
			finished attempt 3, failures 1, unsure, id pay_1, class unknown, {"id":"pay_1"}
			W=1 E=1 asks=2
			booked pay_1 by look-up
			nak nak ack
			unknown: no outcome is known
			unknown: the provider does not know it; asked once more before that counts
			finished: the provider was asked: it happened (pay_1)`},
		{name: "D-29: no keys, absent twice, sent again", set: all(soonSettled(true), answers(noAnswer)), want: `
			finished attempt 3, failures 1, unsure, id pay_1, class unknown, {"id":"pay_1"}
			W=2 E=1 asks=2
			booked pay_1 by perform
			nak nak ack
			unknown: no outcome is known
			unknown: the provider does not know it; asked once more before that counts
			started: the provider does not know it, twice and settled; sent again as permitted`},
		{name: "D-29: no keys, absent twice, a person is asked", set: all(soonSettled(false), answers(noAnswer)), want: `
			needs_review (absent) attempt 3, failures 1, unsure, absent once, class unknown
			W=1 E=0 asks=2
			nak nak term
			unknown: no outcome is known
			unknown: the provider does not know it; asked once more before that counts
			needs_review: the provider does not know it; resend or resolve?`},
		{name: "D-41: panics each time, until the budget is used up", set: all(quick, func(_ *payProvider, k *Kind[payJob, paid]) { k.Policy.MaxFailures = 3 },
			performsNothing(func() { panic("boom") })), want: `
			needs_review (budget) attempt 3, failures 3, unsure, class panic
			W=0 E=0 asks=2
			nak nak term
			unknown: no outcome is known
			started: the provider does not know it; sent again under the same key
			unknown: no outcome is known
			started: the provider does not know it; sent again under the same key
			needs_review: no outcome is known; parked: budget or age limit used up`},
	})
}

func performsNothing(f func()) func(*payProvider, *Kind[payJob, paid]) {
	return func(_ *payProvider, k *Kind[payJob, paid]) { k.Perform = performing(f) }
}

// D-20: duplicates that arrive while the first is at work are handed back without a cost, and acked in the end.
func TestDuplicatesInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	heard := b.listen()
	entered, release := b.pay.hold()
	b.run()
	b.publish(plainJob)
	await(t, entered, "the first reaches the provider")
	for range 3 {
		b.publish(plainJob)
	}
	if !eventually(t, 10*time.Second, func() bool {
		return len(heard.about(2)) > 0 && len(heard.about(3)) > 0 && len(heard.about(4)) > 0
	}) {
		t.Error("the duplicates were not handed back")
	}
	release()
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	task := b.await("pay_1", "replayed", func(task idemstore.Task) bool { return task.Duplicates == 3 })
	if task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("attempt %d, failures %d", task.Attempt, task.Failures)
	}
	if w, e, lookups := b.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d asks=%d", w, e, lookups)
	}
	if said := fmt.Sprint(heard.about(1)); said != "[]" {
		t.Errorf("the first message was settled by %s", said)
	}
}
