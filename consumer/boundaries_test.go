package consumer

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// The limits of the look-up table by the clock of the database: on the moment, and a minute to one side of it.

// from is a time in the past: so long ago, less so many seconds.
func from(ago time.Duration, less time.Duration) string {
	return "clock_timestamp() - interval '" + ago.String() + "' + interval '" + less.String() + "'"
}

// The provider's key protects a resend from the first possible send on, until its lifetime less the margin is over.
func TestKeyLifetimeBoundary(t *testing.T) {
	t.Parallel()
	const (
		lifetime = 24 * time.Hour
		margin   = 12 * time.Second // of a deadline of 2 s
	)
	if got := keyMargin(once.Deadline); got != margin {
		t.Fatalf("the margin is %s", got)
	}
	late := func(_ *payProvider, k *Kind[payJob, paid]) { k.Provider.AbsentAfter = longAbsent }
	row := func(firstSent string) map[string]string { return with("first_sent_at", firstSent) }
	const (
		resent = `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: the provider does not know it; sent again under the same key`
		asked = `
			unknown attempt 2, unsure, wait settled
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`
		parked = `
			needs_review (no_lookup) attempt 2, unsure
			W=0 E=0 asks=0
			term
			needs_review: may have been applied; this kind has no look-up and the key no longer protects a resend`
	)
	newBench(t).play([]scenario{
		{name: "a minute before", row: row(from(lifetime-margin, time.Minute)), set: late, want: resent},
		{name: "on the moment", row: row(from(lifetime-margin, 0)), set: late, want: asked},
		{name: "a minute before, nobody to ask", row: row(from(lifetime-margin, time.Minute)), set: noLookup, want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack
			started: no look-up; sent again under the same key, which the provider still keeps`},
		{name: "on the moment, nobody to ask", row: row(from(lifetime-margin, 0)), set: noLookup, want: parked},
		{name: "counted from the first send, not from the last", row: and(row(from(lifetime, 0)), "last_sent_by", hoursAgo(0)), set: late, want: asked},
		{name: "another account now", row: with("provider", `'test, account 2'`), set: late, want: asked},
		{name: "another account now, nobody to ask", row: with("provider", `'test, account 2'`), set: noLookup, want: parked},
	})
}

// "Absent" counts from the absent-after time after the last possible send on, and not from any earlier one.
func TestAbsentAfterBoundary(t *testing.T) {
	t.Parallel()
	const (
		early = `
			unknown attempt 2, unsure, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it yet; too early to believe`
		counts = `
			unknown attempt 2, unsure, absent once, wait backoff
			W=0 E=0 asks=1
			nak kept
			unknown: the provider does not know it; asked once more before that counts`
		lastSent = "last_sent_by"
	)
	died := and(expired, "sending", `true`, "first_sent_at", hoursAgo(100))
	newBench(t).play([]scenario{
		{name: "a minute before", row: with(lastSent, from(longAbsent, time.Minute)), set: unkeyed(true), want: early},
		{name: "on the moment", row: with(lastSent, from(longAbsent, 0)), set: unkeyed(true), want: counts},
		{name: "counted from the last send, not from the first", row: with("first_sent_at", hoursAgo(100), lastSent, from(longAbsent, time.Minute)),
			set: unkeyed(true), want: early},
		{name: "after a crash, counted from the end of its lease: a minute before", row: and(died, "lease_until", from(longAbsent, time.Minute)),
			set: unkeyed(true), want: `
			unknown attempt 2, failures 1, unsure, wait backoff
			W=0 E=0 asks=1
			nak kept
			started: taken over: the lease of attempt 1 ran out
			unknown: the provider does not know it yet; too early to believe`},
		{name: "after a crash, counted from the end of its lease: on the moment", row: and(died, "lease_until", from(longAbsent, 0)),
			set: unkeyed(true), want: `
			unknown attempt 2, failures 1, unsure, absent once, wait backoff
			W=0 E=0 asks=1
			nak kept
			started: taken over: the lease of attempt 1 ran out
			unknown: the provider does not know it; asked once more before that counts`},
		{name: "a crash of an attempt that only asked is no send", row: and(died, "sending", `false`, "unsure", `true`, lastSent, from(longAbsent, 0)),
			set: unkeyed(true), want: `
			unknown attempt 2, failures 1, unsure, absent once, wait backoff
			W=0 E=0 asks=1
			nak kept
			started: taken over: the lease of attempt 1 ran out
			unknown: the provider does not know it; asked once more before that counts`},
		{name: "the echo of a first reading is not the second", row: and(absentOnce, "absent_at", `clock_timestamp() + interval '1 hour'`),
			set: unkeyed(true), want: counts},
		{name: "a second after the first reading", row: and(absentOnce, "absent_at", from(time.Second, 0)), set: unkeyed(true), want: `
			finished attempt 2, unsure, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=1
			booked pay_1 by perform
			ack
			started: the provider does not know it, twice and settled; sent again as permitted`},
	})
}

// D-29: two readings are at least a second apart, however short the back-off is.
func TestReadingsAreASecondApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	soonSettled(true)(b.pay, &b.kind)
	b.pay.then(noAnswer)
	readings := make(chan time.Time, 8)
	b.pay.answerLookups(func(w http.ResponseWriter, r *http.Request) {
		readings <- time.Now()
		b.pay.honestLookup(w, r)
	})
	b.run()
	b.publish(plainJob)
	if task := b.awaitStatus("pay_1", idemstore.Finished); task.Attempt != 3 {
		t.Errorf("%d attempts", task.Attempt)
	}
	if w, e, lookups := b.pay.counts(); w != 2 || e != 1 || lookups != 2 {
		t.Fatalf("W=%d E=%d asks=%d", w, e, lookups)
	}
	first, second := <-readings, <-readings
	if apart := second.Sub(first); apart < time.Second {
		t.Errorf("the readings are %s apart", apart)
	}
}

// Line 2 of the claim table: somebody is at the row. Nothing is done and nothing is counted.
func TestMessageForALockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	b.insert(b.kind, plainJob, oldRow)
	heard := b.listen()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var before string
	const row = `select to_jsonb(t)::text from settle.tasks t`
	if err := tx.QueryRow(t.Context(), row+` for update`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.publish(plainJob)
	if !eventually(t, 20*time.Second, func() bool { return len(heard.about(1)) >= 2 }) {
		t.Error("the message was not handed back, twice")
	}
	var after string
	if err := tx.QueryRow(t.Context(), row).Scan(&after); err != nil || after != before {
		t.Errorf("the row was\n%s\nand is\n%s (%v)", before, after, err)
	}
	if w, _, lookups := b.pay.counts(); w != 0 || lookups != 0 {
		t.Errorf("W=%d asks=%d", w, lookups)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
}

// Rows that the table's constraints exclude, made by hand without them (D-36): whatever they say, the provider is asked
// first.
func TestMessageForAnImpossibleRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dropChecks(t, b.pool)
	const started = `'started'`
	const asked = `
			finished attempt 2, unsure, id pay_7, {"id":"pay_7"}
			W=0 E=0 asks=1
			booked pay_7 by look-up
			ack
			finished: the provider was asked: it happened (pay_7)`
	found := looks(told(200, "pay_7"))
	b.play([]scenario{
		{name: "started without a lease, and unsure", row: with("status", started), set: found, want: asked},
		{name: "started without a lease, and sending", row: with("status", started, "unsure", `false`, "sending", `true`), set: found, want: asked},
		{name: "started without a lease, and sent before", row: with("status", started, "unsure", `false`), set: found, want: asked},
		{name: "a lease in the year 2999", row: with("status", started, "sending", `true`, "lease_until", `'2999-01-01'`), set: found, want: asked},
		{name: "unknown, and known not to be applied", row: with("unsure", `false`, "first_sent_at", `null`), set: found, want: asked},
		{name: "unknown with a lease that runs", row: with("lease_until", `clock_timestamp() + interval '1 hour'`), set: found, want: `
			unknown attempt 1, unsure, leased
			W=0 E=0 asks=0
			nak kept`},
	})
}
