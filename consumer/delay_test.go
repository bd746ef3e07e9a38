package consumer

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// tempo is a policy whose delays tell each other apart.
var tempo = Policy{BackoffMin: time.Second, BackoffMax: time.Minute, RetryAfterMax: time.Hour, MisconfiguredWait: 10 * time.Hour}

func TestDelay(t *testing.T) {
	t.Parallel()
	const huge = math.MaxInt64
	for _, c := range []struct {
		what     string
		wait     wait
		counts   counts
		from, to time.Duration // without jitter, and short of all of it
	}{
		{"none", waitNone, counts{failures: 9, hint: time.Hour}, 0, 0},
		{"short", waitShort, counts{failures: 9, attempts: 9, hint: time.Hour}, time.Second / 2, time.Second},

		{"first failure", waitFailures, counts{failures: 1}, time.Second, 2 * time.Second},
		{"third failure", waitFailures, counts{failures: 3}, time.Second, 8 * time.Second},
		{"failures, at the cap", waitFailures, counts{failures: 6}, time.Second, time.Minute},
		{"failures, far beyond the cap", waitFailures, counts{failures: math.MaxInt}, time.Second, time.Minute},
		{"failures do not count attempts or wishes", waitFailures, counts{attempts: 9, hint: time.Hour}, time.Second, 2 * time.Second},

		{"first attempt", waitAttempts, counts{attempts: 1}, time.Second, 2 * time.Second},
		{"third attempt", waitAttempts, counts{attempts: 3}, time.Second, 4 * time.Second},
		{"attempts, at the cap", waitAttempts, counts{attempts: math.MaxInt}, time.Second, time.Minute},

		{"a second reading", waitReading, counts{attempts: 1}, time.Second, 2 * time.Second},
		{"a later second reading", waitReading, counts{attempts: 3}, time.Second, 4 * time.Second},

		{"asked for nothing", waitAsked, counts{failures: 1, attempts: 1}, time.Second, 2 * time.Second},
		{"asked for nothing, later attempt", waitAsked, counts{failures: 0, attempts: 4}, time.Second, 8 * time.Second},
		{"asked for less than the back-off", waitAsked, counts{failures: 4, hint: time.Second}, time.Second, 16 * time.Second},
		{"asked for more", waitAsked, counts{failures: 1, hint: 20 * time.Minute}, 20 * time.Minute, 20*time.Minute + time.Second},
		{"asked for ever", waitAsked, counts{failures: 1, hint: huge}, time.Hour, time.Hour},
		{"asked for the past", waitAsked, counts{failures: 1, hint: -huge}, time.Second, 2 * time.Second},

		{"poll", waitPoll, counts{failures: 9, attempts: 9, hint: 5 * time.Second}, 5 * time.Second, 5 * time.Second},
		{"poll without an interval", waitPoll, counts{}, time.Second, 2 * time.Second},
		{"poll too often", waitPoll, counts{hint: time.Millisecond}, time.Second, time.Second},
		{"poll too seldom", waitPoll, counts{hint: huge}, time.Minute, time.Minute},

		{"long", waitLong, counts{failures: 9, hint: time.Second}, 7*time.Hour + 30*time.Minute, 10 * time.Hour},

		{"rest of a lease", waitRest, counts{hint: 20 * time.Second}, 20 * time.Second, 21 * time.Second},
		{"rest of a lease that ends now", waitRest, counts{hint: -time.Second}, time.Second, 2 * time.Second},
		{"rest of a very long lease", waitRest, counts{hint: huge}, time.Minute, time.Minute + time.Second},
		{"until due", waitDue, counts{hint: 20 * time.Second}, 20 * time.Second, 21 * time.Second},
		{"until due in years", waitDue, counts{hint: huge}, time.Minute, time.Minute + time.Second},
	} {
		for _, jitter := range []float64{0, 0.25, 0.5, math.Nextafter(1, 0)} {
			c.counts.jitter = jitter
			got := tempo.delay(c.wait, c.counts)
			want := c.from + time.Duration(jitter*float64(c.to-c.from))
			if diff := got - want; diff < -time.Millisecond || diff > time.Millisecond {
				t.Errorf("%s, jitter %v: %v, want %v", c.what, jitter, got, want)
			}
			if got < c.from || got > c.to {
				t.Errorf("%s, jitter %v: %v is outside %v to %v", c.what, jitter, got, c.from, c.to)
			}
		}
	}
}

// Whatever is on a row, a delay is neither negative nor longer than the policy allows, and more failures or a
// longer wish never shorten it.
func TestDelayBounds(t *testing.T) {
	t.Parallel()
	policies := []Policy{tempo, {BackoffMin: 10 * time.Millisecond, BackoffMax: 10 * time.Millisecond},
		{BackoffMin: time.Second, BackoffMax: math.MaxInt64, RetryAfterMax: math.MaxInt64, MisconfiguredWait: math.MaxInt64}}
	numbers := []int{0, 1, 2, 5, 62, 63, 64, 1 << 20, math.MaxInt}
	hints := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, time.Hour, math.MaxInt64 / 2}
	for i, p := range policies {
		limit := p.longestDelay(Provider{})
		for w := range waitNames {
			for _, jitter := range []float64{0, math.Nextafter(1, 0)} {
				for _, hint := range hints {
					last := time.Duration(0)
					for _, n := range numbers {
						d := p.delay(w, counts{failures: n, attempts: n, hint: hint, jitter: jitter})
						if d < 0 || d > limit || d < last {
							t.Errorf("policy %d, %s, n=%d, hint=%v, jitter=%v: %v after %v", i, fmt.Sprint(waitNames[w]), n, hint, jitter, d, last)
						}
						last = d
					}
				}
			}
		}
	}
}
