package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// A 409 means three things, and what it means is in its body.
func TestD31Conflicts(t *testing.T) {
	t.Parallel()
	after := provider.Fault{Status: 409, StatusAt: provider.After} // with the true body: the id of what there is
	silent := after
	silent.Body = []byte(`{"error":"already_processed"}`)
	becomeUnknown(t, map[string]answered{
		"in-progress":       {provider.Fault{InProgress: true}, 2},
		"already-exists":    {after, 1},
		"already-processed": {silent, 1},
	})
}

// "Still running" is no failure, however often it is said: the same key is sent again until it is not.
func TestD31InProgressForLong(t *testing.T) {
	t.Parallel()
	s, j := newCalmStage(t), charge("1")
	s.settings.Config.Policy.MaxFailures = 2
	rec := s.throughRecorder()
	const busy = 5
	s.faults(provider.Fault{InProgress: true, Count: busy})
	s.serve(referenceKinds)
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Finished)
	s.firstUnknown(task)
	s.holds(j)
	posts := rec.posts(j.key)
	if len(posts) != busy+1 || task.Attempt != busy+1 || task.Failures != 0 {
		t.Errorf("%d requests with the key in %d attempts, %d failures", len(posts), task.Attempt, task.Failures)
	}
}

// Where the profile says that a 409 means "exists", the id in it is asked about, also if look-ups by key are blind.
func TestD31ExistsByProfile(t *testing.T) {
	t.Parallel()
	s, j := newCalmStage(t), charge("1")
	s.settings.Provider.Status409 = consumer.MeansExists
	s.faults(provider.Fault{Status: 409, StatusAt: provider.After, Hide: time.Hour})
	s.serve(referenceKinds)
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Finished)
	s.firstUnknown(task)
	s.sent(j, 1, 2)
	s.holds(j)
	polls := query[int](s, `select count(*)::int from provider.requests where method = 'GET' and path = '/charges/' || $1`, task.ExternalID)
	if _, byKey := s.requests(j); polls[0] != 1 || byKey != 0 {
		t.Errorf("%d look-ups by id and %d by key, want one by id", polls[0], byKey)
	}
}

// "Already processed", and nobody knows what: no outcome is made up, and a person is asked in the end.
func TestD31ProcessedAndNowhereFound(t *testing.T) {
	t.Parallel()
	s, j := newCalmStage(t), charge("1")
	s.settings.Config.Policy.MaxFailures = 3
	s.faults(provider.Fault{Status: 409, Body: []byte(`{"error":"already_processed"}`)})
	s.serve(referenceKinds)
	s.publish(j)
	task := s.awaitStatus(j, idemstore.NeedsReview)
	s.awaitSettled()
	s.firstUnknown(task)
	s.sent(j, 3, 3)
	if e := s.effects(j); len(e) != 0 || task.Cause != idemstore.CauseBudget || task.ExternalID != "" {
		t.Errorf("effects %q, cause %q, id %q", e, task.Cause, task.ExternalID)
	}
}

// Other content under our key at the provider, whatever status says so: a person has to look, and nothing more is sent.
// Without a word for it in the body a 422 is a refusal, as that of most providers is, unless the profile says otherwise.
func TestD31OtherContentUnderTheKey(t *testing.T) {
	t.Parallel()
	each(t, map[string]struct {
		faults  []provider.Fault
		means   consumer.Meaning
		refused bool
	}{
		"409 with its word":                {},
		"422 with its word":                {faults: []provider.Fault{{Status: 422, Body: []byte(`{"error":"idempotency_conflict"}`)}}},
		"422 without, by profile":          {faults: []provider.Fault{{Status: 422, Body: []byte(`{}`)}}, means: consumer.MeansConflict},
		"422 without, and nothing is said": {faults: []provider.Fault{{Status: 422, Body: []byte(`{}`)}}, refused: true},
	}, func(t *testing.T, c struct {
		faults  []provider.Fault
		means   consumer.Meaning
		refused bool
	}) {
		s, j := newCalmStage(t), charge("1")
		s.settings.Provider.Status422 = c.means
		s.askProvider("/charges", j.key, `{"order_id":"1","customer_id":"c_1","amount":999,"currency":"EUR"}`)
		s.faults(c.faults...)
		s.serve(referenceKinds)
		s.publish(j, j)
		s.awaitSettled()
		task, _ := s.find(j)
		s.sent(j, 2, 1) // one of them ours
		if e := s.effects(j); len(e) != 1 || task.ExternalID != "" {
			t.Errorf("effects %q, id %q", e, task.ExternalID)
		}
		if paid := query[string](s, `select order_id from shop.orders where status = 'paid'`); len(paid) > 0 {
			t.Errorf("booked: %q", paid)
		}
		switch {
		case c.refused && (task.Status != idemstore.Failed || task.ErrorClass != "refused"):
			t.Errorf("%s, error class %q; want refused", task.Status, task.ErrorClass)
		case !c.refused && (task.Status != idemstore.NeedsReview || task.Cause != idemstore.CauseConflict):
			t.Errorf("%s because of %q; want a review of a conflict", task.Status, task.Cause)
		}
	})
}

// A provider that stores a 5xx under the key gives it to every resend. As few of them are sent as it takes to be sure
// that look-ups do not know the effect; where they do, it is adopted.
func TestStoredServerError(t *testing.T) {
	t.Parallel()
	each(t, map[string]struct {
		at     provider.Moment
		status idemstore.Status
		w, e   int
	}{
		"no effect":     {provider.Before, idemstore.NeedsReview, 3, 0},
		"effect before": {provider.After, idemstore.Finished, 1, 1},
	}, func(t *testing.T, c struct {
		at     provider.Moment
		status idemstore.Status
		w, e   int
	}) {
		s, j := newCalmStage(t), charge("1")
		s.settings.Provider.AbsentAfter = 2 * time.Second
		s.faults(provider.Fault{Status: 500, StatusAt: c.at, Stored: true, Count: 1})
		s.serve(referenceKinds)
		s.publish(j)
		task := s.awaitStatus(j, c.status)
		s.awaitSettled()
		s.firstUnknown(task)
		if w, _ := s.requests(j); w > c.w || len(s.effects(j)) != c.e || task.Failures >= 5 {
			t.Errorf("W=%d E=%d, %d failures; want W<=%d E=%d and some of the budget left", w, len(s.effects(j)), task.Failures, c.w, c.e)
		}
		if c.status == idemstore.NeedsReview && (task.Cause != idemstore.CauseReplayedError || task.ErrorClass != "replayed_error" || task.ProviderStatus != 500) {
			t.Errorf("cause %q, error class %q, status %d", task.Cause, task.ErrorClass, task.ProviderStatus)
		}
	})
}
