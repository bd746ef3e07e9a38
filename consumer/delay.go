package consumer

import (
	"math"
	"time"
)

// counts are what a delay grows with: all of them stored, so that any process computes the same.
type counts struct {
	failures, attempts int
	hint               time.Duration // what the provider, or the row, asks for
	jitter             float64       // in [0, 1)
}

// betweenReadings keeps a second reading of "absent" from being an echo of the first.
const betweenReadings = time.Second

// delay is a pure function of the stored counts. Delays grow by doubling from BackoffMin to BackoffMax, and half
// of each is jitter, though none falls below BackoffMin.
func (p Policy) delay(w wait, c counts) time.Duration {
	switch w {
	case waitNone:
		return 0
	case waitShort:
		return spread(p.BackoffMin, c.jitter)
	case waitFailures:
		return p.grown(c.failures, c.jitter)
	case waitAttempts:
		return p.grown(c.attempts-1, c.jitter)
	case waitReading:
		return max(p.grown(c.attempts-1, c.jitter), betweenReadings)
	case waitAsked:
		return max(p.grown(max(c.failures, c.attempts-1), c.jitter), p.clampAsked(c.hint))
	case waitPoll:
		if c.hint <= 0 {
			return p.grown(c.attempts-1, c.jitter)
		}
		return max(min(p.clampAsked(c.hint), p.BackoffMax), p.BackoffMin)
	case waitLong:
		return p.MisconfiguredWait/2 + spread(p.MisconfiguredWait/2, c.jitter)
	case waitRest, waitDue:
		return min(max(c.hint, p.BackoffMin), p.BackoffMax) + time.Duration(c.jitter*float64(p.BackoffMin))
	}
	return p.BackoffMax
}

// longestDelay is an upper bound of what delay gives and of the wait for a settled look-up: the longest nak.
func (p Policy) longestDelay(at Provider) time.Duration {
	return max(sum(p.BackoffMax, p.BackoffMin), p.RetryAfterMax, p.MisconfiguredWait, at.AbsentAfter, betweenReadings)
}

// sum adds durations that are not negative, up to the longest that there is.
func sum(all ...time.Duration) (total time.Duration) {
	for _, d := range all {
		if d > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += d
	}
	return total
}

// clampAsked bounds what a provider asks for; nonsense counts as nothing asked.
func (p Policy) clampAsked(d time.Duration) time.Duration {
	return min(max(d, 0), p.RetryAfterMax)
}

// backoff doubles from BackoffMin, n times, up to BackoffMax.
func (p Policy) backoff(n int) time.Duration {
	d := p.BackoffMin
	for range n {
		if d >= p.BackoffMax/2 {
			return p.BackoffMax
		}
		d *= 2
	}
	return min(d, p.BackoffMax)
}

// grown is the delay after n failures. Jitter does not take it below BackoffMin: a provider is never asked more often.
func (p Policy) grown(n int, jitter float64) time.Duration {
	return max(spread(p.backoff(n), jitter), p.BackoffMin)
}

// spread is d with its upper half random.
func spread(d time.Duration, jitter float64) time.Duration {
	return d/2 + time.Duration(jitter*float64(d/2))
}
