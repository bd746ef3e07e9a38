package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// D-35. Contact changes are pushed into a CRM: each event is a task of its own, and the contact is the entity.

// pushJob is one event of a contact.
type pushJob struct {
	Contact string `json:"contact"`
	Event   string `json:"event"`
	Number  *int64 `json:"number,omitempty"`
	Time    string `json:"time,omitempty"`
}

// crmBench is a bench with the kind "crm.push". The provider's effects, in the order in which it made them, are the CRM.
type crmBench struct {
	*bench
	push Kind[pushJob, paid]
}

func newCRM(t *testing.T) *crmBench {
	t.Helper()
	b := &crmBench{bench: newBench(t)}
	b.exec(`create table public.pushed (key text primary key, source int, result text check (result <> 'refused'))`)
	b.push = crmKind(b.pay)
	b.kind.Name = b.push.Name // whose tasks are looked for
	return b
}

func crmKind(p *payProvider) Kind[pushJob, paid] {
	return Kind[pushJob, paid]{
		Name: "crm.push", Contract: Contract{Effect: "a contact in the CRM"}, Provider: Provider{Identity: "crm", KeyPrefix: "crm_"},
		Key:        func(j pushJob) (string, error) { return "crm_" + j.Contact + "_" + j.Event, nil },
		Entity:     func(j pushJob) (string, Version) { return j.Contact, Version{Number: j.Number, Time: j.Time} },
		ExternalID: func(r paid) string { return r.ID },
		Perform: func(ctx context.Context, a *Attempt[pushJob]) (paid, error) {
			return p.perform(ctx, &Attempt[payJob]{ProviderKey: a.ProviderKey, run: a.run})
		},
		Lookup: func(ctx context.Context, a *Attempt[pushJob]) (paid, Verdict, error) {
			return p.lookup(ctx, &Attempt[payJob]{ProviderKey: a.ProviderKey, ExternalID: a.ExternalID, run: a.run})
		},
		Commit: func(w *Writes, f Final[pushJob, paid]) error {
			w.Exec(`insert into public.pushed values ($1, $2, $3)`, f.Key, int(f.Source), f.Result.ID+f.Refused)
			return nil
		},
	}
}

// event publishes version n of the contact "c", as an event named "vN" plus suffix, and returns its key.
func (b *crmBench) event(n int64, suffix ...string) (key string) {
	b.t.Helper()
	return b.send(pushJob{Contact: "c", Event: fmt.Sprint("v", n) + strings.Join(suffix, ""), Number: &n})
}

func (b *crmBench) send(j pushJob) (key string) {
	b.t.Helper()
	body, err := json.Marshal(j)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.js.Publish(b.t.Context(), subject(b.push.Name), body); err != nil {
		b.t.Fatal(err)
	}
	return "crm_" + j.Contact + "_" + j.Event
}

// inCRM checks what the CRM took, in this order, and how many requests came.
func (b *crmBench) inCRM(requests int, keys ...string) {
	b.t.Helper()
	w, _, _ := b.pay.counts()
	if got := b.pay.inOrder(); !slices.Equal(got, keys) || w != requests {
		b.t.Errorf("the CRM took %v in %d requests, want %v in %d", got, w, keys, requests)
	}
}

// inOrder are the keys of the effects, in the order in which they were made.
func (p *payProvider) inOrder() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := func(key string) (n int) {
		_, _ = fmt.Sscanf(p.effects[key], "pay_%d", &n)
		return n
	}
	return slices.SortedFunc(maps.Keys(p.effects), func(x, y string) int { return number(x) - number(y) })
}

// skipped checks an event that was finished without being sent.
func (b *crmBench) skipped(key string) idemstore.Task {
	b.t.Helper()
	task := b.awaitStatus(key, idemstore.Finished)
	if string(task.Result) != `{"id":""}` || task.ExternalID != "" {
		b.t.Errorf("%s was skipped with %s, id %q", key, task.Result, task.ExternalID)
	}
	if got := b.commits(key); got != fmt.Sprint(int(Skipped), " ") {
		b.t.Errorf("%s: Commit saw %q", key, got)
	}
	if audit := b.auditOf(task.TaskID); !strings.Contains(audit, "finished: stale: this version or a newer one") {
		b.t.Errorf("%s: the audit says %q", key, audit)
	}
	return task
}

// commits is what Commit was given of a key.
func (b *crmBench) commits(key string) (out string) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select coalesce(string_agg(source || ' ' || result, ', '), '') from public.pushed where key = $1`,
		key).Scan(&out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) auditOf(task int64) string {
	b.t.Helper()
	events, err := b.store.Events(b.t.Context(), task)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s: %s", e.NewStatus, e.Reason))
	}
	return strings.Join(out, "; ")
}

// awaitHeld waits until an event was given back because of the order.
func (b *crmBench) awaitHeld(key string) idemstore.Task {
	b.t.Helper()
	return b.await(key, "held", func(t idemstore.Task) bool { return strings.Contains(t.LastError, "of the same entity") })
}

// applied is the version of the contact "c" that is known to be applied.
func (b *crmBench) applied() (out string) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select concat_ws(' ', version_number, version_time) from settle.entities
		where kind = $1 and entity = 'c'`, b.push.Name).Scan(&out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// overtaken lets version 8 of the contact be there, applied by a task of long ago.
func (b *crmBench) overtaken() {
	b.t.Helper()
	b.exec(`insert into settle.entities (kind, entity, version_number, applied_by) values ($1, 'c', 8, 0)
		on conflict (kind, entity) do update set version_number = 8, applied_by = 0`, b.push.Name)
}

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

// An event that waits for a person stops older ones, which wait for what the person says, and no newer ones.
func TestD35ParkedEvent(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(b *crmBench, parked idemstore.Task, seven string){
		"it was applied": func(b *crmBench, parked idemstore.Task, seven string) {
			b.resolve(parked, Ruling{As: idemstore.Finished, Result: []byte(`{"id":"crm_8"}`)})
			b.skipped(seven)
			b.inCRM(1)
			if b.applied() != "8" {
				b.t.Errorf("applied is %s", b.applied())
			}
		},
		"it was not applied": func(b *crmBench, parked idemstore.Task, seven string) {
			b.resolve(parked, Ruling{As: idemstore.Failed})
			b.awaitStatus(seven, idemstore.Finished)
			b.inCRM(2, seven)
		},
		"a newer one comes first": func(b *crmBench, parked idemstore.Task, seven string) {
			nine := b.event(9)
			b.awaitStatus(nine, idemstore.Finished)
			b.skipped(seven)
			b.inCRM(2, nine)
			b.resolve(parked, Ruling{As: idemstore.Finished, Result: []byte(`{"id":"crm_8"}`)})
			if b.applied() != "9" {
				b.t.Errorf("the version went back to %s", b.applied())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCRM(t)
			b.push.Lookup = nil
			b.push.Provider.Unkeyed = true
			b.serve(b.push)
			b.pay.then(noAnswer)
			parked := b.awaitStatus(b.event(8), idemstore.NeedsReview)
			seven := b.event(7)
			b.awaitHeld(seven)
			decide(b, parked, seven)
		})
	}
}

// resolve decides about a task as a person does.
func (b *crmBench) resolve(task idemstore.Task, r Ruling) {
	b.t.Helper()
	o, err := NewOperator(b.pool, b.conf, b.push)
	if err != nil {
		b.t.Fatal(err)
	}
	acted, err := o.Resolve(b.t.Context(), task, ActOptions{Actor: "ann", Reason: "asked the CRM's people"}, r)
	if err != nil || acted.Outcome != OutcomeDone {
		b.t.Fatalf("resolve: %+v (%v)", acted, err)
	}
}

// An event that was parked before anything was sent stops nobody.
func TestD35ParkedUnsentEvent(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	b.push.Check = func(_ context.Context, _ DB, j pushJob) (paid, bool, error) {
		if *j.Number == 8 {
			return paid{}, false, Conflict(errors.New("no such contact here"))
		}
		return paid{}, false, nil
	}
	b.serve(b.push)
	b.awaitStatus(b.event(8), idemstore.NeedsReview)
	seven := b.event(7)
	b.awaitStatus(seven, idemstore.Finished)
	b.inCRM(1, seven)
}

// Done at the CRM and not booked here is applied all the same. A skipped event that cannot be booked was not sent, and
// is known not to have been.
func TestD35UnbookedEvents(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	usual := b.push.Commit
	b.push.Commit = func(w *Writes, f Final[pushJob, paid]) error {
		if f.Job.Event == "v8" || f.Job.Event == "v6" {
			w.Exec(`insert into public.pushed values ($1, 0, 'refused')`, f.Key)
		}
		return usual(w, f)
	}
	b.serve(b.push)
	eight := b.event(8)
	if task := b.awaitStatus(eight, idemstore.NeedsReview); task.Cause != idemstore.CauseNotBooked {
		t.Errorf("version 8 is parked by %s", task.Cause)
	}
	b.skipped(b.event(7))
	task := b.awaitStatus(b.event(6), idemstore.NeedsReview)
	if task.Cause != idemstore.CauseSkipUnbooked || task.Unsure || len(task.Result) != 0 || task.FirstSentAt != nil {
		t.Errorf("version 6 is parked by %s, unsure %v, result %s", task.Cause, task.Unsure, task.Result)
	}
	b.inCRM(1, eight)
}

// Two ids for one task: whichever it was, the version was applied.
func TestD35TwoEffects(t *testing.T) {
	t.Parallel()
	b := newCRM(t)
	usual := b.push.Perform
	b.push.Perform = func(ctx context.Context, a *Attempt[pushJob]) (paid, error) {
		if err := a.SaveExternalID(ctx, "pay_other"); err != nil {
			return paid{}, err
		}
		return usual(ctx, a)
	}
	b.serve(b.push)
	eight := b.event(8)
	if task := b.awaitStatus(eight, idemstore.NeedsReview); task.Cause != idemstore.CauseTwoEffects {
		t.Errorf("parked by %s", task.Cause)
	}
	b.skipped(b.event(7))
	b.inCRM(1, eight)
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

// Version 7 was sent, got no answer, and was overtaken. It is skipped only when it is known that it was not applied.
func TestD35OvertakenWhileUnsure(t *testing.T) {
	t.Parallel()
	const never, soon = time.Hour, 50 * time.Millisecond
	for name, c := range map[string]struct {
		absentAfter time.Duration
		effect      bool
		noLookup    bool
		sees        func(b *crmBench, key string)
	}{
		"absent, settled, twice": {absentAfter: soon, sees: func(b *crmBench, key string) {
			b.skipped(key)
			b.inCRM(1)
			if _, _, asked := b.pay.counts(); asked < 2 { // on a slow machine the first was settled before version 8 came
				b.t.Errorf("asked %d times", asked)
			}
		}},
		"absent under a young key, not settled": {absentAfter: never, sees: func(b *crmBench, key string) {
			task := b.await(key, "put off", func(t idemstore.Task) bool {
				return t.Status == idemstore.Unknown && t.NextAttemptAt.After(time.Now().Add(never/2))
			})
			if audit := b.auditOf(task.TaskID); !strings.Contains(audit, "unknown: stale, but an earlier attempt may have been applied; the provider does not know it yet") {
				b.t.Errorf("the audit says %q", audit)
			}
			b.inCRM(1)
		}},
		"found": {absentAfter: soon, effect: true, sees: func(b *crmBench, key string) {
			b.awaitStatus(key, idemstore.Finished)
			b.inCRM(1, key)
			if b.applied() != "8" {
				b.t.Errorf("the version went back to %s", b.applied())
			}
		}},
		"nobody to ask": {absentAfter: soon, noLookup: true, sees: func(b *crmBench, key string) {
			if task := b.awaitStatus(key, idemstore.NeedsReview); task.Cause != idemstore.CauseNoLookup || !task.Unsure {
				b.t.Errorf("parked by %s, unsure %v", task.Cause, task.Unsure)
			}
			b.inCRM(1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCRM(t)
			b.push.Provider.AbsentAfter = c.absentAfter
			asked, goOn := make(chan struct{}, 100), make(chan struct{})
			b.push.Check = func(ctx context.Context, db DB, _ pushJob) (paid, bool, error) { // before the guard of a resend
				var attempts int
				if err := db.QueryRow(ctx, `select attempts from settle.tasks where kind = 'crm.push'`).Scan(&attempts); err != nil || attempts == 1 {
					return paid{}, false, err
				}
				asked <- struct{}{}
				<-goOn
				return paid{}, false, nil
			}
			if c.noLookup {
				b.push.Lookup = nil
			}
			answer := http.HandlerFunc(noAnswer)
			if c.effect {
				answer = b.pay.effectThen(noAnswer)
				b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) {
					asked <- struct{}{}
					<-goOn
					b.pay.honestLookup(w, r)
				}
			}
			b.pay.then(answer)
			b.serve(b.push)
			key := b.event(7)
			b.await(key, "sent", func(t idemstore.Task) bool { return t.Unsure })
			await(t, asked, "a resend is about to go out, or the CRM is asked")
			b.overtaken()
			close(goOn)
			c.sees(b, key)
		})
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
