package consumer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

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
