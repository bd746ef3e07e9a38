package cases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// refusal is a line of settle.refusals.
type refusal struct {
	Sequence     int64
	Reason, Body string
	Cut          bool
}

// kept are the messages that were not accepted, as they were written down.
func (s *stage) kept() (out []refusal) {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), `select sequence, reason, encode(body, 'escape'), cut from settle.refusals order by sequence`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r refusal
		if err := rows.Scan(&r.Sequence, &r.Reason, &r.Body, &r.Cut); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// refused publishes bodies that must not be accepted, and a good job behind them. Each bad one is kept once, with
// its bytes, and termed on its first delivery; nothing of them reaches the provider or the tasks.
func refused(t *testing.T, reason string, bodies ...string) {
	t.Helper()
	s, good := newCalmStage(t), charge("good")
	proxy := s.throughNATS()
	var want []refusal
	for _, body := range bodies {
		sequence := s.publish(job{kind: chargeKind, body: body})
		want = append(want, refusal{int64(sequence), reason, strings.ReplaceAll(body, "\ufeff", `\357\273\277`), false})
	}
	s.publish(good)
	w := s.startWorker()
	s.holds(good)
	drained(t, w)
	if got := s.kept(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("refusals\n%v\nwant\n%v", got, want)
	}
	terms := 0
	for _, p := range proxy.Settling() {
		if p.IsTerm() {
			terms++
		}
		if delivered(p) != "1" {
			t.Errorf("a message was delivered again: %s", p.Subject)
		}
	}
	if tasks := query[string](s, `select key from settle.tasks`); terms != len(bodies) || fmt.Sprint(tasks) != "["+good.key+"]" || s.allEffects() != 1 {
		t.Errorf("%d terms, tasks %q, E=%d", terms, tasks, s.allEffects())
	}
}

func TestD10NotOneCleanObject(t *testing.T) {
	t.Parallel()
	refused(t, "malformed",
		``,
		`{"order_id":"A"`,
		"\ufeff"+charge("A").body,
		`[]`,
		`{"order_id":"A"}{"order_id":"B"}`,
		`{"order_id":"A","order_id":"B"}`,
		`{"order_id":"A","ORDER_ID":"B"}`)
}

// Two different payloads each, so that one taken for the other would be missed.
func TestD13NoUsableKey(t *testing.T) {
	t.Parallel()
	var bodies []string
	for _, id := range []string{``, `"order_id":null,`, `"order_id":"",`, `"order_id":"   ",`, `"order_id":{},`, `"order_id":false,`, `"order_id":[],`} {
		for amount := range 2 {
			bodies = append(bodies, fmt.Sprintf(`{%s"customer_id":"c_1","amount":%d,"currency":"EUR"}`, id, amount))
		}
	}
	refused(t, "bad_key", bodies...)
}

// Numbers are texts: no digit of a key or an amount is lost, and none is written another way.
func TestD12ExactNumbers(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	var jobs []job
	for _, id := range []string{"9007199254740992", "9007199254740993", "21000000"} {
		jobs = append(jobs, job{chargeKind, "order_" + id, fmt.Sprintf(`{"order_id":%s,"customer_id":"c_1","amount":5,"currency":"EUR"}`, id)})
	}
	const amount = "12345678901234567890.10"
	exact := job{chargeKind, "order_exact", fmt.Sprintf(`{"order_id":"exact","customer_id":"c_1","amount":%s,"currency":"EUR"}`, amount)}
	jobs = append(jobs, exact)
	s.publish(jobs...)
	w := s.startWorker()
	s.holds(jobs...)
	drained(t, w)
	if got := query[string](s, `select amount from provider.charges where idempotency_key = $1`, exact.key); fmt.Sprint(got) != "["+amount+"]" {
		t.Errorf("the provider was asked for %q, want %s", got, amount)
	}
	const written = `select key from settle.tasks union select provider_key from settle.tasks union select coalesce(key, '') from provider.requests`
	for _, text := range append(query[string](s, written), strings.Fields(w.Output())...) {
		if strings.Contains(strings.ToLower(text), "e+") {
			t.Errorf("a number in exponent notation: %q", text)
		}
	}
}

// chargeFor is a charge of a customer whose name says how the handler misbehaves.
func chargeFor(order, customer string) job {
	j := charge(order)
	j.body = strings.Replace(j.body, `"c_1"`, fmt.Sprintf("%q", customer), 1)
	return j
}

// A job that kills its process each time, under a supervisor that starts the next one. The attempts are counted
// where a death cannot undo it, so it ends with a person; the others are done meanwhile.
func TestD11KillsItsProcess(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.settings.Config.Policy.MaxFailures = 3
	// A job that is under way when its neighbour kills the process has died with it, which costs it a failure too.
	s.settings.Config.Slots = 1
	poison, others := chargeFor("poison", "c_exit"), []job{charge("1"), charge("2"), charge("3")}
	s.publish(append([]job{poison}, others...)...)
	var w *rig.Worker
	deaths, ran := 0, 0
	rig.Eventually(t, 2*soon, "the poison waits for a person", func() bool {
		if w == nil {
			w = s.start(rig.WorkerOptions{Name: "misbehaving"})
		}
		select {
		case <-w.Exited():
			deaths, ran = deaths+1, ran+strings.Count(w.Output(), "the handler exits")
			if e := w.Wait(soon); e.Code != exitCode {
				t.Fatalf("the worker ended with %s", e)
			}
			w = nil
		default:
		}
		task, ok := s.find(poison)
		return ok && task.Status == idemstore.NeedsReview && w != nil
	})
	s.holds(others...)
	drained(t, w)
	task, _ := s.find(poison)
	if w, _ := s.requests(poison); deaths != 3 || ran != 3 || task.Attempt != 4 || w != 0 || len(s.effects(poison)) != 0 {
		t.Errorf("%d deaths, the handler ran %d times, %d attempts, W=%d", deaths, ran, task.Attempt, w)
	}
}
