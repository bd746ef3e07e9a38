package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// rulingTable weighs a person's word against the provider's. id: the external id that the person names.
const rulingTable = `
	as       heard         id    force | what counts
	finished found         other -     | contradicted
	finished found         -     -     | known
	failed   found         -     -     | contradicted
	failed   found-refused other -     | contradicted
	failed   found-refused -     -     | known
	finished found-refused -     -     | contradicted
	finished contradictory same  -     | contradicted
	-        contradictory -     -     | the word
	-        absent        -     -     | the word
	-        running       -     no    | too early
	-        running       -     yes   | the word
	-        cannot-tell   -     -     | the word
`

func TestRulingTable(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, rulingTable)
	names := map[ruling]string{rulingCounts: "the word", rulingKnown: "known", rulingContradicted: "contradicted", rulingTooEarly: "too early"}
	verdicts := map[Verdict]string{Found: "found", FoundRefused: "found-refused", Absent: "absent", Running: "running",
		Contradictory: "contradictory", CannotTell: "cannot-tell"}
	for _, as := range []idemstore.Status{idemstore.Finished, idemstore.Failed} {
		for v, heard := range verdicts {
			for id, given := range map[string]string{"none": "", "same": "pay_9", "other": "pay_8"} {
				for _, force := range []bool{false, true} {
					got := decideRuling(Ruling{As: as, ExternalID: given, Force: force}, reading{verdict: v, id: "pay_9"})
					tab.check(t, facts{"as": string(as), "heard": heard, "id": id, "force": word(force)}, words(t, names, got))
				}
			}
		}
	}
	tab.complete(t)
}

// knows answers look-ups by key and by id.
func knows(byKey, byID http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("id") != "" {
			byID(w, r)
			return
		}
		byKey(w, r)
	}
}

func found(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(paid{id}) }
}

func foundRefused(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		found(id)(w, r)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	finished, failed := Ruling{As: idemstore.Finished}, Ruling{As: idemstore.Failed}
	with := func(r Ruling, id, result string) Ruling {
		r.ExternalID = id
		if result != "" {
			r.Result = []byte(result)
		}
		return r
	}
	const nine = `{"id":"pay_9"}`
	absent, mute, never := status(404), status(500), status(418)
	for _, c := range []struct {
		name   string
		row    map[string]string
		lookup http.HandlerFunc
		ruling Ruling
		out    ActOutcome
		status idemstore.Status // empty: nothing is changed
		says   string
		booked string
		result string
	}{
		{"the provider knows more", isParked, knows(found("pay_9"), never), finished, OutcomeDone, idemstore.Finished, "it happened as pay_9",
			"pay_1 pay_9  1 2, events 1", nine},
		{"and better", isParked, knows(found("pay_9"), never), with(finished, "", nine), OutcomeDone, idemstore.Finished, "it happened as pay_9",
			"pay_1 pay_9  1 2, events 1", nine},
		{"it refused it, too", isParked, knows(foundRefused("pay_n"), never), failed, OutcomeDone, idemstore.Failed, "refused it as pay_n",
			"pay_1 pay_n refused by the provider 1 2, events 1", `{"id":"pay_n"}`},
		{"it happened", isParked, knows(found("pay_9"), never), failed, OutcomeRefused, "", "it happened as pay_9, which contradicts", "", ""},
		{"it was refused", isParked, knows(foundRefused("pay_n"), never), with(finished, "", nine), OutcomeRefused, "", "refused it as pay_n, which contradicts", "", ""},
		{"it happened as another", isParked, knows(found("pay_8"), never), with(finished, "pay_9", ""), OutcomeRefused, "", "happened as pay_8, which contradicts", "", ""},

		{"known by the id that is given", isParked, knows(absent, found("pay_9")), with(finished, "pay_9", ""), OutcomeDone, idemstore.Finished,
			"it happened as pay_9", "pay_1 pay_9  1 2, events 1", nine},
		{"other content under the id", isParked, knows(absent, status(409)), with(finished, "", nine), OutcomeRefused, "", "other content, or two effects as pay_9", "", ""},
		{"the id was refused", isParked, knows(mute, foundRefused("pay_9")), with(finished, "", nine), OutcomeRefused, "", "refused it as pay_9", "", ""},

		{"nobody can tell", isParked, knows(mute, mute), with(finished, "", nine), OutcomeDone, idemstore.Finished, "finished as pay_9, by decision; the provider was asked and could not tell",
			"pay_1 pay_9  3 2, events 1", nine},
		{"nobody knows it", isExpired, knows(absent, absent), with(finished, "pay_9", nine), OutcomeDone, idemstore.Finished, "does not know it",
			"pay_1 pay_9  3 2, events 1", nine},
		{"other content under the key", isUnknown, knows(status(409), mute), with(finished, "", nine), OutcomeDone, idemstore.Finished, "other content",
			"pay_1 pay_9  3 2, events 1", nine},
		{"the provider is at work", isParked, knows(status(202), never), failed, OutcomeRefused, "", "still under way there; wait until that has ended", "", ""},
		{"the provider is at work for ever", isParked, knows(status(202), never), Ruling{As: idemstore.Failed, Force: true}, OutcomeDone, idemstore.Failed,
			"it has failed, by decision; the provider was asked: it is still under way there",
			"pay_1  failed by a person: the customer called 3 2, events 1", `{"resolved":"failed","reason":"the customer called"}`},
		{"no result", isParked, knows(mute, mute), with(finished, "pay_9", ""), OutcomeRefused, "", "a result must be given", "", ""},
		{"its own id and another", map[string]string{"external_id": `'pay_7'`}, knows(never, mute), with(finished, "", nine), OutcomeRefused, "",
			"another external id is known already (pay_7)", "", ""},
		{"done and not booked", isUnbooked, knows(never, mute), finished, OutcomeDone, idemstore.Finished, "finished as pay_7, by decision",
			"pay_1 pay_7  3 2, events 1", `{"id":"pay_7"}`},
		{"failed, by decision", isParked, knows(absent, never), failed, OutcomeDone, idemstore.Failed, "it has failed, by decision; the provider was asked: it does not know it",
			"pay_1  failed by a person: the customer called 3 2, events 1", `{"resolved":"failed","reason":"the customer called"}`},
		{"failed with an id", isExpired, knows(mute, mute), with(failed, "pay_9", ""), OutcomeDone, idemstore.Failed, "could not tell",
			"pay_1 pay_9 failed by a person: the customer called 3 2, events 1", `{"resolved":"failed","reason":"the customer called"}`},
		{"its rows refused", isParked, knows(found("pay_refused"), never), finished, OutcomeRefused, "", "the database refuses its local rows", "", ""},
		{"at work", isLive, never, with(finished, "", nine), OutcomeRefused, "", "at work", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.pay.answerLookups(c.lookup)
			before := d.is(c.row)
			all := d.everything()
			got := acted(t)(d.Resolve(t.Context(), before, byAnna, c.ruling)).expect(t, c.out, or(c.status, before.Status), c.says)
			if c.status == "" {
				if d.everything() != all {
					t.Error("something was changed")
				}
				return
			}
			if d.booked() != c.booked || string(got.Task.Result) != c.result || got.Task.Cause != "" || got.Task.FinishedAt == nil {
				t.Errorf("booked %q, result %s, %+v", d.booked(), got.Task.Result, got.Task)
			}
			if h := d.history(); len(h) != 1 || !strings.HasPrefix(h[0], "anna: resolved as "+string(c.ruling.As)) || !strings.HasSuffix(h[0], byAnna.Reason) {
				t.Errorf("history %q", h)
			}
		})
	}
	if w, _, _ := d.pay.counts(); w != 0 {
		t.Errorf("%d requests for an effect", w)
	}
}

// A kind without local rows needs no result, and one without a look-up or a provider is not asked.
func TestResolveOfOtherKinds(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) { b.kind.Commit, b.kind.Lookup = nil, nil })
	got := acted(t)(d.Resolve(t.Context(), d.is(isParked), byAnna, Ruling{As: idemstore.Finished, ExternalID: "pay_9"})).
		expect(t, OutcomeDone, idemstore.Finished, "finished as pay_9, by decision; the provider cannot be asked")
	if got.Task.ExternalID != "pay_9" || got.Task.Result != nil {
		t.Errorf("%+v", got.Task)
	}
	acted(t)(d.Ask(t.Context(), d.is(isParked), byAnna)).expect(t, OutcomeRefused, idemstore.NeedsReview, "no way to ask")
	acted(t)(d.SendAgain(t.Context(), d.is(isParked), byAnna)).expect(t, OutcomeRefused, idemstore.NeedsReview, "no way to ask")
}

func TestGivenResultsAreStrict(t *testing.T) {
	t.Parallel()
	type part struct {
		Name string `json:"name"`
	}
	type result struct {
		ID    string  `json:"id"`
		Count int     `json:"count"`
		Code  string  `json:"code,omitempty"`
		Parts []part  `json:"parts"`
		Next  *string `json:"next"`
	}
	for _, c := range []struct{ given, says string }{
		{`{"id":"a","count":1,"parts":[],"next":null}`, ""},
		{`{"next":"b","id":"a","count":1,"code":"c","parts":[{"name":"n"}]}`, ""},
		{`{"id":"a","count":1,"parts":[],"next":null,"amount":5}`, "amount"},
		{`{"id":"a","count":1,"parts":[{"name":"n","weight":1}],"next":null}`, "weight"},
		{`{"id":"a","parts":[],"next":null}`, "member count is missing"},
		{`{"id":null,"count":1,"parts":[],"next":null}`, "member id is missing"},
		{`{"ID":"a","count":1,"parts":[],"next":null}`, "did you mean id"},
		{`{"id":"a","count":"1","parts":[],"next":null}`, "count"},
		{`{"id":"a","count":1.5,"parts":[],"next":null}`, "count"},
		{`{"id":"a","id":"b","count":1,"parts":[],"next":null}`, "repeated member"},
		{`{"id":"a","count":1,"parts":[],"next":null} more`, "text after the object"},
		{`["a"]`, "not a JSON object"},
		{``, "body ends"},
		{`{"id":"` + strings.Repeat("x", maxResult) + `"}`, "too_large"},
	} {
		_, err := decodeResult[result]([]byte(c.given))
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%.80s: %v, want %q", c.given, err, c.says)
		}
	}
}

// An external id is stored for ever, so what comes from a clipboard beside it is refused, before anybody is asked.
func TestResolveTakesNoIDThatIsNone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.is(isParked)
	d.pay.answerLookups(status(404))
	all := d.everything()
	for _, id := range []string{" ", " pay_9", "pay_9\n", "pay\t9", "pay\x00", "pay\xff", strings.Repeat("p", maxExternalID+1)} {
		result, _ := json.Marshal(paid{id})
		for _, r := range []Ruling{{As: idemstore.Failed, ExternalID: id}, {As: idemstore.Finished, ExternalID: id}, {As: idemstore.Finished, Result: result}} {
			if r.Result != nil && id == "pay\xff" {
				continue // no JSON
			}
			if _, err := d.Resolve(t.Context(), before, byAnna, r); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "external id") {
				t.Errorf("%.20q: %v", id, err)
			}
		}
	}
	if d.everything() != all {
		t.Error("something was changed")
	}
	acted(t)(d.Resolve(t.Context(), before, byAnna, Ruling{As: idemstore.Failed, ExternalID: strings.Repeat("p", maxExternalID)})).
		expect(t, OutcomeDone, idemstore.Failed, "by decision")
}

// A person may decide over an attempt that hangs at the provider. When it comes back nothing of it is saved, and what it
// brought is kept as proof.
func TestForcedOverALiveAttempt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	entered, release := d.pay.hold()
	d.pay.answerLookups(status(500))
	d.run()
	d.publish(plainJob)
	await(t, entered, "the request at the provider")
	live := d.one()
	ruling := Ruling{As: idemstore.Failed}
	acted(t)(d.Resolve(t.Context(), live, byAnna, ruling)).expect(t, OutcomeRefused, idemstore.Started, "at work")
	ruling.Force = true
	decided := acted(t)(d.Resolve(t.Context(), live, byAnna, ruling)).expect(t, OutcomeDone, idemstore.Failed, "by decision")
	rows := d.rows()
	release()
	late := d.await("pay_1", "given late proof", func(x idemstore.Task) bool { return x.EvidenceID != "" })
	if late.Status != idemstore.Failed || late.Attempt != decided.Task.Attempt || late.Token != decided.Task.Token ||
		string(late.Result) != string(decided.Task.Result) || late.EvidenceID != "pay_1" || d.rows() != rows {
		t.Errorf("%+v, booked %s, before %s", late, d.rows(), rows)
	}
	// The message comes again and is answered from the row.
	d.awaitSettled()
	if w, e, _ := d.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d", w, e)
	}
	published := func() bool { return d.text(`select count(*) from settle.outbox`) == "0" }
	if !eventually(t, 20*time.Second, published) || d.streamNamed(eventStream).CachedInfo().State.Msgs != 1 {
		t.Errorf("%d events, want the decision's alone", d.streamNamed(eventStream).CachedInfo().State.Msgs)
	}
}

// D-38: while a person's question is under way the slow attempt comes back and stores its result. That stays, whatever the
// provider says.
func TestD38AskBesideASlowAttempt(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]Verdict{"absent": Absent, "found": Found, "refused": FoundRefused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, answer := make(chan struct{}), make(chan struct{})
			d := newDesk(t, func(b *bench) {
				b.kind.Lookup = func(context.Context, *Attempt[payJob]) (paid, Verdict, error) {
					close(asked)
					<-answer
					return paid{"pay_9"}, verdict, nil
				}
			})
			expired := d.is(isExpired)
			done := make(chan Acted, 1)
			go func() {
				got, err := d.Ask(t.Context(), expired, byAnna)
				if err != nil {
					got.Message = err.Error()
				}
				done <- got
			}()
			await(t, asked, "the look-up")
			_, err := d.store.Save(t.Context(), idemstore.Save{Fence: expired.Fence, Kind: expired.Kind, Key: expired.Key, Status: idemstore.Finished,
				ExternalID: "pay_x", Result: []byte(`{"id":"pay_x"}`)})
			if err != nil {
				t.Fatal(err)
			}
			close(answer)
			got := await(t, done, "the answer")
			if want := map[bool]ActOutcome{true: OutcomeAsked, false: OutcomeOvertaken}[verdict == Absent]; got.Outcome != want {
				t.Errorf("%s: %s, want %s", got.Outcome, got.Message, want)
			}
			if row := d.one(); row.Status != idemstore.Finished || row.ExternalID != "pay_x" || row.Attempt != expired.Attempt || string(row.Result) != `{"id":"pay_x"}` {
				t.Errorf("the stored result did not stay: %+v", row)
			}
			if d.booked() != "nothing, events 0" {
				t.Errorf("booked %s", d.booked())
			}
		})
	}
}
