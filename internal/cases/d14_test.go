package cases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// The same key with another amount is a conflict: written down, termed, and nothing of it reaches the row.
func TestD14OtherContentUnderTheSameKey(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.serve(referenceKinds)
	j := charge("1")
	other := j
	other.body = strings.Replace(j.body, "1200", "999", 1)
	first := s.publish(j)
	before := s.awaitStatus(j, idemstore.Finished)
	s.awaitSettled()
	second := s.publish(other)
	s.awaitSettled()
	s.publish(j)
	s.holds(j)
	s.sent(j, 1, 1)

	after, _ := s.find(j)
	if after.Duplicates != 1 || string(after.Result) != string(before.Result) || !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("the row changed: %d duplicates, result %s, was %s", after.Duplicates, after.Result, before.Result)
	}
	var reason, detail, body string
	var task, sequence int64
	s.scan(`select reason, detail, convert_from(body, 'UTF8'), task_id, sequence from settle.refusals`, nil,
		&reason, &detail, &body, &task, &sequence)
	if reason != "conflict" || body != other.body || task != after.TaskID || uint64(sequence) != second {
		t.Errorf("refusal %s of message %d for task %d: %s", reason, sequence, task, body)
	}
	for _, part := range []string{fmt.Sprintf("%x", after.Hash)[:16], fmt.Sprintf("message %d ", first)} {
		if !strings.Contains(detail, part) {
			t.Errorf("the refusal says %q, without %q", detail, part)
		}
	}
}

// The same content in other bytes is the same job.
func TestD15SameContentInOtherBytes(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.serve(referenceKinds)
	j := job{chargeKind, "order_18452", `{"order_id":"18452","customer_id":"c_1","amount":1200,"currency":"EUR"}`}
	s.publish(j)
	before := s.awaitStatus(j, idemstore.Finished)
	spellings := []string{
		`{ "currency":"EUR", "amount":1200, "customer_id":"c_1", "order_id":"18452" }`,
		`{"order_id":18452,"customer_id":"c_1","amount":1200,"currency":"EUR"}`,
		`{"order_id":"18452","customer_id":"c_1","amount":1.2e3,"currency":"EUR"}`,
		`{"order_id":"18452","customer_id":"c_1","amount":1200.00,"currency":"\u0045UR"}`,
	}
	for _, body := range spellings {
		s.publish(job{chargeKind, j.key, body})
	}
	s.holds(j)
	s.sent(j, 1, 1)
	after, _ := s.find(j)
	if refused := s.refusals(); len(refused) > 0 || after.Duplicates != len(spellings) {
		t.Errorf("%d duplicates of %d, refused %q", after.Duplicates, len(spellings), refused)
	}
	if string(after.Payload) != j.body || after.HashAlgorithm == "" || string(after.Hash) != string(before.Hash) {
		t.Errorf("payload %s, hashed by %q", after.Payload, after.HashAlgorithm)
	}
}

// Members that the kind calls volatile do not count; the order in an array does.
func TestD15VolatileMembersAndArrays(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	p := newPoker(t, "POST", "x")
	s.serve(p.kinds)
	j := poke("a")
	s.publish(job{pokeKind, "a", `{"name":"a","list":[1,2],"sent_at":"09:00"}`})
	s.awaitStatus(j, idemstore.Finished)
	s.publish(job{pokeKind, "a", `{"sent_at":"10:00","list":[1,2],"name":"a"}`}, job{pokeKind, "a", `{"name":"a","list":[2,1]}`})
	s.awaitSettled()
	task, _ := s.find(j)
	if w, e, _, _ := p.counts(task.ProviderKey); w != 1 || e != 1 || task.Duplicates != 1 {
		t.Errorf("W=%d, E=%d, %d duplicates, want one of each", w, e, task.Duplicates)
	}
	if refused := s.refusals(); len(refused) != 1 || refused[0] != "conflict" {
		t.Errorf("refused: %q, want the one with the other order", refused)
	}
}
