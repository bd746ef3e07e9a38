package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// D-35. Contact changes are pushed into a CRM: each event is a task of its own, and the contact is the entity.

func TestD35OlderEventIsNotSent(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.serve(b.push)
	eight := b.event(8)
	applied := b.awaitStatus(eight, idemstore.Finished)
	seven := b.skipped(b.event(7))
	if want := fmt.Sprintf("this is version 7; task %d has applied version 8", applied.TaskID); !strings.Contains(b.auditOf(seven.TaskID), want) {
		t.Errorf("the audit says %q, want %q", b.auditOf(seven.TaskID), want)
	}
	b.skipped(b.event(8, "_again")) // the same version under another key
	b.skipped(b.send(pushJob{Contact: "c", Event: "v6", Number: ptr(int64(6)), Time: "2999-01-01T00:00:00Z"}))
	nine := b.event(9)
	b.awaitStatus(nine, idemstore.Finished)
	b.awaitSettled()
	b.inCRM(2, eight, nine)
	if b.applied() != "9" { // and nothing of the time of what was skipped
		t.Errorf("applied is %s", b.applied())
	}
}

// Times are compared to their last digit, and in any zone.
func TestD35TimesInFull(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.serve(b.push)
	at := func(name, time string) string { return b.send(pushJob{Contact: "c", Event: name, Time: time}) }
	first := at("a", "2026-11-29T10:00:00.0000000001Z")
	b.awaitStatus(first, idemstore.Finished)
	b.skipped(at("b", "2026-11-29T10:00:00.00000000009Z"))
	b.skipped(at("c", "2026-11-29T12:00:00.00000000010+02:00"))
	last := at("d", "2026-11-29T05:30:00.00000000011-04:30")
	b.awaitStatus(last, idemstore.Finished)
	b.inCRM(2, first, last)
}

// Nobody can put a number and a time in order.
func TestD35IncomparableVersions(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.serve(b.push)
	first := b.event(8)
	b.awaitStatus(first, idemstore.Finished)
	task := b.awaitStatus(b.send(pushJob{Contact: "c", Event: "x", Time: "2026-11-29T10:00:00Z"}), idemstore.NeedsReview)
	if task.Cause != idemstore.CauseConflict || task.Unsure || !strings.Contains(task.LastError, "version 2026-11-29T10:00:00Z;") {
		t.Errorf("parked by %s, unsure %v, error %q", task.Cause, task.Unsure, task.LastError)
	}
	b.awaitSettled()
	b.inCRM(1, first)
}

// Two processes: version 7 is at the CRM when version 8, or 6, comes to the other one.
func TestD35OneEventAtATime(t *testing.T) {
	t.Parallel()
	for _, next := range []int64{8, 6} {
		t.Run(fmt.Sprint(next), func(t *testing.T) {
			t.Parallel()
			b := newCRM(t)
			b.conf.Slots = 1
			b.serve(b.push)
			entered, release := b.pay.hold()
			seven := b.event(7)
			await(t, entered, "version 7 is at the CRM")
			b.serve(b.push)
			other := b.event(next)
			held := b.awaitHeld(other)
			if held.Failures != 0 || held.Unsure || held.ErrorClass != "not_sent" {
				t.Errorf("to be held costs: %d failures, unsure %v, class %q", held.Failures, held.Unsure, held.ErrorClass)
			}
			b.inCRM(1)
			release()
			b.awaitStatus(seven, idemstore.Finished)
			if next == 8 {
				b.awaitStatus(other, idemstore.Finished)
				b.inCRM(2, seven, other)
			} else {
				b.skipped(other)
				b.inCRM(1, seven)
			}
			b.awaitSettled()
		})
	}
}

// Version 7 was turned away and waits for its next turn. That holds nothing: version 8 goes first.
func TestD35OvertakenWhileWaiting(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.push.Policy = Policy{BackoffMin: time.Hour, BackoffMax: time.Hour}
	b.serve(b.push)
	b.pay.then(status(http.StatusTooManyRequests))
	seven := b.event(7)
	b.await(seven, "given back", func(t idemstore.Task) bool { return t.Status == idemstore.Started && t.LeaseUntil == nil })
	eight := b.event(8)
	if task := b.awaitStatus(eight, idemstore.Finished); task.Attempt != 1 {
		t.Errorf("version 8 had to wait: %d attempts", task.Attempt)
	}
	b.exec(`update settle.tasks set next_attempt_at = clock_timestamp() where key = $1`, seven)
	b.event(7) // the first message comes in an hour
	if task := b.skipped(seven); task.Attempt != 2 {
		t.Errorf("version 7 came first: %d attempts", task.Attempt)
	}
	b.inCRM(2, eight)
}

// A refused event was not applied: an older one is still right.
func TestD35RefusedEventIsNoVersion(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.serve(b.push)
	b.pay.then(status(http.StatusPaymentRequired))
	b.awaitStatus(b.event(8), idemstore.Failed)
	seven := b.event(7)
	b.awaitStatus(seven, idemstore.Finished)
	b.inCRM(2, seven)
}

// Version 8 was applied and its answer lost: nothing is sent until the CRM was asked, and what it says counts.
func TestD35LookUpMovesTheVersion(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.serve(b.push)
	mute := make(chan struct{})
	b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-mute:
			b.pay.honestLookup(w, r)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	b.pay.then(b.pay.effectThen(noAnswer))
	eight := b.event(8)
	b.awaitStatus(eight, idemstore.Unknown)
	seven, nine := b.event(7), b.event(9)
	b.awaitHeld(seven)
	b.awaitHeld(nine)
	b.inCRM(1, eight)
	close(mute)
	if task := b.awaitStatus(eight, idemstore.Finished); b.commits(eight) != fmt.Sprint(int(LookedUp), " ", task.ExternalID) {
		t.Errorf("version 8: %s", b.commits(eight))
	}
	b.skipped(seven)
	b.awaitStatus(nine, idemstore.Finished)
	b.inCRM(2, eight, nine)
}

// Who waits for a holder that waits itself comes again when that one is due, and not all the time.
func TestD35WaitsForAsLongAsTheHolder(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.push.Policy = Policy{BackoffMin: 100 * time.Millisecond, BackoffMax: 8 * time.Hour}
	b.pay.onLookup = status(http.StatusServiceUnavailable)
	b.serve(b.push)
	b.pay.then(noAnswer)
	seven := b.event(7)
	b.awaitStatus(seven, idemstore.Unknown)
	b.exec(`update settle.tasks set status = 'unknown', lease_until = null, sending = false, token = gen_random_uuid(),
		next_attempt_at = clock_timestamp() + interval '1 hour' where key = $1`, seven)
	held := b.awaitHeld(b.event(8))
	if wait := held.NextAttemptAt.Sub(held.UpdatedAt); wait < 59*time.Minute || wait > 61*time.Minute {
		t.Errorf("comes again in %s", wait)
	}
}

// The database says for how long nobody gets at the entity; nobody waits for that with a slot in hand.
func TestD35LockedEntity(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.overtaken()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from settle.entities for update`); err != nil {
		t.Fatal(err)
	}
	b.serve(b.push)
	nine := b.event(9)
	b.await(nine, "given back", func(t idemstore.Task) bool { return strings.Contains(t.LastError, "guard of the entity is busy") })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if task := b.awaitStatus(nine, idemstore.Finished); task.Failures != 0 {
		t.Errorf("waiting for the lock cost %d failures", task.Failures)
	}
	b.inCRM(1, nine)
}

// Kinds without Entity, and jobs without an id, leave no row.
func TestNoEntityNoGuard(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	pay := b.pay.kind()
	b.serve(b.push, pay)
	if _, err := Publish(t.Context(), b.js, pay, payJob{Order: NewID("1")}); err != nil {
		t.Fatal(err)
	}
	one := b.send(pushJob{Event: "v8", Number: ptr(int64(8))})
	b.awaitStatus(one, idemstore.Finished)
	two := b.send(pushJob{Event: "v7", Number: ptr(int64(7))})
	b.awaitStatus(two, idemstore.Finished)
	b.awaitSettled()
	var rows int
	if err := b.pool.QueryRow(t.Context(), `select count(*) from settle.entities`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d entities (%v)", rows, err)
	}
}

// An event without a usable version is refused by the publisher, and by a worker that is given it all the same.
func TestEventsWithoutAVersion(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	var r *InvalidJobError
	if _, err := Publish(t.Context(), b.js, b.push, pushJob{Contact: "c", Event: "x"}); !errors.As(err, &r) || r.Reason != idemstore.BadKey {
		t.Errorf("publish: %v", err)
	}
	b.serve(b.push)
	b.send(pushJob{Contact: "c", Event: "x", Time: "yesterday"})
	b.awaitSettled()
	var reason, detail string
	if err := b.pool.QueryRow(t.Context(), `select reason, detail from settle.refusals`).Scan(&reason, &detail); err != nil ||
		reason != string(idemstore.BadKey) || !strings.Contains(detail, "version") {
		t.Errorf("refused as %s: %q (%v)", reason, detail, err)
	}
	b.inCRM(0)
}

// Many events of a few contacts, out of order and repeated, at a CRM that loses answers and turns requests away, on two
// processes: each contact goes forward only and ends at its newest version, and no task is left over.
func TestD35Storm(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.push.Policy.MaxFailures = 100
	const contacts, versions = 3, 12
	for range 10 {
		b.pay.then(b.pay.effectThen(noAnswer), noAnswer, status(http.StatusTooManyRequests), b.pay.effectThen(status(http.StatusInternalServerError)))
	}
	b.serve(b.push)
	b.serve(b.push)
	var keys []string
	for _, i := range rand.Perm(contacts * versions) {
		n := int64(i/contacts + 1)
		j := pushJob{Contact: fmt.Sprint("c", i%contacts), Event: fmt.Sprint("v", n), Number: &n}
		keys = append(keys, b.send(j), b.send(j))
	}
	for _, key := range keys {
		b.awaitStatus(key, idemstore.Finished)
	}
	b.awaitSettled()
	newest := map[string]int{}
	for _, key := range b.pay.inOrder() {
		var contact, version int
		if _, err := fmt.Sscanf(key, "crm_c%d_v%d", &contact, &version); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("c", contact)
		if version <= newest[name] {
			t.Errorf("the CRM took version %d of %s after version %d", version, name, newest[name])
		}
		newest[name] = version
	}
	for name, version := range newest {
		if version != versions {
			t.Errorf("%s ended at version %d", name, version)
		}
	}
	if len(newest) != contacts {
		t.Errorf("the CRM has %d contacts", len(newest))
	}
}

// Events that wait for another one of their entity take nothing of the provider's cap from those of other entities.
func TestD35HeldEventsNeedNoTurn(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.conf.Slots = 4
	b.push.Provider.MaxPerSecond = 1
	b.push.Policy = Policy{BackoffMin: 8 * time.Hour, BackoffMax: 8 * time.Hour}
	b.serve(b.push)
	b.pay.then(noAnswer)
	b.awaitStatus(b.event(1), idemstore.Unknown) // and not asked about for hours
	const held = 30
	for n := range int64(held) {
		b.event(n + 2)
	}
	began := time.Now()
	one := int64(1)
	other := b.send(pushJob{Contact: "d", Event: "v1", Number: &one})
	b.awaitStatus(other, idemstore.Finished)
	if took := time.Since(began); took > held*time.Second/2 {
		t.Errorf("the event of another entity had to wait for %s behind %d that sent nothing, at one call a second", took, held)
	}
}
