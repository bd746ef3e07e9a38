package consumer

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// overlap is two attempts at one task. The first is at the provider, where its effect has happened; its lease is over,
// and the second has been told that the provider does not know it.
type overlap struct {
	*bench
	heard *advisories
	// answer gives the first attempt its answer. The id is late proof then.
	answer func()
}

// newOverlap waits until the second attempt has the provider's answer. Lease and AckWait are too long to help anybody.
func newOverlap(t *testing.T, second <-chan struct{}, prepare func(*bench)) *overlap {
	t.Helper()
	b := newBench(t)
	b.slowBroker()
	b.conf.Policy.Deadline = 30 * time.Second
	prepare(b)
	r := &overlap{bench: b, heard: b.listen()}
	atProvider, answer := make(chan struct{}), make(chan struct{})
	b.pay.script = append([]http.HandlerFunc{b.pay.effectThen(func(w http.ResponseWriter, r *http.Request) {
		close(atProvider)
		select {
		case <-answer:
			b.pay.honest(w, r)
		case <-r.Context().Done():
		}
	})}, b.pay.script...)
	b.run()
	b.publish(plainJob)
	await(t, atProvider, "the first attempt reaches the provider")
	b.exec(`update settle.tasks set lease_until = clock_timestamp()`)
	b.publish(plainJob)
	await(t, second, "the second attempt goes on")
	r.answer = func() {
		close(answer)
		b.await("pay_1", "proven", func(task idemstore.Task) bool { return task.EvidenceID == "pay_1" })
	}
	return r
}

// comesTo checks the end: the row, what the provider saw, and that the first attempt told the broker nothing.
func (r *overlap) comesTo(status idemstore.Status, attempts, w int, reasons ...string) {
	r.t.Helper()
	task := r.awaitStatus("pay_1", status)
	if !eventually(r.t, 20*time.Second, func() bool { return r.messages() == 1 }) {
		r.t.Errorf("%d messages in the stream, want the first", r.messages())
	}
	if said := r.heard.about(1); len(said) > 0 {
		r.t.Errorf("the first attempt told the broker %q", said)
	}
	gotW, e, _ := r.pay.counts()
	if task.Attempt != attempts || task.Failures != 1 || gotW != w || e != 1 {
		r.t.Errorf("%d attempts, %d failures, W=%d E=%d; want %d, 1, W=%d E=1", task.Attempt, task.Failures, gotW, e, attempts, w)
	}
	events, err := r.store.Events(r.t.Context(), task.TaskID)
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Reason)
	}
	if strings.Join(got, "\n") != strings.Join(reasons, "\n") {
		r.t.Errorf("audit\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(reasons, "\n"))
	}
}

const (
	auditTakenOver = "taken over: the lease of attempt 1 ran out"
	auditProof     = "late proof from an attempt that does not hold the task"
	auditArmed     = "the provider does not know it; sent again under the same key"
	auditAgain     = "late proof came in, or the key grew too old; the provider is asked again"
	auditFound     = "the provider was asked: it happened"
)

// D-38: proof that comes in between the look-up and the resend stops the resend; the id is asked about instead.
func TestProofBeforeTheResend(t *testing.T) {
	t.Parallel()
	checking, goOn := make(chan struct{}), make(chan struct{})
	var checks atomic.Int32
	r := newOverlap(t, checking, func(b *bench) {
		in(status(404), told(200, "pay_1"))(b.pay, &b.kind)
		b.kind.Check = func(context.Context, DB, payJob) (paid, bool, error) {
			if checks.Add(1) == 2 { // the first attempt's was before it sent
				close(checking)
				<-goOn
			}
			return paid{}, false, nil
		}
	})
	r.answer()
	close(goOn)
	r.comesTo(idemstore.Finished, 3, 1, auditTakenOver, auditProof, auditAgain, auditFound)
	if asked := strings.Join(r.pay.asked, ","); asked != ",pay_1" {
		t.Errorf("asked for %q, want the key and then the id", asked)
	}
}

// Proof that comes in while the second attempt hears of a refusal under the key: the effect that is proven is asked about.
func TestProofDuringTheLookUp(t *testing.T) {
	t.Parallel()
	asking, goOn := make(chan struct{}), make(chan struct{})
	r := newOverlap(t, asking, func(b *bench) {
		in(func(w http.ResponseWriter, r *http.Request) {
			close(asking)
			<-goOn
			told(402, "pay_9")(w, r)
		}, told(200, "pay_1"))(b.pay, &b.kind)
	})
	r.answer()
	close(goOn)
	r.comesTo(idemstore.Finished, 3, 1, auditTakenOver, auditProof, auditAgain, auditFound)
}

// Proof that comes in while the resend is at the provider: a refusal of the resend is not the end of the task, and an
// unknown outcome is asked about by the id.
func TestProofDuringTheResend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		status  idemstore.Status
		attempt int
		reasons []string
	}{
		"refused without an id":         {status(402), idemstore.Finished, 3, []string{auditTakenOver, auditArmed, auditProof, auditAgain, auditFound}},
		"refused with an id of its own": {declined, idemstore.Finished, 3, []string{auditTakenOver, auditArmed, auditProof, auditAgain, auditFound}},
		"done, with another id": {told(201, "pay_9"), idemstore.NeedsReview, 2, []string{auditTakenOver, auditArmed, auditProof,
			"two effects? the provider answered with another id than the one on the row"}},
		"done, with the same": {told(201, "pay_1"), idemstore.Finished, 2, []string{auditTakenOver, auditArmed, auditProof}},
		"still at work on the first": {status(202), idemstore.Finished, 3, []string{auditTakenOver, auditArmed, auditProof,
			"accepted by the provider, not done yet", auditFound}},
		"throttled": {status(429), idemstore.Finished, 3, []string{auditTakenOver, auditArmed, auditProof, auditFound}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atProvider, goOn := make(chan struct{}), make(chan struct{})
			r := newOverlap(t, atProvider, func(b *bench) {
				in(status(404), told(200, "pay_1"))(b.pay, &b.kind)
				b.pay.then(func(w http.ResponseWriter, r *http.Request) {
					close(atProvider)
					<-goOn
					c.answer(w, r)
				})
			})
			r.answer()
			close(goOn)
			r.comesTo(c.status, c.attempt, 2, c.reasons...)
		})
	}
}

// A key that grows too old between the check and the socket: the gate keeps the resend back, at no cost.
func TestKeyGrowsOldBeforeTheSend(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	b.conf.Policy.Deadline, b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = 20*time.Second, time.Hour, time.Hour
	b.insert(b.kind, plainJob, oldRow)
	const usable = `interval '24 hours' - interval '30 seconds'` // what is left of the lifetime after its margin
	b.kind.Check = func(ctx context.Context, db DB, _ payJob) (paid, bool, error) {
		_, err := db.Exec(ctx, `update settle.tasks set first_sent_at = clock_timestamp() - (`+usable+`) + interval '2 seconds'`)
		return paid{}, false, err
	}
	usual := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		var old bool
		eventually(t, 20*time.Second, func() bool {
			err := b.pool.QueryRow(ctx, `select clock_timestamp() >= first_sent_at + `+usable+` from settle.tasks`).Scan(&old)
			return err != nil || old
		})
		return usual(ctx, a)
	}
	b.run()
	b.publish(plainJob)
	task := b.await("pay_1", "given back", func(task idemstore.Task) bool { return task.Attempt == 2 && task.LeaseUntil == nil })
	if w, e, lookups := b.pay.counts(); w != 0 || e != 0 || lookups != 1 || task.Status != idemstore.Unknown || task.Failures != 0 || !task.Unsure {
		t.Errorf("W=%d E=%d asks=%d, %s with %d failures", w, e, lookups, task.Status, task.Failures)
	}
}

// A lost attempt that brings another effect than the one its task ended with changes nothing, but it is not lost.
func TestProofAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.calling()
	_ = b.lost(func(ctx context.Context, a *Attempt[payJob], _ func() (paid, error)) (paid, error) {
		_, err := b.pool.Exec(context.WithoutCancel(ctx), `update settle.tasks set status = 'finished', finished_at = clock_timestamp(),
			lease_until = null, external_id = 'pay_7' where id = $1`, a.TaskID)
		return paid{ID: "pay_8"}, err
	})
	task, err := b.store.Find(t.Context(), b.kind.Name, "pay_1")
	if err != nil || task.Status != idemstore.Finished || task.ExternalID != "pay_7" || task.EvidenceID != "pay_8" {
		t.Errorf("%s with id %q and evidence %q (%v)", task.Status, task.ExternalID, task.EvidenceID, err)
	}
	b.lateProof("pay_8")
	b.told(p, "late_proof test.pay")
}

// The same, where the id is saved before the handler returns and the task counts as failed: a person is called once.
func TestProofThatAFailedTaskHappened(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.calling()
	_ = b.lost(func(ctx context.Context, a *Attempt[payJob], _ func() (paid, error)) (paid, error) {
		if _, err := b.pool.Exec(context.WithoutCancel(ctx), `update settle.tasks set status = 'failed', finished_at = clock_timestamp(),
			lease_until = null where id = $1`, a.TaskID); err != nil {
			return paid{}, err
		}
		return paid{ID: "pay_8"}, a.SaveExternalID(ctx, "pay_8")
	})
	b.lateProof("pay_8")
	b.told(p, "late_proof test.pay")
	if a := b.alertOf("late_proof test.pay"); a.Count != 1 || a.TaskID != 1 {
		t.Errorf("the alert is %+v", a)
	}
}
