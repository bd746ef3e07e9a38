package consumer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// A retry gives a parked task one attempt, which asks before it sends.
func TestRetryAsksFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) { b.conf.Policy.MaxFailures = 1 })
	d.pay.then(d.pay.effectThen(noAnswer))
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	d.awaitSettled()
	got := acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked before anything is sent")
	if got.Task.Failures != 0 || !got.Task.GiveUpAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("its budget is not given back: %+v", got.Task)
	}
	d.publish(plainJob)
	d.awaitStatus("pay_1", idemstore.Finished)
	if w, e, lookups := d.pay.counts(); w != 1 || e != 1 || lookups != 1 {
		t.Errorf("W=%d E=%d, %d look-ups", w, e, lookups)
	}
}

// D-44: what was refused for good gets one new attempt under the same provider key, which asks first.
func TestD44RetryOfFailed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) { b.kind.Commit = nil })
	keys := make(chan string, 2)
	d.pay.then(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		w.WriteHeader(http.StatusPaymentRequired)
	}, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		d.pay.honest(w, r)
	})
	d.run()
	d.publish(plainJob)
	failed := d.awaitStatus("pay_1", idemstore.Failed)
	acted(t)(d.Retry(t.Context(), failed, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked")
	d.publish(plainJob)
	d.awaitStatus("pay_1", idemstore.Finished)
	first, second := await(t, keys, "a request"), await(t, keys, "another one")
	if w, e, lookups := d.pay.counts(); w != 2 || e != 1 || lookups != 1 || first != second {
		t.Errorf("W=%d E=%d, %d look-ups, keys %q and %q", w, e, lookups, first, second)
	}
}

// What never left is performed by the attempt that a retry brings: there is nothing to ask about.
func TestRetryOfWhatNeverLeft(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	acted(t)(d.Retry(t.Context(), d.is(isUnsent), byAnna)).expect(t, OutcomeDone, idemstore.Started, "nothing was sent before")
	d.run()
	d.publish(plainJob)
	d.awaitStatus("pay_1", idemstore.Finished)
	d.awaitSettled()
	if w, e, lookups := d.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d, %d look-ups", w, e, lookups)
	}
}

// D-40: a key that the provider has forgotten protects nothing, and a person's retry is no reason to send either.
func TestD40RetryWithAForgottenKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) {
		b.kind.Provider.KeyLifetime = time.Nanosecond // over before anybody can use it
		b.conf.Policy.MaxFailures = 1
	})
	d.pay.then(d.pay.effectThen(noAnswer))
	d.pay.answerLookups(status(503))
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	acted(t)(d.Ask(t.Context(), parked, byAnna)).expect(t, OutcomeAsked, idemstore.NeedsReview, "could not tell")
	acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked before anything is sent")
	d.publish(plainJob)
	d.await("pay_1", "asked twice more", func(idemstore.Task) bool { _, _, lookups := d.pay.counts(); return lookups >= 3 })
	if w, e, _ := d.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d, want nothing sent again", w, e)
	}
}

// What is done at the provider and not booked here is booked by a retry: no request, no look-up.
func TestRetryBooks(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`alter table public.booked add constraint one_id check (id <> 'pay_1')`)
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	d.awaitSettled()
	if parked.Cause != idemstore.CauseNotBooked || parked.ExternalID != "pay_1" {
		t.Fatalf("%+v", parked)
	}
	all := d.everything()
	acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeRefused, idemstore.NeedsReview, "one_id")
	if d.everything() != all {
		t.Error("a retry whose rows are refused again changed something")
	}
	d.exec(`alter table public.booked drop constraint one_id`)
	got := acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Finished, "nothing is sent")
	if got.Task.ExternalID != "pay_1" || string(got.Task.Result) != `{"id":"pay_1"}` || d.booked() != "pay_1 pay_1  0 2, events 1" {
		t.Errorf("%+v, booked %s", got.Task, d.booked())
	}
	if w, e, lookups := d.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d, %d look-ups; want the first request alone", w, e, lookups)
	}
}

// A local job has nothing to ask and nothing that can have left: a retry simply runs it.
func TestRetryOfALocalJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fail := Refused(errors.New("no"))
	k := LocalKind[payJob, paid]{Name: b.kind.Name, Contract: b.kind.Contract, Key: b.kind.Key, Content: b.kind.Content,
		Apply: func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { return paid{"row_1"}, fail }}
	o, err := NewOperator(b.pool, b.conf, k)
	if err != nil {
		t.Fatal(err)
	}
	_, stop := b.serve(k)
	b.publish(plainJob)
	failed := b.awaitStatus("pay_1", idemstore.Failed)
	b.awaitSettled()
	stop()
	acted(t)(o.Ask(t.Context(), failed, byAnna)).expect(t, OutcomeRefused, idemstore.Failed, "failed for good")
	acted(t)(o.Retry(t.Context(), failed, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "attempt is due now")
	fail = nil
	b.serve(k)
	b.publish(plainJob)
	if done := b.awaitStatus("pay_1", idemstore.Finished); string(done.Result) != `{"id":"row_1"}` {
		t.Errorf("%+v", done)
	}
}

// D-44: "replay all" over a thousand tasks of every sort, pressed by two people at once. What is done or under way is left
// alone; of the rest each gets one attempt, which asks first, and no key gets a second effect.
func TestD44RetryAllTwice(t *testing.T) {
	t.Parallel()
	const rows = 1000
	d := newDesk(t, func(b *bench) {
		b.kind.Commit = nil
		b.conf.NoRecovery, b.conf.Slots, b.conf.RecoverEvery = false, 16, 100*time.Millisecond
	})
	d.exec(`insert into settle.tasks (kind, key, status, attempts, token, sending, unsure, lease_until, next_attempt_at, give_up_at, finished_at,
			first_sent_at, last_sent_by, review_cause, payload, payload_hash, hash_algorithm, provider, provider_key)
		select $1, 'pay_' || n, s, 2, gen_random_uuid(), s = 'started', s <> 'started', case when s = 'started' then c + interval '1 h' end,
			case when s = 'unknown' then c + interval '1 h' else c end, c + interval '1 day', case when s in ('finished', 'failed') then c end,
			c, c, case when s = 'needs_review' then 'absent' end, format('{"order":"%s"}', n)::bytea, '\x00', 'test', 'test', 'pay_' || n
		from generate_series(1, $2) n, clock_timestamp() c,
			lateral (select (array['finished', 'started', 'unknown', 'failed', 'needs_review'])[n % 5 + 1]) x(s)`, d.kind.Name, rows)
	for n := 1; n <= rows; n += 2 { // every other one happened
		d.pay.effect(fmt.Sprintf("pay_%d", n))
	}
	tasks := readRows(t, d.pool)
	pressed := make(chan map[ActOutcome]int, 2)
	for range 2 {
		go func() {
			outcomes := map[ActOutcome]int{}
			for _, task := range tasks {
				got, err := d.Retry(context.WithoutCancel(t.Context()), task, byAnna)
				if err != nil {
					got.Outcome = ActOutcome(err.Error())
				}
				outcomes[got.Outcome]++
			}
			pressed <- outcomes
		}()
	}
	d.run() // while they press
	outcomes := map[ActOutcome]int{}
	for range 2 {
		for out, n := range await(t, pressed, "an end of pressing") {
			outcomes[out] += n
		}
	}
	if outcomes[OutcomeDone] != 2*rows/5 || outcomes[OutcomeOvertaken] != 2*rows/5 || outcomes[OutcomeRefused] != 6*rows/5 {
		t.Errorf("%v", outcomes)
	}
	state := func() string {
		return d.text(`select string_agg(status || ' ' || n, ', ' order by status) from (select status, count(*) n from settle.tasks group by 1) x`)
	}
	if want := "finished 600, started 200, unknown 200"; !eventually(t, time.Minute, func() bool { return state() == want }) {
		t.Errorf("the tasks are %s, want %s", state(), want)
	}
	if w, e, lookups := d.pay.counts(); w != rows/5 || e != rows/2+rows/5 || lookups != 2*rows/5 {
		t.Errorf("W=%d E=%d, %d look-ups", w, e, lookups)
	}
	if n := d.text(`select count(*)::text || ' of ' || count(distinct task_id) from settle.task_events where reason = 'retry: the customer called'`); n != "400 of 400" {
		t.Errorf("lines about a retry: %s", n)
	}
}
