package cases

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// No redirect is followed: a page of somebody else's is no charge, and nobody else learns key, body or password.
func TestD27RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = w.Write([]byte(`{"charge_id":"ch_false","status":"succeeded"}`))
	}))
	t.Cleanup(elsewhere.Close)
	s := newCalmStage(t)
	s.settings.Config.Policy.MisconfiguredWait = time.Hour
	s.settings.Config.Breaker = -1 // it would hold the others back after the first
	jobs := map[int]job{301: charge("1"), 302: charge("2"), 303: charge("3"), 307: charge("4"), 308: charge("5")}
	var faults []provider.Fault
	for status, j := range jobs {
		faults = append(faults, provider.Fault{Key: j.key, Status: status, Redirect: elsewhere.URL + "/login"})
	}
	s.faults(faults...)
	s.serve(referenceKinds)
	for _, j := range jobs {
		s.publish(j)
	}
	for status, j := range jobs {
		task := s.awaitStatus(j, idemstore.Unknown)
		if wait := time.Until(task.NextAttemptAt); wait < 25*time.Minute || task.ErrorClass != "misconfigured" {
			t.Errorf("%d: error class %q, again in %s; want a long delay", status, task.ErrorClass, wait)
		}
		s.sent(j, 1, 1)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
	if e := s.allEffects(); e != 0 {
		t.Errorf("E=%d", e)
	}
}

// Once the address is right again the job goes through, under its key.
func TestD27RedirectIsMended(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.settings.Config.Policy.MisconfiguredWait = 200 * time.Millisecond
	s.faults(provider.Fault{Redirect: "http://127.0.0.1:1/", Count: 1})
	s.serve(referenceKinds)
	j := charge("1")
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Finished)
	s.holds(j)
	s.sent(j, 2, 2)
	s.firstUnknown(task)
	if task.Failures != 0 {
		t.Errorf("a wrong address cost %d failures", task.Failures)
	}
}
