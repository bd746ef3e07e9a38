package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settlemq/settle/idemstore"
)

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
