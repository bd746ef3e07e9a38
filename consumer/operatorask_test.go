package consumer

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

func TestAskNowVerdicts(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	refuses := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		_ = json.NewEncoder(w).Encode(paid{"pay_no"})
	}
	finds := func(id string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(paid{id}) }
	}
	for _, c := range []struct {
		name   string
		lookup http.HandlerFunc
		out    ActOutcome
		status idemstore.Status // empty: as before
		says   string
		booked string
	}{
		{"found", finds("pay_9"), OutcomeDone, idemstore.Finished, "it happened as pay_9", "pay_1 pay_9  1 2, events 1"},
		{"found refused", refuses, OutcomeDone, idemstore.Failed, "refused it as pay_no", "pay_1 pay_no refused by the provider 1 2, events 1"},
		{"absent", status(404), OutcomeAsked, "", "does not know it", ""},
		{"running", status(202), OutcomeAsked, "", "still under way", ""},
		{"contradictory", status(409), OutcomeAsked, "", "other content", ""},
		{"cannot tell", status(500), OutcomeAsked, "", "could not tell", ""},
		{"no answer", noAnswer, OutcomeAsked, "", "could not tell", ""},
		{"found, its rows refused", finds("pay_refused"), OutcomeRefused, "", "the database refuses its local rows", ""},
	} {
		for name, row := range map[string]map[string]string{"unknown": isUnknown, "expired": isExpired, "parked": isParked, "unsent": isUnsent} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				before := d.is(row)
				d.pay.answerLookups(c.lookup)
				all := d.everything()

				dry := byAnna
				dry.DryRun = true
				acted(t)(d.Ask(t.Context(), before, dry)).expect(t, OutcomeWouldDo, before.Status, "")
				if d.everything() != all {
					t.Error("a dry run changed something")
				}

				row := d.text(`select t::text from settle.tasks t`)
				got := acted(t)(d.Ask(t.Context(), before, byAnna)).expect(t, c.out, or(c.status, before.Status), c.says)
				if h := d.history(); len(h) != 1 || !strings.Contains(h[0], c.says) || !strings.HasPrefix(h[0], "anna: ") || !strings.Contains(h[0], byAnna.Reason) {
					t.Errorf("history %q", h)
				}
				if c.status == "" {
					if d.text(`select t::text from settle.tasks t`) != row || d.booked() != "nothing, events 0" {
						t.Error("more than the history has changed")
					}
					return
				}
				if d.booked() != c.booked || got.Task.Attempt != before.Attempt+1 || got.Task.Token == before.Token {
					t.Errorf("booked %q, attempt %d", d.booked(), got.Task.Attempt)
				}
			})
		}
	}
	if w, e, _ := d.pay.counts(); w != 0 || e != 0 {
		t.Errorf("asking sent %d requests and made %d effects", w, e)
	}
}

// Where two ids are known, the provider's answer about one of them is no answer: only a person's decision closes the task.
func TestAskNowWithTwoEffects(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, cause := range []string{`'two_effects'`, `'age'`} {
		before := d.is(map[string]string{"status": `'needs_review'`, "review_cause": cause, "external_id": `'pay_7'`, "evidence_id": `'pay_8'`})
		d.pay.answerLookups(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(paid{"pay_7"}) })
		row := d.text(`select t::text from settle.tasks t`)
		acted(t)(d.Ask(t.Context(), before, byAnna)).expect(t, OutcomeRefused, idemstore.NeedsReview, "it happened as pay_7, and another effect is known as pay_8")
		if h := d.history(); len(h) != 1 || !strings.Contains(h[0], "pay_8") || d.text(`select t::text from settle.tasks t`) != row {
			t.Errorf("history %q; the row: %s", h, d.text(`select t::text from settle.tasks t`))
		}
		acted(t)(d.Resolve(t.Context(), before, byAnna, Ruling{As: idemstore.Finished})).expect(t, OutcomeDone, idemstore.Finished, "it happened as pay_7")
	}
}

// A look-up that a person starts has no way to write or to send.
func TestAskNowIsReadOnly(t *testing.T) {
	t.Parallel()
	var sent, saved error
	d := newDesk(t, func(b *bench) {
		b.kind.Lookup = func(ctx context.Context, a *Attempt[payJob]) (paid, Verdict, error) {
			sent, saved = a.MaySend(), a.SaveExternalID(ctx, "pay_9")
			a.KeepAnswer(200, []byte("an answer"))
			return paid{}, Running, nil
		}
	})
	before := d.is(isUnknown)
	row := d.text(`select t::text from settle.tasks t`)
	acted(t)(d.Ask(t.Context(), before, byAnna)).expect(t, OutcomeAsked, idemstore.Unknown, "under way")
	if sent == nil || saved != nil || d.text(`select t::text from settle.tasks t`) != row {
		t.Errorf("may send: %v; save external id: %v; the row:\n%s\n%s", sent, saved, row, d.text(`select t::text from settle.tasks t`))
	}
}

// D-33: what the provider has accepted is asked about by its id, by a person as by an attempt.
func TestD33AskPollsTheAcceptedID(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.pay.answerLookups(found("pay_7"))
	accepted := d.is(map[string]string{"external_id": `'pay_7'`})
	acted(t)(d.Ask(t.Context(), accepted, byAnna)).expect(t, OutcomeDone, idemstore.Finished, "it happened as pay_7")
	w, _, _ := d.pay.counts()
	d.pay.mu.Lock()
	defer d.pay.mu.Unlock()
	if w != 0 || !slices.Equal(d.pay.asked, []string{"pay_7"}) {
		t.Errorf("W=%d, asked for %q", w, d.pay.asked)
	}
}

// What another provider does not know says little.
func TestAskSaysThatTheProviderIsAnother(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	elsewhere := d.is(map[string]string{"provider": `'elsewhere'`})
	acted(t)(d.Ask(t.Context(), elsewhere, byAnna)).expect(t, OutcomeAsked, idemstore.Unknown, "does not know it (but it was sent to another provider")
}
