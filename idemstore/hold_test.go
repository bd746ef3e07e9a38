package idemstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// wrongFences are fences beside the right one. Number and token must both match.
func wrongFences(f idemstore.Fence) map[string]idemstore.Fence {
	number, token := f, f
	number.Attempt++
	token.Token = uuid.New()
	return map[string]idemstore.Fence{"number right, token wrong": token, "token right, number wrong": number}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held, expired, saved, locked := b.performing(t, "held"), b.performing(t, "expired"), b.performing(t, "saved"), b.performing(t, "locked")
	released, shortest := b.performing(t, "released"), b.asking(t, "asking")
	b.expire(t, expired.TaskID)
	b.save(t, finished(saved))
	if _, err := b.Release(t.Context(), idemstore.Release{Fence: released}); err != nil {
		t.Fatal(err)
	}
	fences := map[string]idemstore.Fence{"held": held, "asking": shortest, "expired": expired, "saved": saved, "locked": locked,
		"released": released, "gone": {TaskID: 1 << 40, Attempt: 1, Token: uuid.New()}}
	for name, f := range wrongFences(b.performing(t, "other")) {
		fences[name] = f
	}
	unlock := b.lock(t, locked.TaskID)
	defer unlock()
	var renewals []idemstore.Renewal
	for _, f := range fences {
		renewals = append(renewals, idemstore.Renewal{Fence: f, Lease: time.Hour})
	}
	confirmed, err := b.Renew(t.Context(), renewals...)
	if err != nil {
		t.Fatal(err)
	}
	now := query[time.Time](t, b.pool, `select clock_timestamp()`)
	for name, f := range fences {
		want := name == "held" || name == "asking"
		if confirmed[f] != want {
			t.Errorf("%s: confirmed %v, want %v", name, confirmed[f], want)
		}
		if name == "gone" {
			continue
		}
		if renewed := near(b.task(t, f.TaskID).LeaseUntil, now.Add(time.Hour)); renewed != want {
			t.Errorf("%s: lease until %v", name, b.task(t, f.TaskID).LeaseUntil)
		}
	}
	if row := b.task(t, shortest.TaskID); row.Sending || row.LastSentBy == nil {
		t.Errorf("a renewal changed what was sent: %+v", row)
	}
}

func TestRenewNothing(t *testing.T) {
	t.Parallel()
	if confirmed, err := newBench(t).Renew(t.Context()); err != nil || len(confirmed) != 0 {
		t.Errorf("confirmed %v (%v)", confirmed, err)
	}
}

// An expired lease stays expired: the row may already be on somebody's list.
func TestRenewNeverRevives(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.expire(t, f.TaskID)
	before := b.row(t, f.TaskID)
	for range 2 {
		confirmed, err := b.Renew(t.Context(), idemstore.Renewal{Fence: f, Lease: time.Hour})
		if err != nil || confirmed[f] {
			t.Fatalf("confirmed %v (%v)", confirmed, err)
		}
	}
	if b.row(t, f.TaskID) != before {
		t.Error("the row changed")
	}
}

// armOf asks to resend within a day to a provider that keeps keys.
func armOf(f idemstore.Fence) idemstore.Arm {
	return idemstore.Arm{Fence: f, Lease: time.Minute, Keyed: true, KeyLifetime: 24 * time.Hour, Provider: "provider-a", Reason: "absent"}
}

func TestArm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		name   string
		row    string // beside a task that was taken over a moment ago
		change func(*idemstore.Arm)
		armed  bool
		rests  time.Duration // on the key, at most
	}{
		{"young key", ``, nil, true, 24 * time.Hour},
		{"young key, almost old", `first_sent_at = clock_timestamp() - interval '23 h'`, nil, true, time.Hour},
		{"key that lives for ever", `first_sent_at = clock_timestamp() - interval '10 years'`, func(a *idemstore.Arm) { a.KeyLifetime = 0 }, true, 0},
		{"old key", `first_sent_at = clock_timestamp() - interval '25 h'`, nil, false, 0},
		{"age of the key unknown", `first_sent_at = null`, nil, false, 0},
		{"another provider now", ``, func(a *idemstore.Arm) { a.Provider = "provider-b" }, false, 0},
		{"provider without keys", ``, func(a *idemstore.Arm) { a.Keyed = false }, false, 0},
		{"provider without keys, resend permitted", ``, func(a *idemstore.Arm) { a.Keyed, a.Permitted = false, true }, true, 0},
		{"resend permitted, sent to another provider", `provider = 'provider-b'`, func(a *idemstore.Arm) { a.Permitted, a.KeyLifetime = true, time.Second }, false, 0},
		{"resend permitted, sent to another provider, permitted once by a person", `provider = 'provider-b', resend_once = true`, nil, true, 0},
		{"old key, permitted once by a person", `first_sent_at = clock_timestamp() - interval '25 h', resend_once = true`, nil, true, 0},
		{"young key, permitted once by a person", `resend_once = true`, nil, true, 24 * time.Hour},
		{"old key, permitted once by a person, but decided while it was young", `first_sent_at = clock_timestamp() - interval '25 h', resend_once = true`,
			func(a *idemstore.Arm) { a.ByKey = true }, false, 0},
		{"young key, decided by it", ``, func(a *idemstore.Arm) { a.ByKey = true }, true, 24 * time.Hour},
		{"late proof", `evidence_id = 'ch_1'`, func(a *idemstore.Arm) { a.Permitted = true }, false, 0},
		{"external id known", `external_id = 'ch_1', resend_once = true`, nil, false, 0},
		{"lease over", `lease_until = clock_timestamp() - interval '1 ms'`, func(a *idemstore.Arm) { a.Permitted = true }, false, 0},
		{"not started", `status = 'unknown', lease_until = null`, func(a *idemstore.Arm) { a.Permitted = true }, false, 0},
		{"number wrong", ``, func(a *idemstore.Arm) { a.Attempt-- }, false, 0},
		{"token wrong", ``, func(a *idemstore.Arm) { a.Token = uuid.New() }, false, 0},
		{"no such task", ``, func(a *idemstore.Arm) { a.TaskID = 1 << 40 }, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := b.asking(t, c.name)
			b.set(t, f.TaskID, `absent_at = clock_timestamp()`)
			if c.row != "" {
				b.set(t, f.TaskID, c.row)
			}
			before := b.row(t, f.TaskID)
			a := armOf(f)
			if c.change != nil {
				c.change(&a)
			}
			got, err := b.Arm(t.Context(), a)
			if !c.armed {
				if !errors.Is(err, idemstore.ErrLost) {
					t.Errorf("armed %+v (%v), want ErrLost", got, err)
				}
				if b.row(t, f.TaskID) != before {
					t.Error("the row changed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.KeyRest > c.rests || got.KeyRest <= c.rests-time.Minute && c.rests > 0 {
				t.Errorf("rests on the key for %s, want %s", got.KeyRest, c.rests)
			}
			row := b.task(t, f.TaskID)
			if !row.Sending || !row.Unsure || row.AbsentAt != nil || row.ResendOnce || row.FirstSentAt == nil || row.Attempt != 2 {
				t.Errorf("the armed row: %+v", row)
			}
		})
	}
}

// A permission for one resend is used up by one.
func TestArmUsesUpThePermission(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.asking(t, "order_1")
	b.set(t, f.TaskID, `resend_once = true, first_sent_at = clock_timestamp() - interval '2 days'`)
	if _, err := b.Arm(t.Context(), armOf(f)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Arm(t.Context(), armOf(f)); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("armed a second time (%v)", err)
	}
	if reasons := b.reasons(t, f.TaskID); len(reasons) != 2 || reasons[1] != "absent" {
		t.Errorf("audit %q, want the take-over and one resend", reasons)
	}
}

// The age of the key is that of the first send, which a resend does not change.
func TestArmKeepsTheFirstSend(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.asking(t, "order_1")
	b.set(t, f.TaskID, `first_sent_at = clock_timestamp() - interval '5 h'`)
	before := b.task(t, f.TaskID).FirstSentAt
	if _, err := b.Arm(t.Context(), armOf(f)); err != nil {
		t.Fatal(err)
	}
	if after := b.task(t, f.TaskID).FirstSentAt; !after.Equal(*before) {
		t.Errorf("first sent at %v, was %v", after, before)
	}
}

// The lease that counts is the one that the wait was for, also here.
func TestArmSeesTheRowThatItWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	renewed, proven := b.asking(t, "renewed"), b.asking(t, "proven")
	for _, c := range []struct {
		fence    idemstore.Fence
		meantime string
		want     error
	}{
		{renewed, `lease_until = clock_timestamp() + interval '1 min'`, nil},
		{proven, `evidence_id = 'ch_1', lease_until = clock_timestamp() + interval '1 min'`, idemstore.ErrLost},
	} {
		b.set(t, c.fence.TaskID, `lease_until = clock_timestamp() + interval '300 ms'`)
		commit := hold(t, b.pool, `update settle.tasks set `+c.meantime+` where id = $1`, c.fence.TaskID)
		done := async(func() (idemstore.Armed, error) { return b.Arm(t.Context(), armOf(c.fence)) })
		b.awaitWaiting(t, 1)
		b.awaitLeaseEnd(t, c.fence.TaskID)
		commit()
		if r := <-done; !errors.Is(r.err, c.want) {
			t.Errorf("armed %+v (%v), want %v", r.value, r.err, c.want)
		}
	}
}

// awaitLeaseEnd waits until a lease is over by the database clock.
func (b bench) awaitLeaseEnd(t *testing.T, id int64) {
	t.Helper()
	rig.Eventually(t, soon, "the lease is over", func() bool {
		return query[bool](t, b.pool, `select lease_until <= clock_timestamp() from settle.tasks where id = $1`, id)
	})
}
