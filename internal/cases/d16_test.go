package cases

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// once checks that nothing went round in circles: one request, one attempt, and no delivery after the first.
func (s *stage) once(jobs ...job) {
	s.t.Helper()
	s.awaitSettled()
	for _, j := range jobs {
		s.sent(j, 1, 1)
		if task, _ := s.find(j); task.Duplicates != 0 {
			s.t.Errorf("%s was delivered again %d times", j.key, task.Duplicates)
		}
	}
}

// A NUL in a job is data like any other; where it is no valid JSON the message is refused, once.
func TestD16NULInTheJob(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.serve(referenceKinds)
	memo := job{chargeKind, "order_1", `{"order_id":"1","customer_id":"c_1","amount":1200,"currency":"EUR","memo":"x\u0000y"}`}
	s.publish(memo,
		job{chargeKind, "", `{"order_id":"2","customer_id":"c\u0000","amount":1200,"currency":"EUR"}`},
		job{chargeKind, "", "{\"order_id\":\"3\x00\"}"},
		job{chargeKind, "", `{"order_id":"4\u0000","customer_id":"c_1","amount":1200,"currency":"EUR"}`})
	s.awaitStatus(memo, idemstore.Finished)
	s.holds(memo)
	s.once(memo)
	task, _ := s.find(memo)
	if string(task.Payload) != memo.body {
		t.Errorf("payload %q", task.Payload)
	}
	if refused := strings.Join(s.refusals(), " "); refused != "bad_key malformed bad_key" {
		t.Errorf("refused: %s", refused)
	}
	if e := s.allEffects(); e != 1 {
		t.Errorf("E=%d", e)
	}
}

// A NUL in an answer does not keep its outcome from being stored.
func TestD16NULInTheAnswer(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	good, bad := charge("1"), charge("2")
	s.faults(
		provider.Fault{Key: good.key, Status: 200, StatusAt: provider.After, Body: []byte(`{"charge_id":"ch_1","note":"\u0000"}`)},
		provider.Fault{Key: bad.key, Status: 400, Body: []byte("no \x00 such \xff card")})
	s.serve(referenceKinds)
	s.publish(good, bad)
	task := s.awaitStatus(good, idemstore.Finished)
	if task.ExternalID != "ch_1" || len(s.effects(good)) != 1 {
		t.Errorf("id %q, effects %q", task.ExternalID, s.effects(good))
	}
	task = s.awaitStatus(bad, idemstore.Failed)
	if !utf8.ValidString(task.Answer) || !strings.HasPrefix(task.Answer, "no \uFFFD such") || task.LastError == "" {
		t.Errorf("answer %q, error %q", task.Answer, task.LastError)
	}
	s.once(good, bad)
}

// The same where a handler passes such text on, in its result or in its error. A flag says that a result is not
// what it was.
func TestD16NULInResultAndError(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	p := newPoker(t, http.MethodPost, "x")
	p.answer = func(name string, w http.ResponseWriter) bool {
		if name == "refused" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, err := io.WriteString(w, `{"id":"ch_`+name+`","note":"a\u0000b\ud800"}`)
		return err == nil
	}
	s.serve(p.kinds)
	done, refused := poke("done"), poke("refused")
	s.publish(done, refused)

	task := s.awaitStatus(done, idemstore.Finished)
	var result pokeResult
	if err := json.Unmarshal(task.Result, &result); err != nil || result.Note != "a\uFFFDb\uFFFD" || !task.ResultAltered {
		t.Errorf("result %s (altered: %v): %v", task.Result, task.ResultAltered, err)
	}
	if task.ExternalID != "ch_done" || task.Attempt != 1 {
		t.Errorf("id %q in %d attempts", task.ExternalID, task.Attempt)
	}
	if castable := query[bool](s, `select result::jsonb ? 'id' from settle.tasks where id = $1`, task.TaskID); !castable[0] {
		t.Error("the result is no object any more")
	}
	task = s.awaitStatus(refused, idemstore.Failed)
	if task.LastError != "a\uFFFDb\uFFFD" || task.Attempt != 1 {
		t.Errorf("error %q in %d attempts", task.LastError, task.Attempt)
	}
	s.awaitSettled()
}
