package consumer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// byHand are options under which everything matches that these tests make.
var byHand = RecoverOptions{NewerThan: 24 * time.Hour, Limit: 100, Actor: "anna", Reason: "ticket 7"}

// recover runs one recovery by hand on an engine of its own, without a broker.
func (b *bench) recover(o RecoverOptions, kinds ...Definition) (out []Recovered, err error) {
	b.t.Helper()
	if kinds == nil {
		kinds = []Definition{b.kind}
	}
	e, err := New(b.pool, nil, b.conf, kinds...)
	if err != nil {
		b.t.Fatal(err)
	}
	err = e.Recover(b.t.Context(), o, func(r Recovered) { out = append(out, r) })
	slices.SortFunc(out, func(a, b Recovered) int { return int(a.Task.TaskID - b.Task.TaskID) })
	return out, err
}

// inWords are reports without their messages.
func inWords(found []Recovered) string {
	var lines []string
	for _, r := range found {
		lines = append(lines, fmt.Sprintf("%s %s: %s", r.Task.Key, r.Task.Status, r.Outcome))
	}
	return strings.Join(lines, "\n")
}

func lines(l ...string) string { return strings.Join(l, "\n") }

// oneOfEach writes a task for each thing that a recovery may find.
func (b *bench) oneOfEach() {
	b.t.Helper()
	hour := `clock_timestamp() + interval '1 hour'`
	for i, row := range []map[string]string{
		released,
		oldRow,
		and(expired, "sending", `true`),
		expired,
		and(oldRow, "failures", `5`),
		and(oldRow, "give_up_at", hoursAgo(1)),
		and(expired, "failures", `4`),
		and(expired, "lease_until", hour, "sending", `true`),
		and(oldRow, "next_attempt_at", hour),
		parkedBy(idemstore.CauseAge),
		parkedBy(idemstore.CauseBudget, "next_attempt_at", hour),
		parkedBy(idemstore.CauseAbsent),
		and(oldRow, "status", `'finished'`, "finished_at", `clock_timestamp()`),
		and(released, "created_at", hoursAgo(25)),
	} {
		b.insert(b.kind, numbered(i+1), row)
	}
}

// A dry run says what would happen, and nothing happens.
func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.oneOfEach()
	before := b.rows()
	matched := 0
	found, err := b.recover(RecoverOptions{NewerThan: 24 * time.Hour, Limit: 11, DryRun: true, Matched: func(n int) { matched = n }})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := inWords(found), lines(
		"pay_1 started: would_perform", "pay_2 unknown: would_ask", "pay_3 started: would_ask", "pay_4 started: would_perform",
		"pay_5 unknown: would_park", "pay_6 unknown: would_park", "pay_7 started: would_park", "pay_8 started: skipped", "pay_9 unknown: skipped",
		"pay_10 needs_review: would_ask", "pay_11 needs_review: skipped"); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	for _, r := range found {
		if r.Message == "" {
			t.Errorf("%s: no message", r.Task.Key)
		}
	}
	if matched != 11 {
		t.Errorf("%d match", matched)
	}
	if after := b.rows(); after != before {
		t.Errorf("the rows were\n%s\nand are\n%s", before, after)
	}
	if w, e, lookups := b.pay.counts(); w+e+lookups != 0 {
		t.Errorf("W=%d E=%d look-ups=%d", w, e, lookups)
	}
}

// Each of these does what the dry run said, and the audit names who wanted it and why.
func TestRecoverByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pay.onLookup = told(200, "pay_x")
	b.oneOfEach()
	found, err := b.recover(byHand)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := inWords(found), lines(
		"pay_1 finished: settled", "pay_2 finished: settled", "pay_3 finished: settled", "pay_4 finished: settled",
		"pay_5 needs_review: parked", "pay_6 needs_review: parked", "pay_7 needs_review: parked", "pay_8 started: skipped", "pay_9 unknown: skipped",
		"pay_10 finished: settled", "pay_11 needs_review: skipped"); got != want {
		t.Errorf("it came to\n%s\nwant\n%s", got, want)
	}
	if w, e, lookups := b.pay.counts(); w != 2 || e != 2 || lookups != 3 {
		t.Errorf("W=%d E=%d look-ups=%d", w, e, lookups)
	}
	for key, want := range map[int][]string{
		1: {"started: taken up without its message; ticket 7", "finished: settled without its message (pay_1)"},
		2: {"started: taken up without its message; ticket 7", "finished: the provider was asked: it happened (pay_x)"},
		3: {"started: taken over: the lease of attempt 1 ran out; ticket 7", "finished: the provider was asked: it happened (pay_x)"},
		5: {"needs_review: parked: 5 failures, the budget is used up; ticket 7"},
		8: nil, 10: {"finished: asked by recovery; the provider was asked: it happened as pay_x: ticket 7 (pay_x)"},
	} {
		var got []string
		for _, e := range b.events(found[key-1].Task.TaskID) {
			text := fmt.Sprintf("%s: %s", e.NewStatus, e.Reason)
			if e.ExternalID != "" {
				text += " (" + e.ExternalID + ")"
			}
			got = append(got, text)
			if e.Actor != "anna" {
				t.Errorf("pay_%d: %s did it", key, e.Actor)
			}
		}
		if key == 1 && len(got) == 2 { // whichever of the two that were sent came first
			got[1] = "finished: settled without its message (pay_1)"
		}
		if !slices.Equal(got, want) {
			t.Errorf("pay_%d: audit\n%s\nwant\n%s", key, lines(got...), lines(want...))
		}
	}
}

// What would happen to a task whose provider cannot be asked depends on its key.
func TestDryRunWithoutALookup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Lookup = nil
	for i, row := range []map[string]string{oldRow, oldKey, and(oldRow, "external_id", `'pay_7'`), parkedBy(idemstore.CauseAge)} {
		b.insert(b.kind, numbered(i+1), row)
	}
	o := byHand
	o.DryRun = true
	found, err := b.recover(o)
	if got, want := inWords(found), lines("pay_1 unknown: would_perform", "pay_2 unknown: would_park", "pay_3 unknown: would_park"); got != want || err != nil {
		t.Errorf("found\n%s\nwant\n%s (%v)", got, want, err)
	}
	found, err = b.recover(byHand)
	if got, want := inWords(found), lines("pay_1 finished: settled", "pay_2 needs_review: parked", "pay_3 needs_review: parked"); got != want || err != nil {
		t.Errorf("it came to\n%s\nwant\n%s (%v)", got, want, err)
	}
}

func TestDryRunOfALocalKind(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	crashed := and(released, "lease_until", `clock_timestamp() - interval '1 second'`)
	for i, row := range []map[string]string{released, crashed, and(crashed, "failures", `4`), parkedBy(idemstore.CauseBudget)} {
		b.insert(b.kind, numbered(i+1), row)
	}
	o := byHand
	o.DryRun = true
	found, err := b.recover(o, b.local)
	if got, want := inWords(found), lines("pay_1 started: would_perform", "pay_2 started: would_perform", "pay_3 started: would_park"); got != want || err != nil {
		t.Errorf("found\n%s\nwant\n%s (%v)", got, want, err)
	}
	if notes := b.notes(); notes != "" {
		t.Errorf("a dry run wrote %s", notes)
	}
}

// Nothing is done where more match than the limit, or where the options cannot be meant.
func TestRecoverRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.insertMany(3, released)
	before := b.rows()
	with := func(change func(*RecoverOptions)) RecoverOptions {
		o := byHand
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		o    RecoverOptions
		says string
	}{
		"too many":       {with(func(o *RecoverOptions) { o.Limit = 2 }), "more tasks match than the limit allows: 2"},
		"too many, dry":  {with(func(o *RecoverOptions) { o.Limit, o.DryRun = 2, true }), "limit"},
		"no limit":       {with(func(o *RecoverOptions) { o.Limit = 0 }), "Limit"},
		"no window":      {with(func(o *RecoverOptions) { o.NewerThan = 0 }), "NewerThan"},
		"an empty one":   {with(func(o *RecoverOptions) { o.OlderThan = o.NewerThan }), "OlderThan"},
		"in the future":  {with(func(o *RecoverOptions) { o.OlderThan = -1 }), "OlderThan"},
		"nobody does it": {with(func(o *RecoverOptions) { o.Actor = "" }), "Actor"},
		"for no reason":  {with(func(o *RecoverOptions) { o.Reason = "" }), "Reason"},
	} {
		found, err := b.recover(c.o)
		says(t, name, err, c.says)
		if len(found) > 0 || errors.Is(err, ErrTooMany) != strings.HasPrefix(name, "too many") {
			t.Errorf("%s: %v and %d reports", name, err, len(found))
		}
	}
	if after := b.rows(); after != before {
		t.Errorf("the rows were\n%s\nand are\n%s", before, after)
	}
	b.exec(`update settle.schema_version set version = version + 1, usable_from = version + 1`)
	_, err := b.recover(byHand)
	says(t, "another schema", err, "newer build")
}

// The window is about when tasks were created.
func TestRecoverLooksAtTheWindowOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, age := range []int{0, 2, 4} {
		b.insert(b.kind, numbered(i+1), and(released, "created_at", hoursAgo(age)))
	}
	o := byHand
	o.OlderThan, o.NewerThan = time.Hour, 3*time.Hour
	found, err := b.recover(o)
	if got, want := inWords(found), "pay_2 finished: settled"; got != want || err != nil {
		t.Errorf("it came to\n%s\nwant\n%s (%v)", got, want, err)
	}
	if left := b.count(`status = 'started' and attempts = 1`); left != 2 {
		t.Errorf("%d of 2 others were left alone", left)
	}
}

// A recovery by hand beside workers and their messages: one attempt each, and nobody is surprised.
func TestRecoverByHandBesideWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Lease = 20 * time.Second // a slow machine must not lose it
	const n = 40
	b.pay.onLookup = told(200, "found")
	b.insertMany(n, oldRow)
	for i := 1; i <= n; i++ {
		b.publish(numbered(i))
	}
	b.run()
	found, err := b.recover(byHand)
	if err != nil {
		t.Fatal(err)
	}
	b.awaitSettled()
	if good := b.count(`status = 'finished' and attempts = 2`); good != n {
		t.Errorf("%d of %d tasks were finished by one attempt", good, n)
	}
	for _, r := range found {
		if r.Outcome != RecoverSettled && r.Outcome != RecoverSkipped {
			t.Errorf("%s: %s, %s", r.Task.Key, r.Outcome, r.Message)
		}
	}
	if w, _, lookups := b.pay.counts(); w != 0 || lookups != n {
		t.Errorf("W=%d and %d look-ups, want none and %d", w, lookups, n)
	}
}

// When it is told to end it takes nothing up any more, and what has begun comes to its end.
func TestRecoverEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Slots = 1
	entered, release := b.pay.hold()
	b.insertMany(5, released)
	e := b.engine(b.kind)
	ctx, cancel := context.WithCancel(t.Context())
	var found []Recovered
	ended := make(chan error, 1)
	go func() { ended <- e.Recover(ctx, byHand, func(r Recovered) { found = append(found, r) }) }()
	await(t, entered, "the first task is at the provider")
	cancel()
	awaitDraining(e)
	release()
	if err := await(t, ended, "the end of the recovery"); err != nil {
		t.Fatal(err)
	}
	settled := slices.DeleteFunc(slices.Clone(found), func(r Recovered) bool { return r.Outcome != RecoverSettled })
	if len(found) != 5 || len(settled) != 1 || b.count(`attempts = 1`) != 4 {
		t.Errorf("it came to\n%s", inWords(found))
	}
	says(t, "again", e.Recover(t.Context(), byHand, nil), "already")
}

// Its leases are renewed like a worker's, however long the provider takes.
func TestRecoverKeepsItsLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Policy.Deadline, b.conf.Lease = 20*time.Second, 10*time.Second
	entered, release := b.pay.hold()
	b.insert(b.kind, numbered(1), released)
	ended := make(chan error, 1)
	go func() {
		_, err := b.recover(byHand)
		ended <- err
	}()
	await(t, entered, "the task is at the provider")
	first := b.await("pay_1", "held", func(t idemstore.Task) bool { return t.LeaseUntil != nil })
	b.await("pay_1", "renewed", func(t idemstore.Task) bool { return t.LeaseUntil.After(*first.LeaseUntil) })
	release()
	if err := await(t, ended, "the end of the recovery"); err != nil {
		t.Error(err)
	}
	b.awaitStatus("pay_1", idemstore.Finished)
}

// A provider that is down leaves tasks open, and what it says of a parked one leaves it parked.
func TestRecoverWhileTheProviderIsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pay.onLookup = status(http.StatusServiceUnavailable)
	b.insert(b.kind, numbered(1), oldRow)
	b.insert(b.kind, numbered(2), parkedBy(idemstore.CauseAge))
	found, err := b.recover(byHand)
	if got, want := inWords(found), lines("pay_1 unknown: open", "pay_2 needs_review: still_parked"); got != want || err != nil {
		t.Errorf("it came to\n%s\nwant\n%s (%v)", got, want, err)
	}
	for _, r := range found {
		if !strings.Contains(r.Message, "the provider was asked") {
			t.Errorf("%s: %s", r.Task.Key, r.Message)
		}
	}
}

// The time of the last look is that of the kind that waits for longest.
func TestLastRecovery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.engine(plain("test.a"), plain("test.b"))
	if last := e.LastRecovery(); !last.IsZero() {
		t.Errorf("before the first: %v", last)
	}
	e.kinds[0].looked.Store(2_000_000_000)
	if last := e.LastRecovery(); !last.IsZero() {
		t.Errorf("one kind was never looked at: %v", last)
	}
	e.kinds[1].looked.Store(1_000_000_000)
	if last := e.LastRecovery(); !last.Equal(time.Unix(1, 0)) {
		t.Errorf("%v, want the older of both", last)
	}
}
