package cases

import (
	"net/http"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// net/http repeats a request with a key header by itself when a kept connection closes before the answer. Here it
// does not: one attempt is one request, and the trace shows as many as the provider saw.
func TestD26NoHiddenRepeat(t *testing.T) {
	t.Parallel()
	each(t, map[string]struct{ method, body string }{
		"POST with a body of one byte": {http.MethodPost, "x"},
		"DELETE without a body":        {http.MethodDelete, ""},
	}, func(t *testing.T, c struct{ method, body string }) {
		s := newCalmStage(t)
		s.settings.Config.Slots = 1
		p := newPoker(t, c.method, c.body)
		p.answer = func(name string, w http.ResponseWriter) bool {
			if name == "warm" {
				return false
			}
			hangUp(w)
			return true
		}
		w := s.serve(p.kinds)
		warm, j := poke("warm"), poke("cold")
		s.publish(warm)
		s.awaitStatus(warm, idemstore.Finished)
		s.publish(j)
		task := s.awaitStatus(j, idemstore.Finished)
		s.awaitSettled()
		w.stop()

		total, e, from, lookups := p.counts(task.ProviderKey)
		if total != 2 || from[0] != from[1] {
			t.Fatalf("%d requests, from %q; want one to warm the connection and one on it", total, from)
		}
		if e != 1 || task.ExternalID != "poke_2" || task.Attempt != 2 || lookups != 1 {
			t.Errorf("E=%d, id %q, %d attempts, %d look-ups; want the look-up to find the one effect", e, task.ExternalID, task.Attempt, lookups)
		}
		s.firstUnknown(task)
		if sent, asked := w.clientSpans(c.method), w.clientSpans(http.MethodGet); sent != total || asked != lookups {
			t.Errorf("the trace has %d requests and %d look-ups, the provider saw %d and %d", sent, asked, total, lookups)
		}
	})
}

// The same for a charge, at a provider that ignores keys and would charge twice.
func TestD26ChargeIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.settings.Config.Slots = 1
	warm, j := charge("1"), charge("2")
	s.faults(provider.Fault{Key: j.key, IgnoreKeys: true, Close: provider.After})
	w := s.serve(referenceKinds)
	s.publish(warm)
	s.awaitStatus(warm, idemstore.Finished)
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Finished)
	s.holds(warm, j)
	s.sent(j, 1, 2)
	s.firstUnknown(task)
	w.stop()
	if n := w.clientSpans(http.MethodPost); n != 2 {
		t.Errorf("the trace has %d charges, the provider saw 2", n)
	}
}
