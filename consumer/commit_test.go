package consumer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settlemq/settle/idemstore"
)

// panicking is a handler's own type that cannot be written down.
type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error)    { panic("boom") }
func (panicking) TextValue() (pgtype.Text, error) { panic("boom") }

// brokenResult is a result whose JSON panics.
type brokenResult struct{ ID string }

func (brokenResult) MarshalJSON() ([]byte, error) { panic("boom") }

// D-41: a result that panics while it is written down is one kind's trouble, and no end of the process.
func TestResultWhoseJSONPanics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	broken := Kind[payJob, brokenResult]{Name: "test.broken", Contract: b.kind.Contract, Key: b.kind.Key, Provider: Provider{Identity: "broken"},
		ExternalID: func(r brokenResult) string { return r.ID },
		Perform:    func(context.Context, *Attempt[payJob]) (brokenResult, error) { return brokenResult{"x_1"}, nil },
	}
	b.runEngine(b.engine(b.kind, broken))
	if _, err := b.js.Publish(t.Context(), "jobs.test.broken", []byte(plainJob)); err != nil {
		t.Fatal(err)
	}
	if !eventually(t, 20*time.Second, func() bool {
		task, err := b.store.Find(t.Context(), "test.broken", "pay_1")
		return err == nil && task.Cause == idemstore.CauseNotBooked && task.ExternalID == "x_1" && task.ErrorClass == "not_booked"
	}) {
		t.Error("the task does not wait for a person")
	}
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
}

// The effect is real, and the database refuses its booking.
func TestPerformUnbooked(t *testing.T) {
	t.Parallel()
	const parked = `
			needs_review (not_booked) attempt 1, unsure, id pay_1, class not_booked, {"id":"pay_1"}
			W=1 E=1 asks=0
			term
			needs_review: done at the provider, not booked here (pay_1)`
	newBench(t).play([]scenario{
		{name: "constraint", want: parked, set: commits(func(w *Writes, f Final[payJob, paid]) error {
			w.Exec(`insert into public.booked values ('one key', $1, '', 0)`, f.ExternalID)
			w.Exec(`insert into public.booked values ('one key', $1, '', 0)`, f.ExternalID)
			return nil
		})},
		{name: "data", want: parked, set: commits(func(w *Writes, f Final[payJob, paid]) error {
			w.Exec(`insert into public.booked values ('data', $1, '', 1 / (length($1) - 5))`, f.ExternalID)
			return nil
		})},
		{name: "bad SQL", want: parked, set: commits(func(w *Writes, _ Final[payJob, paid]) error {
			w.Exec(`insert into public.booked values ('before', '', '', 0)`)
			w.Exec(`insert into public.no_such_table values (1)`)
			return nil
		})},
		{name: "D-41: panic in Commit", want: parked, set: commits(func(*Writes, Final[payJob, paid]) error { panic("boom") })},
		{name: "error of Commit", want: parked, set: commits(func(*Writes, Final[payJob, paid]) error { return errors.New("no") })},
		{name: "event that is no JSON", want: parked, set: commits(func(w *Writes, f Final[payJob, paid]) error {
			w.Emit("events.test", f.Key, func() {})
			return nil
		})},
		{name: "event whose JSON panics", want: parked, set: commits(func(w *Writes, f Final[payJob, paid]) error {
			w.Emit("events.test", f.Key, panicking{})
			return nil
		})},
		{name: "argument that panics in the driver", want: parked, set: commits(func(w *Writes, _ Final[payJob, paid]) error {
			w.Exec(`insert into public.booked values ('argument', $1, '', 0)`, panicking{})
			return nil
		})},
		{name: "beside them, a job that is right", want: `
			finished attempt 1, id pay_1, {"id":"pay_1"}
			W=1 E=1 asks=0
			booked pay_1 by perform
			ack`},
		{name: "refused, and not booked", set: all(answers(declined), commits(func(*Writes, Final[payJob, paid]) error { return errors.New("no") })), want: `
			needs_review (refusal_not_booked) attempt 1, unsure, id pay_9, class not_booked
			W=1 E=0 asks=0
			term
			needs_review: refused by the provider, not booked here (pay_9)`},
		{name: "D-41: panic while the id is taken", set: func(_ *payProvider, k *Kind[payJob, paid]) {
			k.ExternalID = func(paid) string { panic("boom") }
		}, want: `
			needs_review (not_booked) attempt 1, unsure, class not_booked
			W=1 E=1 asks=0
			term
			needs_review: done at the provider, not booked here`},
	})
}

// An id is the same whether it is stored early or with the result, whatever it holds.
func TestOddIDStoredEarlyIsNoSecondEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := "pay\xff\xff\x00" + strings.Repeat("x", 2*maxExternalID)
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		return paid{ID: id}, a.SaveExternalID(ctx, id)
	}
	b.run()
	b.publish(plainJob)
	if task := b.awaitStatus("pay_1", idemstore.Finished); task.EvidenceID != "" || len(task.ExternalID) != maxExternalID {
		t.Errorf("id of %d bytes, evidence %q", len(task.ExternalID), task.EvidenceID)
	}
}

// What the provider and the handler say is stored clean and bounded, whatever it holds (D-16), and does not keep the
// outcome from being saved.
func TestOddTextIsStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	odd := "a\x00b\xff" + strings.Repeat("x", 1<<20)
	b.kind.Perform = func(_ context.Context, a *Attempt[payJob]) (paid, error) {
		a.KeepAnswer(http.StatusInternalServerError, []byte("the first of two"))
		a.KeepAnswer(http.StatusPaymentRequired, []byte(odd))
		return paid{ID: "pay\x00\xff"}, Refused(errors.New(odd))
	}
	b.run()
	b.publish(plainJob)
	task := b.awaitStatus("pay_1", idemstore.Failed)
	b.awaitSettled()
	if task.ProviderStatus != http.StatusPaymentRequired || len(task.Answer) > maxAnswer || len(task.LastError) > maxErrorText ||
		!strings.HasPrefix(task.Answer, "a") || !strings.HasPrefix(task.LastError, "a") || !task.ResultAltered {
		t.Errorf("status %d, answer of %d bytes, error of %d, altered %v", task.ProviderStatus, len(task.Answer), len(task.LastError), task.ResultAltered)
	}
	for what, text := range map[string]string{"answer": task.Answer, "error": task.LastError, "id": task.ExternalID, "result": string(task.Result)} {
		if text == "" || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Errorf("%s: %.40q", what, text)
		}
	}
}
