package cases

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// askProvider sends a request of the test's own.
func (s *stage) askProvider(path, key, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.settings.ProviderURL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("the provider answered %s", resp.Status)
	}
}

// reasons counts the audit lines of a task that say something.
func (s *stage) reasons(task idemstore.Task, text string) (n int) {
	s.t.Helper()
	for _, e := range s.events(task) {
		if strings.Contains(e.Reason, text) {
			n++
		}
	}
	return n
}

// 429 with any Retry-After: the next request waits as long as was asked, within reason, outside of any slot, and
// is the same byte for byte.
func TestD32RetryAfter(t *testing.T) {
	t.Parallel()
	const backoff, limit = time.Second, 3 * time.Second
	s := newCalmStage(t)
	s.settings.Config.Slots = 1
	s.settings.Config.Policy.BackoffMin, s.settings.Config.Policy.BackoffMax = backoff, 5*time.Second
	s.settings.Config.Policy.RetryAfterMax = limit
	rec := s.throughRecorder()
	asked := map[string]struct {
		value string
		least time.Duration // until the next request
	}{
		"seconds":  {"2", 2 * time.Second},
		"none":     {"0", backoff},
		"negative": {"-5", backoff},
		"fraction": {"1.5", backoff},
		"huge":     {"9223372037", limit},
		"over":     {"9223372036854775807", limit},
		"words":    {"soon", backoff},
		"absent":   {"", backoff},
		"date":     {"Fri, 31 Dec 2999 23:59:59 GMT", limit},
		"asctime":  {"Fri Dec 31 23:59:59 2999", limit},
		"past":     {"Sunday, 06-Nov-94 08:49:37 GMT", backoff},
	}
	jobs, faults := map[string]job{}, []provider.Fault{}
	for name, c := range asked {
		j := charge(name)
		jobs[name], faults = j, append(faults, provider.Fault{Key: j.key, Status: 429, RetryAfter: c.value, Count: 1})
	}
	s.faults(faults...)
	s.serve(referenceKinds)
	begin := time.Now()
	for _, j := range jobs {
		s.publish(j)
	}
	for name, j := range jobs {
		task := s.awaitStatus(j, idemstore.Finished)
		s.sent(j, 2, 2)
		posts := rec.posts(j.key)
		if len(posts) != 2 {
			t.Fatalf("%s: %d requests", name, len(posts))
		}
		if pause := posts[1].at.Sub(posts[0].at); pause < asked[name].least {
			t.Errorf("Retry-After %q: the next request came after %s, want at least %s", asked[name].value, pause, asked[name].least)
		}
		if posts[0].body != posts[1].body || posts[1].body == "" {
			t.Errorf("%s: bodies %q and %q", name, posts[0].body, posts[1].body)
		}
		if task.Failures != 0 {
			t.Errorf("%s: throttling cost %d failures", name, task.Failures)
		}
		if marks := s.reasons(task, "longer than the 3s that are obeyed"); (marks > 0) != (asked[name].least == limit) {
			t.Errorf("Retry-After %q: %d audit lines say that it was cut", asked[name].value, marks)
		}
	}
	var inTurn time.Duration // if each had waited in the one slot
	for _, c := range asked {
		inTurn += c.least
	}
	if took := time.Since(begin); took >= inTurn {
		t.Errorf("all of it took %s, waits in turn take %s: waiting holds the slot", took, inTurn)
	}
	for _, j := range jobs {
		s.holds(j)
	}
}
