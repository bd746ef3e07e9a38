package cases

import (
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// answered is what a provider does to a job's first request, and what must come of it: W requests in all.
type answered struct {
	fault provider.Fault
	w     int
}

// becomeUnknown runs jobs whose first request goes wrong in some way: each is unknown first, never failed, and then
// finished with one effect and no more requests than attempts that sent.
func becomeUnknown(t *testing.T, cases map[string]answered) {
	t.Helper()
	s := newCalmStage(t)
	jobs, faults := map[string]job{}, []provider.Fault{}
	for name, c := range cases {
		j := charge(name)
		c.fault.Key, c.fault.Count = j.key, 1
		jobs[name], faults = j, append(faults, c.fault)
	}
	s.faults(faults...)
	s.serve(referenceKinds)
	for _, j := range jobs {
		s.publish(j)
	}
	for name, j := range jobs {
		task := s.awaitStatus(j, idemstore.Finished)
		s.sent(j, cases[name].w, 2)
		s.firstUnknown(task)
		if _, lookups := s.requests(j); lookups != 1 {
			t.Errorf("%s: %d look-ups, want 1", name, lookups)
		}
	}
	for _, j := range jobs {
		s.holds(j)
	}
}

// A 5xx says nothing about the effect.
func TestD30ServerErrorAfterTheEffect(t *testing.T) {
	t.Parallel()
	becomeUnknown(t, map[string]answered{
		"effect-500":    {provider.Fault{Status: 500, StatusAt: provider.After}, 1},
		"effect-502":    {provider.Fault{Status: 502, StatusAt: provider.After, Body: []byte("<html>Bad Gateway</html>")}, 1},
		"no-effect-503": {provider.Fault{Status: 503}, 2},
	})
}

// A success whose body is cut off or empty is no proof of anything but that the request arrived.
func TestD34CutOffAnswer(t *testing.T) {
	t.Parallel()
	ok := provider.Fault{Status: 200, StatusAt: provider.After}
	length, chunk, empty := ok, ok, ok
	length.Cut, chunk.Cut, empty.Body = provider.CutLength, provider.CutChunk, []byte{}
	becomeUnknown(t, map[string]answered{"short": {length, 1}, "in-a-chunk": {chunk, 1}, "empty": {empty, 1}})
}
