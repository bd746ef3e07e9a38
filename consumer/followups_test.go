package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// learnt is one way in which an outcome becomes final. What it emits does not depend on who learns it.
type learnt struct {
	name    string
	row     map[string]string // what is there before; nil: nothing, and a message comes
	post    http.HandlerFunc  // answers requests for the effect; nil: none may come
	lookups []http.HandlerFunc
	act     func(*Operator, idemstore.Task) (Acted, error)
	want    string // subject and body of the one event
}

// outcomes is how every final outcome becomes one: by the live attempt, a poll, recovery, or a person.
func outcomes(t *testing.T) []learnt {
	late := `clock_timestamp() + interval '1 hour'`
	parked := parkedBy(idemstore.CauseAbsent) // nobody but a person goes on with it
	finished, failed := Ruling{As: idemstore.Finished, Result: []byte(`{"id":"p"}`)}, Ruling{As: idemstore.Failed}
	resolve := func(r Ruling) func(*Operator, idemstore.Task) (Acted, error) {
		return func(o *Operator, x idemstore.Task) (Acted, error) { return o.Resolve(t.Context(), x, byAnna, r) }
	}
	ask := func(o *Operator, x idemstore.Task) (Acted, error) { return o.Ask(t.Context(), x, byAnna) }
	cancel := func(o *Operator, x idemstore.Task) (Acted, error) { return o.Cancel(t.Context(), x, byAnna) }
	retry := func(o *Operator, x idemstore.Task) (Acted, error) { return o.Retry(t.Context(), x, byAnna) }
	yes, no := told(http.StatusOK, "p"), told(http.StatusPaymentRequired, "p")
	running, accepted, mute := told(http.StatusAccepted, "p"), told(http.StatusAccepted, "p"), status(http.StatusInternalServerError)
	died := and(expired, "sending", `true`)
	return []learnt{
		{name: "performed", post: told(http.StatusCreated, "p"), want: "events.test.done p"},
		{name: "refused", post: told(http.StatusPaymentRequired, ""), want: "events.test.refused -"},
		{name: "accepted, and polled", post: accepted, lookups: []http.HandlerFunc{running, running, yes}, want: "events.test.done p"},
		{name: "accepted, and refused later", post: accepted, lookups: []http.HandlerFunc{running, no}, want: "events.test.refused p"},
		{name: "recovered", row: died, lookups: []http.HandlerFunc{yes}, want: "events.test.done p"},
		{name: "recovered and polled", row: died, lookups: []http.HandlerFunc{running, running, yes}, want: "events.test.done p"},
		{name: "recovered, and refused", row: died, lookups: []http.HandlerFunc{no}, want: "events.test.refused p"},
		{name: "parked, and asked by recovery", row: parkedBy(idemstore.CauseAge), lookups: []http.HandlerFunc{yes}, want: "events.test.done p"},
		{name: "asked by a person", row: parked, lookups: []http.HandlerFunc{yes}, act: ask, want: "events.test.done p"},
		{name: "asked by a person, and refused", row: parked, lookups: []http.HandlerFunc{no}, act: ask, want: "events.test.refused p"},
		{name: "resolved as finished", row: parked, lookups: []http.HandlerFunc{mute}, act: resolve(finished), want: "events.test.done p"},
		{name: "resolved as failed", row: parked, lookups: []http.HandlerFunc{mute}, act: resolve(failed), want: "events.test.refused -"},
		{name: "booked at last", row: isUnbooked, act: retry, want: "events.test.done pay_7"},
		{name: "cancelled", row: and(released, "next_attempt_at", late), act: cancel, want: "events.test.refused -"},
	}
}

// script answers the requests of each task as its case says, by the provider key.
type script struct {
	mu    sync.Mutex
	cases map[string]*learnt
	posts map[string]int
}

func (s *script) answer(w http.ResponseWriter, r *http.Request) bool {
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	c := s.cases[key]
	answer := c.post
	if r.Method == http.MethodPost {
		s.posts[key]++
	} else if answer = status(http.StatusNotFound); len(c.lookups) > 0 {
		answer = c.lookups[0]
		c.lookups = c.lookups[min(1, len(c.lookups)-1):] // the last one stays
	}
	s.mu.Unlock()
	if answer == nil {
		answer = status(http.StatusTeapot)
	}
	answer(w, r)
	return true
}

func (s *script) sent(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posts[key]
}

// Whoever learns a final outcome, what follows it goes out, once, and by it nothing is sent again.
func TestFollowUpsWhoeverLearns(t *testing.T) {
	t.Parallel()
	b := newBench(t).recovering()
	b.conf.Breaker = -1
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		subject := "events.test.done"
		if f.Refused != "" {
			subject = "events.test.refused"
		}
		w.Emit(subject, f.Key, paid{f.ExternalID})
		return nil
	}
	o, err := NewOperator(b.pool, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{cases: map[string]*learnt{}, posts: map[string]int{}}
	b.pay.front = s.answer
	cases := outcomes(t)
	for i, c := range cases {
		s.cases[fmt.Sprintf("pay_%d", i)] = &c
		if c.row != nil {
			b.insert(b.kind, numbered(i), c.row)
		} else {
			b.publish(numbered(i))
		}
	}
	b.run()
	for i, c := range cases {
		key := fmt.Sprintf("pay_%d", i)
		if c.act != nil {
			acted(t)(c.act(o, b.await(key, "there", func(idemstore.Task) bool { return true })))
		}
		b.await(key, c.name+": final", func(t idemstore.Task) bool { return t.Status.Final() })
	}
	told := b.announced()
	for i, c := range cases {
		key := fmt.Sprintf("pay_%d", i)
		if got := strings.Join(told[key], ", "); got != c.want {
			t.Errorf("%s: events %q, want %q", c.name, got, c.want)
		}
		want := 0
		if c.post != nil {
			want = 1
		}
		if n := s.sent(key); n != want {
			t.Errorf("%s: %d requests for the effect, want %d", c.name, n, want)
		}
	}
}

// announced is what was published of each key.
func (b *bench) announced() map[string][]string {
	b.t.Helper()
	out := map[string][]string{}
	for _, m := range b.published() {
		var p paid
		if err := json.Unmarshal(m.Data, &p); err != nil {
			b.t.Fatal(err)
		}
		key := m.Header.Get(headerKey)
		out[key] = append(out[key], m.Subject+" "+or(p.ID, "-"))
	}
	return out
}

// An order that was found done by the kind's own rows has its event as well, and nothing is sent.
func TestFollowUpsOfWhatWasDoneAlready(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Check = func(context.Context, DB, payJob) (paid, bool, error) { return paid{"p"}, true, nil }
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Emit("events.test.checked", f.Key, f.Result)
		return nil
	}
	b.run()
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
	if got := b.announced()["pay_1"]; len(got) != 1 || got[0] != "events.test.checked p" {
		t.Errorf("events %q", got)
	}
	if w, _, _ := b.pay.counts(); w != 0 {
		t.Errorf("W=%d", w)
	}
}
