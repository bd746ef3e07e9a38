package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// A provider with keys: one early "not found" while the first request is still at work permits a resend at once, for
// the key makes one effect of both.
func TestD29KeyGuardsAnEarlyResend(t *testing.T) {
	t.Parallel()
	s, j := newCalmStage(t), charge("1")
	s.settings.Timeout = time.Second
	s.faults(provider.Fault{Key: j.key, Count: 1, DelayBefore: 3 * time.Second, Hide: 8 * time.Second}, provider.Fault{Hide: 8 * time.Second})
	s.serve(referenceKinds)
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Finished)
	s.firstUnknown(task)
	rig.Eventually(t, soon, "the first request is over at the provider", func() bool {
		return len(query[int](s, `select 1 from provider.requests where method = 'POST' and status is not null`)) == 2
	})
	s.sent(j, 2, 2)
	s.holds(j)
	if _, lookups := s.requests(j); lookups != 1 {
		t.Errorf("%d look-ups, want 1", lookups)
	}
}

// A provider without keys: "not found" counts only once it is settled, and twice. What is sent before that, or without
// permission, is nothing.
func TestD29NotFoundWithoutKeys(t *testing.T) {
	t.Parallel()
	lost := provider.Fault{Close: provider.After, IgnoreKeys: true, Count: 1}
	lags := lost
	lags.Hide = 1500 * time.Millisecond // longer than the absent-after time: the first reading may be wrong
	never := provider.Fault{Close: provider.Before, IgnoreKeys: true, Count: 1}
	each(t, map[string]struct {
		fault   provider.Fault
		permit  bool
		status  idemstore.Status
		w, e    int
		lookups int // at least
	}{
		"the effect is there, and shows":           {lost, true, idemstore.Finished, 1, 1, 1},
		"the effect is there, look-ups lag behind": {lags, true, idemstore.Finished, 1, 1, 1},
		"no effect, a resend is permitted":         {never, true, idemstore.Finished, 2, 1, 2},
		"no effect, no permission":                 {never, false, idemstore.NeedsReview, 1, 0, 2},
	}, func(t *testing.T, c struct {
		fault   provider.Fault
		permit  bool
		status  idemstore.Status
		w, e    int
		lookups int
	}) {
		s, j := newCalmStage(t), charge("1")
		s.settings.Provider.Unkeyed, s.settings.Provider.ResendUnkeyed, s.settings.Provider.AbsentAfter = true, c.permit, time.Second
		s.faults(c.fault, provider.Fault{IgnoreKeys: true})
		s.serve(referenceKinds)
		s.publish(j)
		task := s.awaitStatus(j, c.status)
		s.awaitSettled()
		s.firstUnknown(task)
		w, lookups := s.requests(j)
		if w != c.w || len(s.effects(j)) != c.e || lookups < c.lookups {
			t.Errorf("W=%d E=%d, %d look-ups; want W=%d E=%d and at least %d", w, len(s.effects(j)), lookups, c.w, c.e, c.lookups)
		}
		s.settledReadings(j, c.lookups > 1)
		if c.status == idemstore.NeedsReview && task.Cause != idemstore.CauseAbsent {
			t.Errorf("parked because of %q", task.Cause)
		}
	})
}

// settledReadings checks when the provider was asked: not before the absent-after time had passed since the first
// request, and twice with a second between where two readings decided.
func (s *stage) settledReadings(j job, twice bool) {
	s.t.Helper()
	at := query[time.Time](s, `select at from provider.requests where key = $1 order by id`, j.key)
	if early := at[1].Sub(at[0]); early < s.settings.Provider.AbsentAfter {
		s.t.Errorf("asked %s after the request, want at least %s", early, s.settings.Provider.AbsentAfter)
	}
	if twice && at[2].Sub(at[1]) < time.Second {
		s.t.Errorf("the readings are %s apart", at[2].Sub(at[1]))
	}
}
