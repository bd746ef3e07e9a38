package consumer

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// control puts the bench's kind into a mode.
func (b *bench) control(m idemstore.Mode) {
	b.t.Helper()
	_, _, err := b.store.SetControl(b.t.Context(), idemstore.Control{Kind: b.kind.Name, Mode: m, Actor: "ann", Reason: "because"})
	if err != nil {
		b.t.Fatal(err)
	}
}

// obeyed waits until an engine serves its first kind in a mode.
func (b *bench) obeyed(e *Engine, m idemstore.Mode) {
	b.t.Helper()
	if !eventually(b.t, 20*time.Second, func() bool { return e.kinds[0].modeNow() == m }) {
		b.t.Fatalf("the kind never was %s", m)
	}
}

// other is a second kind at a provider of its own.
func (b *bench) other() Kind[payJob, paid] {
	k := newPayProvider(b.t).kind()
	k.Name, k.Provider = "test.other", Provider{Identity: "other"}
	return k
}

// untaken checks that nothing was taken of the bench's kind, while another kind on the same engine is served.
func (b *bench) untaken() {
	b.t.Helper()
	const jobs = 20
	for range jobs {
		if _, err := b.js.Publish(b.t.Context(), subject("test.other"), []byte(plainJob)); err != nil {
			b.t.Fatal(err)
		}
	}
	if !eventually(b.t, 20*time.Second, func() bool {
		task, err := b.store.Find(b.t.Context(), "test.other", "pay_1")
		return err == nil && task.Status == idemstore.Finished && b.messages() == 1
	}) {
		b.t.Fatalf("the other kind is not served; %d messages left", b.messages())
	}
	if _, err := b.store.Find(b.t.Context(), b.kind.Name, "pay_1"); !errors.Is(err, idemstore.ErrNotFound) {
		b.t.Errorf("a job was taken: %v", err)
	}
	b.exec(`delete from settle.tasks where kind = 'test.other'`)
}

// A kind that is paused, or asks only, takes nothing, in running workers and in new ones, and goes on where it stood.
func TestPausedKindTakesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []idemstore.Mode{idemstore.ModePaused, idemstore.ModeAsking} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			e, stop := b.serve(b.kind, b.other())
			b.publish(`{"order":"0"}`)
			b.awaitStatus("pay_0", idemstore.Finished) // and a pull is open
			b.awaitSettled()
			b.control(mode)
			b.obeyed(e, mode)
			b.publish(plainJob)
			b.untaken()
			if err := e.Ready(); err != nil {
				t.Errorf("not ready: %v", err)
			}
			stop()

			e, _ = b.serve(b.kind, b.other())
			b.obeyed(e, mode)
			b.untaken()
			b.control(idemstore.ModeRunning)
			b.awaitStatus("pay_1", idemstore.Finished)
			b.awaitSettled()
			if w, effects, _ := b.pay.counts(); w != 2 || effects != 2 {
				t.Errorf("W=%d E=%d", w, effects)
			}
		})
	}
}

// A pause is in force before the first message is taken, not from the first heartbeat on.
func TestPausedFromTheStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Lease, b.conf.AckWait = 30*time.Second, 30*time.Second // no heartbeat within this test
	b.control(idemstore.ModePaused)
	b.publish(plainJob)
	b.serve(b.kind, b.other())
	b.untaken()
}

// An attempt that has claimed and not sent gives its task back, at no cost; one that has sent goes on.
func TestPauseAndAttemptsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Policy.Deadline, b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = 20*time.Second, time.Hour, time.Hour
	unsent, causes, usual := make(chan struct{}), make(chan error, 2), b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		if a.Job.Note != "waits" {
			return usual(ctx, a)
		}
		close(unsent)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		causes <- a.MaySend()
		return paid{}, a.MaySend()
	}
	sent, release := b.pay.hold()
	e, _ := b.serve(b.kind)
	b.publish(`{"order":"1"}`)
	await(t, sent, "the first job is sent")
	b.publish(`{"order":"2","note":"waits"}`)
	await(t, unsent, "the second job is with its handler")

	b.control(idemstore.ModePaused)
	for range 2 {
		if err := await(t, causes, "the handler is told"); !errors.Is(err, ErrPaused) {
			t.Errorf("the handler heard %v", err)
		}
	}
	given := b.await("pay_2", "given back", func(task idemstore.Task) bool { return task.LeaseUntil == nil })
	if given.Status != idemstore.Started || given.Failures != 0 || given.FirstSentAt != nil || given.ErrorClass != "" {
		t.Errorf("given back as %+v", given)
	}
	b.obeyed(e, idemstore.ModePaused)
	release()
	task := b.awaitStatus("pay_1", idemstore.Finished)
	if task.Attempt != 1 || task.ExternalID != "pay_1" {
		t.Errorf("the sent one: %+v", task)
	}
}

// Where a look-up would lead to sending again, a kind that asks only leaves the task unknown and says so. What the
// look-up may decide by itself it does decide.
func TestAskingDoesNotSendAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status idemstore.Status
		reason string
	}{
		"absent": {status(http.StatusNotFound), idemstore.Unknown, "to be sent again, but not now: the kind is set to ask only"},
		"found":  {told(200, "pay_7"), idemstore.Finished, "the provider was asked: it happened"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Hour, time.Hour
			b.insert(b.kind, plainJob, oldRow)
			asked, release := make(chan struct{}), make(chan struct{})
			b.pay.onLookup = func(w http.ResponseWriter, r *http.Request) {
				close(asked)
				<-release
				c.answer(w, r)
			}
			e, stop := b.serve(b.kind)
			b.publish(plainJob)
			await(t, asked, "the provider is asked")
			b.control(idemstore.ModeAsking)
			b.obeyed(e, idemstore.ModeAsking)
			close(release)
			task := b.awaitStatus("pay_1", c.status)
			stop()
			if w, _, _ := b.pay.counts(); w != 0 || task.Failures != 0 {
				t.Errorf("W=%d, %d failures", w, task.Failures)
			}
			events, err := b.store.Events(context.WithoutCancel(t.Context()), task.TaskID)
			if err != nil || len(events) != 1 || events[0].Reason != c.reason {
				t.Errorf("audit %+v (%v)", events, err)
			}
		})
	}
}

// A local kind is paused like any other.
func TestPausedLocalKind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.control(idemstore.ModePaused)
	kind := LocalKind[payJob, paid]{Name: b.kind.Name, Contract: Contract{Effect: "nothing"}, Key: b.kind.Key,
		Apply: func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { return paid{ID: "done"}, nil }}
	b.publish(plainJob)
	b.serve(kind, b.other())
	b.untaken()
	b.control(idemstore.ModeRunning)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
}

// An import stops between two records, and goes on behind the last one.
func TestPausedStepKind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	second, release := make(chan struct{}), make(chan struct{})
	var seen []int
	kind := StepKind[payJob, int, paid]{Name: b.kind.Name, Contract: Contract{Effect: "nothing"}, Key: b.kind.Key,
		Steps: func(payJob) []int { return []int{0, 1, 2} },
		Step: func(_ context.Context, _ pgx.Tx, _ *Attempt[payJob], i int, _ int) (string, error) {
			if seen = append(seen, i); len(seen) == 2 {
				close(second)
				<-release
			}
			return "done", nil
		},
		Done: func(context.Context, pgx.Tx, *Attempt[payJob], []StepResult) (paid, error) {
			return paid{ID: "done"}, nil
		}}
	b.publish(plainJob)
	e, _ := b.serve(kind)
	await(t, second, "the second record is under way")
	b.control(idemstore.ModePaused)
	b.obeyed(e, idemstore.ModePaused)
	close(release)
	task := b.await("pay_1", "given back", func(task idemstore.Task) bool { return task.LeaseUntil == nil })
	if task.Status != idemstore.Started || task.Failures != 0 {
		t.Errorf("given back as %s with %d failures", task.Status, task.Failures)
	}
	b.control(idemstore.ModeRunning)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if !slices.Equal(seen, []int{0, 1, 2}) {
		t.Errorf("records were done in the order %v", seen)
	}
}
