package consumer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
)

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
