package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settlemq/settle/idemstore"
)

var byAnna = ActOptions{Actor: "anna", Reason: "the customer called"}

// desk is a bench with an operator at it. The kind books every final outcome in public.booked.
type desk struct {
	*bench
	*Operator
}

func newDesk(t *testing.T, change ...func(*bench)) *desk {
	t.Helper()
	b := newBench(t)
	b.exec(`create table public.booked (key text primary key, id text check (id <> 'pay_refused'), refused text, source int, attempt int)`)
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Exec(`insert into public.booked values ($1, $2, $3, $4, $5)`, f.Key, f.ExternalID, f.Refused, int(f.Source), f.Attempt)
		w.Emit("events.test", f.Key, f.Result)
		return nil
	}
	for _, f := range change {
		f(b)
	}
	o, err := NewOperator(b.pool, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{b, o}
}

// one is the desk's task, order 1.
func (d *desk) one() idemstore.Task {
	d.t.Helper()
	t, err := d.store.Find(d.t.Context(), d.kind.Name, "pay_1")
	if err != nil {
		d.t.Fatal(err)
	}
	return t
}

// is puts order 1 into the table as a row with these columns, and returns it.
func (d *desk) is(row map[string]string) idemstore.Task {
	d.t.Helper()
	d.exec(`truncate settle.tasks, settle.task_refs, settle.task_events, settle.outbox, public.booked cascade`)
	d.insert(d.kind, plainJob, row)
	return d.one()
}

// everything is all that the database knows, as text: what did not change here did not change anywhere.
func (d *desk) everything() string {
	d.t.Helper()
	return d.text(`select (select coalesce(string_agg(t::text, '|' order by id), '') from settle.tasks t)
		|| (select coalesce(string_agg(e::text, '|' order by id), '') from settle.task_events e)
		|| (select coalesce(string_agg(b::text, '|' order by key), '') from public.booked b)
		|| (select coalesce(string_agg(o::text, '|' order by id), '') from settle.outbox o)
		|| (select coalesce(string_agg(r::text, '|' order by name), '') from settle.task_refs r)`)
}

func (d *desk) text(sql string) string {
	d.t.Helper()
	rows, err := d.pool.Query(context.WithoutCancel(d.t.Context()), sql)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[*string])
	if err != nil {
		d.t.Fatal(err)
	}
	if out == nil {
		return ""
	}
	return *out
}

// booked is what local rows say, and how many events there are.
func (d *desk) booked() string {
	d.t.Helper()
	return d.rows() + d.text(`select ', events ' || (select count(*) from settle.outbox)`)
}

// rows is what local rows say.
func (d *desk) rows() string {
	d.t.Helper()
	return d.text(`select coalesce(string_agg(format('%s %s %s %s %s', key, id, refused, source, attempt), '; '), 'nothing') from public.booked`)
}

// history is the reasons in the audit.
func (d *desk) history() []string {
	d.t.Helper()
	events, err := d.store.Events(d.t.Context(), d.one().TaskID)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s: %s", e.Actor, e.Reason))
	}
	return out
}

// states of order 1, as columns over those of oldRow, which is unknown.
var (
	isUnknown  = map[string]string{}
	isExpired  = map[string]string{"status": `'started'`, "unsure": `false`, "sending": `true`, "lease_until": `clock_timestamp() - interval '1 s'`, "last_sent_by": `null`}
	isLive     = map[string]string{"status": `'started'`, "unsure": `false`, "sending": `true`, "lease_until": `clock_timestamp() + interval '1 h'`, "last_sent_by": `null`}
	isReleased = map[string]string{"status": `'started'`, "unsure": `false`, "first_sent_at": `null`, "last_sent_by": `null`}
	isParked   = map[string]string{"status": `'needs_review'`, "review_cause": `'budget'`, "failures": `5`}
	isUnsent   = map[string]string{"status": `'needs_review'`, "review_cause": `'conflict'`, "unsure": `false`, "first_sent_at": `null`, "last_sent_by": `null`}
	isFailed   = map[string]string{"status": `'failed'`, "unsure": `false`, "finished_at": `clock_timestamp()`, "result": `'{"id":""}'`}
	isFinished = map[string]string{"status": `'finished'`, "unsure": `false`, "finished_at": `clock_timestamp()`, "result": `'{"id":"pay_1"}'`}
	isUnbooked = map[string]string{"status": `'needs_review'`, "review_cause": `'not_booked'`, "external_id": `'pay_7'`, "result": `'{"id":"pay_7"}'`}
)

// acted runs an act that must not fail.
func acted(t *testing.T) func(Acted, error) Acted {
	t.Helper()
	return func(a Acted, err error) Acted {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if a.Message == "" || strings.Contains(a.Message, "%!") {
			t.Errorf("message %q", a.Message)
		}
		return a
	}
}

// expect compares an answer.
func (a Acted) expect(t *testing.T, out ActOutcome, status idemstore.Status, says string) Acted {
	t.Helper()
	if a.Outcome != out || a.Task.Status != status || !strings.Contains(a.Message, says) {
		t.Errorf("%s, the task is %s: %s; want %s, %s: …%s…", a.Outcome, a.Task.Status, a.Message, out, status, says)
	}
	return a
}

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

// What the state of a task forbids is said, and nothing at all happens.
func TestD44ForbiddenActs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	finished := Ruling{As: idemstore.Finished, Result: []byte(`{"id":"pay_9"}`)}
	acts := map[Act]func(idemstore.Task, ActOptions) (Acted, error){
		ActAsk:       func(x idemstore.Task, p ActOptions) (Acted, error) { return d.Ask(t.Context(), x, p) },
		ActRetry:     func(x idemstore.Task, p ActOptions) (Acted, error) { return d.Retry(t.Context(), x, p) },
		ActSendAgain: func(x idemstore.Task, p ActOptions) (Acted, error) { return d.SendAgain(t.Context(), x, p) },
		ActResolve:   func(x idemstore.Task, p ActOptions) (Acted, error) { return d.Resolve(t.Context(), x, p, finished) },
		ActSupersede: func(x idemstore.Task, p ActOptions) (Acted, error) { return d.Supersede(t.Context(), x, p, 1) },
		ActCancel:    func(x idemstore.Task, p ActOptions) (Acted, error) { return d.Cancel(t.Context(), x, p) },
	}
	for name, c := range map[string]struct {
		row  map[string]string
		acts []Act
	}{
		"unknown":    {isUnknown, []Act{ActRetry, ActSupersede, ActCancel}},
		"expired":    {isExpired, []Act{ActRetry, ActSendAgain, ActSupersede, ActCancel}},
		"live":       {isLive, []Act{ActAsk, ActRetry, ActSendAgain, ActResolve, ActSupersede, ActCancel}},
		"released":   {isReleased, []Act{ActAsk, ActRetry, ActSendAgain, ActResolve, ActSupersede}},
		"parked":     {isParked, []Act{ActSupersede, ActCancel}},
		"unsent":     {isUnsent, []Act{ActSendAgain}},
		"not booked": {isUnbooked, []Act{ActSendAgain, ActSupersede, ActCancel}},
		"failed":     {isFailed, []Act{ActAsk, ActSendAgain, ActResolve, ActSupersede, ActCancel}},
		"finished":   {isFinished, []Act{ActAsk, ActRetry, ActSendAgain, ActResolve, ActSupersede, ActCancel}},
	} {
		for _, a := range c.acts {
			t.Run(name+", "+string(a), func(t *testing.T) {
				before := d.is(c.row)
				all := d.everything()
				for _, dry := range either {
					p := byAnna
					p.DryRun = dry
					acted(t)(acts[a](before, p)).expect(t, OutcomeRefused, before.Status, "")
				}
				if d.everything() != all {
					t.Error("something was changed")
				}
			})
		}
	}
	if w, _, lookups := d.pay.counts(); w != 0 || lookups != 0 {
		t.Errorf("%d requests and %d look-ups for what is not possible", w, lookups)
	}
}

// Each act that is possible does the same in a dry run, but for doing it.
func TestDryRunsChangeNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.pay.answerLookups(status(404))
	dry := ActOptions{Actor: "anna", DryRun: true}
	retry := func(x idemstore.Task) (Acted, error) { return d.Retry(t.Context(), x, dry) }
	cancel := func(x idemstore.Task) (Acted, error) { return d.Cancel(t.Context(), x, dry) }
	for name, c := range map[string]struct {
		row map[string]string
		do  func(idemstore.Task) (Acted, error)
	}{
		"retry, parked":     {isParked, retry},
		"retry, unsent":     {isUnsent, retry},
		"retry, failed":     {isFailed, retry},
		"retry, not booked": {isUnbooked, retry},
		"send again":        {isParked, func(x idemstore.Task) (Acted, error) { return d.SendAgain(t.Context(), x, dry) }},
		"cancel, released":  {isReleased, cancel},
		"cancel, unsent":    {isUnsent, cancel},
		"note":              {isFinished, func(x idemstore.Task) (Acted, error) { return d.Note(t.Context(), x, dry) }},
		"resolve as failed": {isParked, func(x idemstore.Task) (Acted, error) {
			return d.Resolve(t.Context(), x, dry, Ruling{As: idemstore.Failed})
		}},
		"resolve as finished": {isExpired, func(x idemstore.Task) (Acted, error) {
			return d.Resolve(t.Context(), x, dry, Ruling{As: idemstore.Finished, Result: []byte(`{"id":"pay_9"}`)})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := d.is(c.row)
			all := d.everything()
			acted(t)(c.do(before)).expect(t, OutcomeWouldDo, before.Status, "")
			if d.everything() != all {
				t.Error("something was changed")
			}
		})
	}
}

func TestActsNeedActorAndReason(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.is(isParked)
	all := d.everything()
	other := before
	other.Kind = "other.kind"
	for name, do := range map[string]func() (Acted, error){
		"retry, no reason": func() (Acted, error) { return d.Retry(t.Context(), before, ActOptions{Actor: "anna"}) },
		"retry, no actor":  func() (Acted, error) { return d.Retry(t.Context(), before, ActOptions{Reason: "so"}) },
		"note, no reason":  func() (Acted, error) { return d.Note(t.Context(), before, ActOptions{Actor: "anna"}) },
		"ask, no actor":    func() (Acted, error) { return d.Ask(t.Context(), before, ActOptions{}) },
		"resolve, no way":  func() (Acted, error) { return d.Resolve(t.Context(), before, byAnna, Ruling{}) },
		"failed, a result": func() (Acted, error) {
			return d.Resolve(t.Context(), before, byAnna, Ruling{As: idemstore.Failed, Result: []byte(`{}`)})
		},
		"resolve, two ids": func() (Acted, error) {
			return d.Resolve(t.Context(), before, byAnna, Ruling{As: idemstore.Finished, ExternalID: "a", Result: []byte(`{"id":"b"}`)})
		},
		"resolve, no id": func() (Acted, error) {
			return d.Resolve(t.Context(), before, byAnna, Ruling{As: idemstore.Finished, Result: []byte(`{}`)})
		},
		"kind not known": func() (Acted, error) { return d.Retry(t.Context(), other, byAnna) },
	} {
		if got, err := do(); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %+v (%v), want ErrInput", name, got, err)
		}
	}
	if d.everything() != all {
		t.Error("something was changed")
	}
}

// A retry gives a parked task one attempt, which asks before it sends.
func TestRetryAsksFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) { b.conf.Policy.MaxFailures = 1 })
	d.pay.then(d.pay.effectThen(noAnswer))
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	d.awaitSettled()
	got := acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked before anything is sent")
	if got.Task.Failures != 0 || !got.Task.GiveUpAt.After(time.Now().Add(time.Hour)) {
		t.Errorf("its budget is not given back: %+v", got.Task)
	}
	d.publish(plainJob)
	d.awaitStatus("pay_1", idemstore.Finished)
	if w, e, lookups := d.pay.counts(); w != 1 || e != 1 || lookups != 1 {
		t.Errorf("W=%d E=%d, %d look-ups", w, e, lookups)
	}
}

// D-44: what was refused for good gets one new attempt under the same provider key, which asks first.
func TestD44RetryOfFailed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) { b.kind.Commit = nil })
	keys := make(chan string, 2)
	d.pay.then(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		w.WriteHeader(http.StatusPaymentRequired)
	}, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		d.pay.honest(w, r)
	})
	d.run()
	d.publish(plainJob)
	failed := d.awaitStatus("pay_1", idemstore.Failed)
	acted(t)(d.Retry(t.Context(), failed, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked")
	d.publish(plainJob)
	d.awaitStatus("pay_1", idemstore.Finished)
	first, second := await(t, keys, "a request"), await(t, keys, "another one")
	if w, e, lookups := d.pay.counts(); w != 2 || e != 1 || lookups != 1 || first != second {
		t.Errorf("W=%d E=%d, %d look-ups, keys %q and %q", w, e, lookups, first, second)
	}
}

// What never left is performed by the attempt that a retry brings: there is nothing to ask about.
func TestRetryOfWhatNeverLeft(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	acted(t)(d.Retry(t.Context(), d.is(isUnsent), byAnna)).expect(t, OutcomeDone, idemstore.Started, "nothing was sent before")
	d.run()
	d.publish(plainJob)
	d.awaitStatus("pay_1", idemstore.Finished)
	d.awaitSettled()
	if w, e, lookups := d.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d, %d look-ups", w, e, lookups)
	}
}

// D-44: presses on what is done or under way send nothing and say so; pressing twice makes one attempt.
func TestD44PressedTwice(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	parked := d.is(isParked)
	type answer struct {
		got Acted
		err error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			got, err := d.Retry(t.Context(), parked, byAnna)
			answers <- answer{got, err}
		}()
	}
	outcomes := map[ActOutcome]int{}
	for range 2 {
		a := await(t, answers, "an answer")
		if a.err != nil {
			t.Fatal(a.err)
		}
		outcomes[a.got.Outcome]++
		a.got.expect(t, a.got.Outcome, idemstore.Unknown, "")
	}
	if outcomes[OutcomeDone] != 1 || outcomes[OutcomeOvertaken] != 1 || d.one().Attempt != parked.Attempt+1 || len(d.history()) != 1 {
		t.Errorf("%v, attempt %d, history %q", outcomes, d.one().Attempt, d.history())
	}
	// Whoever looks first sees what has become of it, and is told that there is nothing left to do.
	acted(t)(d.Retry(t.Context(), d.one(), byAnna)).expect(t, OutcomeRefused, idemstore.Unknown, "asked about it by itself")
}

// A permission to send again lets one request leave that does not rest on the key, once the provider surely knows nothing.
func TestD29SendAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) {
		b.kind.Provider.Unkeyed, b.kind.Provider.AbsentAfter = true, 50*time.Millisecond
	})
	d.pay.then(noAnswer)
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	if w, e, _ := d.pay.counts(); w != 1 || e != 0 || parked.Cause != idemstore.CauseAbsent {
		t.Fatalf("W=%d E=%d, %+v", w, e, parked)
	}
	acted(t)(d.SendAgain(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "sent once more")
	d.publish(plainJob)
	done := d.awaitStatus("pay_1", idemstore.Finished)
	if w, e, _ := d.pay.counts(); w != 2 || e != 1 || done.ResendOnce {
		t.Errorf("W=%d E=%d, %+v", w, e, done)
	}
}

// Who permits a resend learns that "does not know it" will come from another provider than the one that was sent to.
func TestSendAgainElsewhere(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	moved := d.is(map[string]string{"status": `'needs_review'`, "review_cause": `'absent'`, "provider": `'test, account 2'`})
	acted(t)(d.SendAgain(t.Context(), moved, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "sent to another provider")
	acted(t)(d.SendAgain(t.Context(), d.one(), byAnna)).expect(t, OutcomeRefused, idemstore.Unknown, "permitted already")
}

// D-40: a key that the provider has forgotten protects nothing, and a person's retry is no reason to send either.
func TestD40RetryWithAForgottenKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(b *bench) {
		b.kind.Provider.KeyLifetime = time.Nanosecond // over before anybody can use it
		b.conf.Policy.MaxFailures = 1
	})
	d.pay.then(d.pay.effectThen(noAnswer))
	d.pay.answerLookups(status(503))
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	acted(t)(d.Ask(t.Context(), parked, byAnna)).expect(t, OutcomeAsked, idemstore.NeedsReview, "could not tell")
	acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "asked before anything is sent")
	d.publish(plainJob)
	d.await("pay_1", "asked twice more", func(idemstore.Task) bool { _, _, lookups := d.pay.counts(); return lookups >= 3 })
	if w, e, _ := d.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d, want nothing sent again", w, e)
	}
}

// What is done at the provider and not booked here is booked by a retry: no request, no look-up.
func TestRetryBooks(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`alter table public.booked add constraint one_id check (id <> 'pay_1')`)
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	d.awaitSettled()
	if parked.Cause != idemstore.CauseNotBooked || parked.ExternalID != "pay_1" {
		t.Fatalf("%+v", parked)
	}
	all := d.everything()
	acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeRefused, idemstore.NeedsReview, "one_id")
	if d.everything() != all {
		t.Error("a retry whose rows are refused again changed something")
	}
	d.exec(`alter table public.booked drop constraint one_id`)
	got := acted(t)(d.Retry(t.Context(), parked, byAnna)).expect(t, OutcomeDone, idemstore.Finished, "nothing is sent")
	if got.Task.ExternalID != "pay_1" || string(got.Task.Result) != `{"id":"pay_1"}` || d.booked() != "pay_1 pay_1  0 2, events 1" {
		t.Errorf("%+v, booked %s", got.Task, d.booked())
	}
	if w, e, lookups := d.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d, %d look-ups; want the first request alone", w, e, lookups)
	}
}

// A task that was refused for its content takes that of the message that corrects it.
func TestSupersedeTakesTheRefusedContent(t *testing.T) {
	t.Parallel()
	notes := make(chan string, 9)
	d := newDesk(t, func(b *bench) {
		b.kind.Check = func(_ context.Context, _ DB, j payJob) (paid, bool, error) {
			if j.Note == "" {
				return paid{}, false, Conflict(errors.New("a note is required"))
			}
			notes <- j.Note
			return paid{}, false, nil
		}
	})
	d.run()
	d.publish(plainJob)
	parked := d.awaitStatus("pay_1", idemstore.NeedsReview)
	d.awaitSettled()
	for _, body := range []string{envelope(`"data":{"order":"1","note":"corrected"},`), `{"order":"1","note":"again"} and more`} {
		d.publish(body)
		d.awaitSettled()
	}
	all := d.everything()
	for refusal, says := range map[int64]string{2: "text after the object", 3: "no refusal 3"} {
		if _, err := d.Supersede(t.Context(), parked, byAnna, refusal); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
	dry := byAnna
	dry.DryRun = true
	acted(t)(d.Supersede(t.Context(), parked, dry, 1)).expect(t, OutcomeWouldDo, idemstore.NeedsReview, "refused message")
	if d.everything() != all {
		t.Error("something was changed")
	}
	acted(t)(d.Supersede(t.Context(), parked, byAnna, 1)).expect(t, OutcomeDone, idemstore.Started, "attempt is due now")
	d.publish(`{"order":"1","note":"corrected"}`)
	done := d.awaitStatus("pay_1", idemstore.Finished)
	note := await(t, notes, "a job with a note")
	if w, e, _ := d.pay.counts(); w != 1 || e != 1 || len(notes) != 0 || note != "corrected" || !strings.Contains(string(done.Payload), "corrected") {
		t.Errorf("W=%d E=%d, note %q and %d more, payload %s", w, e, note, len(notes), done.Payload)
	}
}

func TestCancelRunsCommit(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for name, row := range map[string]map[string]string{"released": isReleased, "unsent": isUnsent} {
		got := acted(t)(d.Cancel(t.Context(), d.is(row), byAnna)).expect(t, OutcomeDone, idemstore.Failed, "given up")
		if string(got.Task.Result) != `{"resolved":"cancelled","reason":"the customer called"}` ||
			d.booked() != "pay_1  cancelled by a person: the customer called 3 2, events 1" {
			t.Errorf("%s: result %s, booked %s", name, got.Task.Result, d.booked())
		}
	}
	if w, _, lookups := d.pay.counts(); w != 0 || lookups != 0 {
		t.Errorf("%d requests, %d look-ups", w, lookups)
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

// D-36: rows that look busy for ever, as only a hand can make them, are nobody's: they can be asked about and resolved.
func TestD36ActsOnRowsThatNobodyHolds(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	dropChecks(t, d.pool)
	d.pay.answerLookups(found("pay_9"))
	for name, row := range map[string]map[string]string{
		"no lease":     {"status": `'started'`, "unsure": `false`, "sending": `true`},
		"year 2999":    {"status": `'started'`, "unsure": `false`, "sending": `true`, "lease_until": `'2999-01-01'`},
		"no attempt":   {"status": `'started'`, "unsure": `false`, "sending": `true`, "attempts": `0`},
		"not unsure":   {"unsure": `false`},
		"only an id":   {"status": `'started'`, "unsure": `false`, "external_id": `'pay_9'`, "lease_until": `'2999-01-01'`},
		"never parked": {"status": `'needs_review'`, "sending": `true`},
	} {
		got := acted(t)(d.Ask(t.Context(), d.is(row), byAnna))
		if got.Outcome != OutcomeDone || got.Task.Status != idemstore.Finished || got.Task.ExternalID != "pay_9" {
			t.Errorf("%s, asked: %s, %s", name, got.Outcome, got.Message)
		}
		got = acted(t)(d.Resolve(t.Context(), d.is(row), byAnna, Ruling{As: idemstore.Finished}))
		if got.Outcome != OutcomeDone || got.Task.Status != idemstore.Finished {
			t.Errorf("%s, resolved: %s, %s", name, got.Outcome, got.Message)
		}
	}
	if w, e, _ := d.pay.counts(); w != 0 || e != 0 {
		t.Errorf("W=%d E=%d", w, e)
	}
}

// A local job has nothing to ask and nothing that can have left: a retry simply runs it.
func TestRetryOfALocalJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fail := Refused(errors.New("no"))
	k := LocalKind[payJob, paid]{Name: b.kind.Name, Contract: b.kind.Contract, Key: b.kind.Key, Content: b.kind.Content,
		Apply: func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { return paid{"row_1"}, fail }}
	o, err := NewOperator(b.pool, b.conf, k)
	if err != nil {
		t.Fatal(err)
	}
	_, stop := b.serve(k)
	b.publish(plainJob)
	failed := b.awaitStatus("pay_1", idemstore.Failed)
	b.awaitSettled()
	stop()
	acted(t)(o.Ask(t.Context(), failed, byAnna)).expect(t, OutcomeRefused, idemstore.Failed, "failed for good")
	acted(t)(o.Retry(t.Context(), failed, byAnna)).expect(t, OutcomeDone, idemstore.Unknown, "attempt is due now")
	fail = nil
	b.serve(k)
	b.publish(plainJob)
	if done := b.awaitStatus("pay_1", idemstore.Finished); string(done.Result) != `{"id":"row_1"}` {
		t.Errorf("%+v", done)
	}
}

// An act stands in a trace of its own, with the look-up in it, and the history names that trace.
func TestActsAreTraced(t *testing.T) {
	t.Parallel()
	var spans *tracetest.InMemoryExporter
	d := newDesk(t, func(b *bench) { spans = b.trace() })
	d.pay.answerLookups(found("pay_9"))
	task := d.is(isParked)
	got := acted(t)(d.Ask(t.Context(), task, byAnna)).expect(t, OutcomeDone, idemstore.Finished, "")
	all := spans.GetSpans()
	names := map[string]bool{}
	for _, s := range all {
		names[s.Name] = true
		if s.SpanContext.TraceID() != all[0].SpanContext.TraceID() {
			t.Errorf("%s stands in another trace", s.Name)
		}
		found := map[string]string{}
		for _, a := range s.Attributes {
			found[string(a.Key)] = a.Value.String()
		}
		if s.Name == spanAct && (found[attrAct] != "ask" || found[attrTask] != taskID(task.TaskID) || found[attrKey] != "pay_1" ||
			found[attrOutcome] != "done" || found[attrStatus] != "finished" || found[attrExternalID] != "pay_9") {
			t.Errorf("%s: %v", s.Name, found)
		}
	}
	if !names[spanAct] || !names[spanLookup] || !names["HTTP GET"] {
		t.Errorf("spans %v", names)
	}
	events, err := d.store.Events(t.Context(), task.TaskID)
	if err != nil || len(events) != 1 || events[0].TraceID != all[0].SpanContext.TraceID().String() || !strings.Contains(got.Task.LastTrace, events[0].TraceID) {
		t.Errorf("history %+v (%v), the row %q", events, err, got.Task.LastTrace)
	}
}

// What another provider does not know says little.
func TestAskSaysThatTheProviderIsAnother(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	elsewhere := d.is(map[string]string{"provider": `'elsewhere'`})
	acted(t)(d.Ask(t.Context(), elsewhere, byAnna)).expect(t, OutcomeAsked, idemstore.Unknown, "does not know it (but it was sent to another provider")
}

// Whoever gives up waiting has decided nothing.
func TestActsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := newDesk(t, func(b *bench) {
		b.kind.Lookup = func(ctx context.Context, _ *Attempt[payJob]) (paid, Verdict, error) {
			cancel()
			<-ctx.Done()
			return paid{}, CannotTell, ctx.Err()
		}
	})
	before := d.is(isParked)
	all := d.everything()
	got, err := d.Resolve(ctx, before, byAnna, Ruling{As: idemstore.Finished, Result: []byte(`{"id":"pay_9"}`)})
	if !errors.Is(err, context.Canceled) || d.everything() != all {
		t.Errorf("%+v (%v), or something was changed", got, err)
	}
}

// D-44: "replay all" over a thousand tasks of every sort, pressed by two people at once. What is done or under way is left
// alone; of the rest each gets one attempt, which asks first, and no key gets a second effect.
func TestD44RetryAllTwice(t *testing.T) {
	t.Parallel()
	const rows = 1000
	d := newDesk(t, func(b *bench) {
		b.kind.Commit = nil
		b.conf.NoRecovery, b.conf.Slots, b.conf.RecoverEvery = false, 16, 100*time.Millisecond
	})
	d.exec(`insert into settle.tasks (kind, key, status, attempts, token, sending, unsure, lease_until, next_attempt_at, give_up_at, finished_at,
			first_sent_at, last_sent_by, review_cause, payload, payload_hash, hash_algorithm, provider, provider_key)
		select $1, 'pay_' || n, s, 2, gen_random_uuid(), s = 'started', s <> 'started', case when s = 'started' then c + interval '1 h' end,
			case when s = 'unknown' then c + interval '1 h' else c end, c + interval '1 day', case when s in ('finished', 'failed') then c end,
			c, c, case when s = 'needs_review' then 'absent' end, format('{"order":"%s"}', n)::bytea, '\x00', 'test', 'test', 'pay_' || n
		from generate_series(1, $2) n, clock_timestamp() c,
			lateral (select (array['finished', 'started', 'unknown', 'failed', 'needs_review'])[n % 5 + 1]) x(s)`, d.kind.Name, rows)
	for n := 1; n <= rows; n += 2 { // every other one happened
		d.pay.effect(fmt.Sprintf("pay_%d", n))
	}
	tasks := readRows(t, d.pool)
	pressed := make(chan map[ActOutcome]int, 2)
	for range 2 {
		go func() {
			outcomes := map[ActOutcome]int{}
			for _, task := range tasks {
				got, err := d.Retry(context.WithoutCancel(t.Context()), task, byAnna)
				if err != nil {
					got.Outcome = ActOutcome(err.Error())
				}
				outcomes[got.Outcome]++
			}
			pressed <- outcomes
		}()
	}
	d.run() // while they press
	outcomes := map[ActOutcome]int{}
	for range 2 {
		for out, n := range await(t, pressed, "an end of pressing") {
			outcomes[out] += n
		}
	}
	if outcomes[OutcomeDone] != 2*rows/5 || outcomes[OutcomeOvertaken] != 2*rows/5 || outcomes[OutcomeRefused] != 6*rows/5 {
		t.Errorf("%v", outcomes)
	}
	state := func() string {
		return d.text(`select string_agg(status || ' ' || n, ', ' order by status) from (select status, count(*) n from settle.tasks group by 1) x`)
	}
	if want := "finished 600, started 200, unknown 200"; !eventually(t, time.Minute, func() bool { return state() == want }) {
		t.Errorf("the tasks are %s, want %s", state(), want)
	}
	if w, e, lookups := d.pay.counts(); w != rows/5 || e != rows/2+rows/5 || lookups != 2*rows/5 {
		t.Errorf("W=%d E=%d, %d look-ups", w, e, lookups)
	}
	if n := d.text(`select count(*)::text || ' of ' || count(distinct task_id) from settle.task_events where reason = 'retry: the customer called'`); n != "400 of 400" {
		t.Errorf("lines about a retry: %s", n)
	}
}
