package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// recovering lets the bench's engines take up tasks without messages, as often as they may.
func (b *bench) recovering() *bench {
	b.conf.NoRecovery, b.conf.RecoverEvery = false, 100*time.Millisecond
	return b
}

var (
	noMessage = []string{}
	// released is a task that is known not to be applied, as a drain or a throttled provider leaves it.
	released = with("status", `'started'`, "unsure", `false`, "first_sent_at", `null`, "last_sent_by", `null`)
)

func parkedBy(c idemstore.Cause, pairs ...string) map[string]string {
	return and(oldRow, append([]string{"status", `'needs_review'`, "review_cause", "'" + string(c) + "'"}, pairs...)...)
}

// A task goes on by its row alone: no message is there, and each row ends as it would with one.
func TestRecoveryNeedsNoMessage(t *testing.T) {
	t.Parallel()
	late := `clock_timestamp() + interval '1 hour'`
	newBench(t).recovering().play([]scenario{
		{name: "released", messages: noMessage, row: released, want: `
			finished attempt 2, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			finished: settled without its message (pay_1)`},
		{name: "released, and the provider refuses", messages: noMessage, row: released, set: answers(status(402)), want: `
			failed attempt 2, class refused, {"id":""}
			W=1 E=0 asks=0
			booked declined by perform
			failed: settled without its message`},
		{name: "D-36: stuck in started, and it had happened", messages: noMessage, row: and(expired, "sending", `true`), set: looks(told(200, "pay_7")), want: `
			finished attempt 2, failures 1, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			started: taken over: the lease of attempt 1 ran out
			finished: the provider was asked: it happened (pay_7)`},
		{name: "D-36: stuck in started, and it had not", messages: noMessage, row: and(expired, "sending", `true`), want: `
			finished attempt 2, failures 1, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			started: taken over: the lease of attempt 1 ran out
			started: the provider does not know it; sent again under the same key
			finished: settled without its message (pay_1)`},
		{name: "unknown, found", messages: noMessage, row: oldRow, set: looks(told(200, "pay_7")), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			finished: the provider was asked: it happened (pay_7)`},
		{name: "unknown, refused", messages: noMessage, row: oldRow, set: looks(told(402, "pay_7")), want: `
			failed attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked refused by the provider by look-up
			failed: the provider was asked: it refused (pay_7)`},
		{name: "unknown, absent", messages: noMessage, row: oldRow, want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			started: the provider does not know it; sent again under the same key
			finished: settled without its message (pay_1)`},
		{name: "unknown, and nobody can tell", messages: noMessage, row: oldRow, set: looks(status(500)), want: `
			unknown attempt 2, unsure, class unknown, wait backoff
			W=0 E=0 asks=1
			unknown: the provider was asked and cannot tell`},
		{name: "unknown, contradictory", messages: noMessage, row: oldRow, set: looks(told(409, "pay_7")), want: `
			needs_review (contradictory) attempt 2, unsure, id pay_7
			W=0 E=0 asks=1
			needs_review: the provider was asked: it has other content, or two effects (pay_7)`},
		{name: "a payload that this build cannot read", messages: noMessage, row: and(released, "payload", `[]`), want: `
			needs_review (conflict) attempt 2, class conflict
			W=0 E=0 asks=0
			needs_review: contradictory data or a missing record`},
		{name: "hashed in a way that this build does not know", messages: noMessage, row: and(oldRow, "hash_algorithm", `'later'`), set: looks(told(200, "pay_7")), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			finished: the provider was asked: it happened (pay_7)`},
		{name: "not due", messages: noMessage, row: and(oldRow, "next_attempt_at", late, "updated_at", `clock_timestamp()`), want: `
			unknown attempt 1, unsure, wait short
			W=0 E=0 asks=0`},
		{name: "somebody holds it", messages: noMessage, row: and(expired, "sending", `true`, "lease_until", late), want: `
			started attempt 1, leased
			W=0 E=0 asks=0`},
		{name: "over", messages: noMessage, row: and(oldRow, "status", `'finished'`, "finished_at", `clock_timestamp()`), want: `
			finished attempt 1, unsure
			W=0 E=0 asks=0`},
	})
}

// A person is called as with a message, and goes on being called only while the provider cannot tell. What is parked is
// asked about and never sent, also where its key would still protect a resend.
func TestRecoveryOfWhatIsParked(t *testing.T) {
	t.Parallel()
	newBench(t).recovering().play([]scenario{
		{name: "its age is over, and the provider cannot tell", messages: noMessage, row: and(oldRow, "give_up_at", hoursAgo(1)), set: looks(status(500)), want: `
			needs_review (age) attempt 2, unsure
			W=0 E=0 asks=1
			needs_review: parked: not settled within its age limit`},
		{name: "its budget is used up, and the provider knows it", messages: noMessage, row: and(oldRow, "failures", `5`), set: looks(told(200, "pay_7")), want: `
			finished attempt 3, failures 5, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			needs_review: parked: 5 failures, the budget is used up
			finished: asked by recovery; the provider was asked: it happened as pay_7 (pay_7)`},
		{name: "by age, found", messages: noMessage, row: parkedBy(idemstore.CauseAge), set: looks(told(200, "pay_7")), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			finished: asked by recovery; the provider was asked: it happened as pay_7 (pay_7)`},
		{name: "by budget, refused", messages: noMessage, row: parkedBy(idemstore.CauseBudget), set: looks(told(402, "pay_7")), want: `
			failed attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked refused by the provider by look-up
			failed: asked by recovery; the provider was asked: it refused it as pay_7 (pay_7)`},
		{name: "by budget, absent", messages: noMessage, row: parkedBy(idemstore.CauseBudget), want: `
			needs_review (budget) attempt 1, unsure
			W=0 E=0 asks=1`},
		{name: "by budget, contradictory", messages: noMessage, row: parkedBy(idemstore.CauseBudget), set: looks(told(409, "pay_7")), want: `
			needs_review (budget) attempt 1, unsure
			W=0 E=0 asks=1`},
		{name: "by age, found under another id", messages: noMessage, row: parkedBy(idemstore.CauseAge, "external_id", `'pay_6'`), set: looks(told(200, "pay_7")), want: `
			needs_review (age) attempt 1, unsure, id pay_6
			W=0 E=0 asks=1`},
		{name: "by age, found, and late proof says another id", messages: noMessage, row: parkedBy(idemstore.CauseAge, "evidence_id", `'pay_6'`), set: looks(told(200, "pay_7")), want: `
			needs_review (age) attempt 1, unsure, evidence pay_6
			W=0 E=0 asks=1`},
		{name: "by age, and the local rows are refused", messages: noMessage, row: parkedBy(idemstore.CauseAge), set: func(p *payProvider, k *Kind[payJob, paid]) {
			looks(told(200, "pay_7"))(p, k)
			k.Commit = func(w *Writes, _ Final[payJob, paid]) error {
				w.Exec(`insert into public.booked values (null)`)
				return nil
			}
		}, want: `
			needs_review (age) attempt 1, unsure
			W=0 E=0 asks=1`},
		{name: "a look-up that stores the id itself", messages: noMessage, row: parkedBy(idemstore.CauseAge),
			set: lookup(func(ctx context.Context, a *Attempt[payJob]) (paid, Verdict, error) {
				return paid{}, CannotTell, a.SaveExternalID(ctx, "pay_7")
			}), want: `
			needs_review (age) attempt 1, unsure
			W=0 E=0 asks=0`},
		{name: "a look-up that sends", messages: noMessage, row: parkedBy(idemstore.CauseAge),
			set: lookup(func(_ context.Context, a *Attempt[payJob]) (paid, Verdict, error) { return paid{}, Found, a.MaySend() }), want: `
			needs_review (age) attempt 1, unsure
			W=0 E=0 asks=0`},
		{name: "for contradictory data", messages: noMessage, row: parkedBy(idemstore.CauseConflict), set: looks(told(200, "pay_7")), want: `
			needs_review (conflict) attempt 1, unsure
			W=0 E=0 asks=0`},
		{name: "of a kind that cannot ask", messages: noMessage, row: parkedBy(idemstore.CauseAge), set: func(_ *payProvider, k *Kind[payJob, paid]) { k.Lookup = nil }, want: `
			needs_review (age) attempt 1, unsure
			W=0 E=0 asks=0`},
	})
}

// Rows that the constraints exclude: whoever made them, they do not look busy for ever.
func TestD36RowsMadeByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	dropChecks(t, b.pool)
	mayBeSent := and(expired, "sending", `true`, "lease_until", `null`)
	b.play([]scenario{
		{name: "a lease in the year 2999", messages: noMessage, row: and(expired, "sending", `true`, "lease_until", `'2999-01-01'`), set: looks(told(200, "pay_7")), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			finished: the provider was asked: it happened (pay_7)`},
		{name: "no lease and a possible send", messages: noMessage, row: mayBeSent, set: looks(told(200, "pay_7")), want: `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			finished: the provider was asked: it happened (pay_7)`},
		{name: "no attempt at all", messages: noMessage, row: and(mayBeSent, "attempts", `0`), want: `
			finished attempt 1, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			started: the provider does not know it; sent again under the same key
			finished: settled without its message (pay_1)`},
		{name: "a fence newer than any worker", messages: noMessage, row: and(mayBeSent, "attempts", `2000000000`), set: looks(told(200, "pay_7")), want: `
			finished attempt 2000000001, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			finished: the provider was asked: it happened (pay_7)`},
	})
}

// A local job that crashed, or was given back, is done by its row as well.
func TestRecoveryOfALocalJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row      map[string]string
		failures int
		reason   string
	}{
		"given back": {released, 0, "settled without its message"},
		"crashed":    {and(released, "lease_until", `clock_timestamp() - interval '1 second'`), 1, "taken over: the lease of attempt 1 ran out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.recovering()
			b.insert(b.kind, plainJob, c.row)
			b.start()
			task := b.finishes(2, c.failures)
			if events := b.events(task.TaskID); events[0].Actor != recovery || events[0].Reason != c.reason {
				t.Errorf("audit %+v", events)
			}
		})
	}
}

// However long the next wait would be: at its age limit a task is somebody's.
func TestParkedAtTheAgeLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.kind.Policy.BackoffMin, b.kind.Policy.BackoffMax, b.kind.Policy.MaxAge = time.Hour, time.Hour, 2*time.Second
	b.pay.then(noAnswer)
	b.run()
	b.publish(plainJob)
	if task := b.awaitStatus("pay_1", idemstore.NeedsReview); task.Cause != idemstore.CauseAge {
		t.Errorf("parked for %q", task.Cause)
	}
}
