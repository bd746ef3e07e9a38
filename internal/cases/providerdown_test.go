package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// A provider that is down for a while, for sends and look-ups alike: the workers leave it alone but for one try at a time,
// a person is called once, and when it is back every job ends with its one effect and most of its budget.
func TestProviderIsDownForAWhile(t *testing.T) {
	t.Parallel()
	const jobs, interval = 120, 300 * time.Millisecond
	s := newCalmStage(t)
	s.settings.Config.Policy.BackoffMin, s.settings.Config.Policy.BackoffMax = interval, 2*interval
	s.faults(provider.Fault{Method: "*", Status: 503})
	for i := range jobs {
		s.publish(charge(fmt.Sprint(i)))
	}
	workers := []*rig.Worker{s.startWorker(), s.startWorker()}
	for _, w := range workers {
		awaitLine(t, w, "breaker open", "provider=")
	}
	before, began := s.traffic(), time.Now()
	rig.Eventually(t, soon, "it is tried now and then", func() bool { return s.traffic() >= before+2*s.settings.Config.Slots+6 })
	if tries, most := s.traffic()-before, 2*(s.settings.Config.Slots+1+int(time.Since(began)/interval)); tries > most {
		t.Errorf("%d requests of two workers in %s", tries, time.Since(began))
	}
	if n := query[int](s, `select count(*)::int from settle.tasks`); n[0] == jobs {
		t.Error("all messages were taken while the provider was down")
	}

	s.faults()
	for i := range jobs {
		if task := s.awaitStatus(charge(fmt.Sprint(i)), idemstore.Finished); task.Failures > 2 {
			t.Errorf("job %d has %d failures", i, task.Failures)
		}
	}
	for i := range jobs {
		s.holds(charge(fmt.Sprint(i)))
	}
	alerts, closed := 0, 0
	for _, w := range workers {
		drained(t, w)
		alerts += strings.Count(w.Output(), "level=ERROR msg=alert")
		closed += strings.Count(w.Output(), "breaker closed")
	}
	if alerts != 1 || closed == 0 { // one worker may have done it all before the other one tried
		t.Errorf("%d alerts, %d breakers closed", alerts, closed)
	}
	if causes := query[string](s, `select cause from settle.alerts`); len(causes) != 1 || causes[0] != "provider_down "+s.settings.ProviderURL {
		t.Errorf("causes %q", causes)
	}
}

// traffic counts the requests that reached the provider, look-ups included.
func (s *stage) traffic() int {
	s.t.Helper()
	return query[int](s, `select count(*)::int from provider.requests`)[0]
}
