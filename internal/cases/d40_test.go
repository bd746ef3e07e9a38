package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// The provider forgets a key while nobody can be asked. From then on the key protects nothing: nothing is sent, however
// often it is due, and at its age limit the task waits for a person. A retry by hand asks first as well, and adopts.
func TestD40ProviderForgetsTheKey(t *testing.T) {
	t.Parallel()
	const remembers = 4 * time.Second
	s, j := newCalmStage(t), charge("1")
	s.settings.Config.Policy.Deadline, s.settings.Config.Policy.MaxAge = time.Second, 2*remembers
	// The start refuses nothing here: less its margin for what is under way, the profile allows two seconds.
	s.settings.Provider.KeyLifetime = remembers/2 + 11*time.Second
	s.settings.Config.NoRecovery, s.settings.Config.RecoverEvery = false, time.Second
	s.settings.Config.Breaker = -1 // the many look-ups that fail would pause the intake, which is another story
	blind := provider.Fault{Method: "GET", Status: 503}
	s.faults(provider.Fault{ForgetAfter: remembers, Close: provider.After, Count: 1}, provider.Fault{ForgetAfter: remembers}, blind)
	w := s.startWorker()
	s.publish(j)
	s.await(j, "unknown while its key is forgotten", func(x idemstore.Task) bool {
		var forgotten bool
		if x.FirstSentAt != nil {
			s.scan(`select clock_timestamp() > $1::timestamptz + $2::interval`, []any{*x.FirstSentAt, remembers}, &forgotten)
		}
		return forgotten && x.Status == idemstore.Unknown
	})
	parked := s.awaitStatus(j, idemstore.NeedsReview)
	s.awaitSettled()
	if posts, lookups := s.requests(j); posts != 1 || lookups < 2 || parked.Cause != idemstore.CauseAge {
		t.Errorf("W=%d, %d look-ups, %q", posts, lookups, parked.LastError)
	}
	operator, err := consumer.NewOperator(s.pool, s.settings.Config, chargeOf(s.client(), s.settings))
	if err != nil {
		t.Fatal(err)
	}
	press := consumer.ActOptions{Actor: "anna", Reason: "look again"}
	if acted, err := operator.Retry(t.Context(), parked, press); err != nil || acted.Task.Status != idemstore.Unknown {
		t.Fatalf("retry: %+v (%v)", acted, err)
	}
	s.faults(provider.Fault{ForgetAfter: remembers}) // it can be asked again
	s.awaitStatus(j, idemstore.Finished)
	s.holds(j)
	drained(t, w)
	if posts, _ := s.requests(j); posts != 1 {
		t.Errorf("W=%d", posts)
	}
}

func (s *stage) client() *handlers.Client {
	s.t.Helper()
	api, err := handlers.NewClient(handlers.ClientOptions{URL: s.settings.ProviderURL, Timeout: s.settings.Timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(api.Close)
	return api
}
