package consumer

import (
	"fmt"
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

// delay is a pure function of the stored counts and the jitter. Back-offs have full jitter above a floor: anything
// from BackoffMin to a limit that doubles from twice BackoffMin up to BackoffMax. Who failed at the same moment comes
// back at different ones, and yet nobody asks a provider more often than BackoffMin allows.
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
		return max(p.grown(max(c.failures, c.attempts-1), c.jitter), p.obeyed(c.hint, c.jitter))
	case waitPoll:
		if c.hint <= 0 {
			return p.grown(c.attempts-1, c.jitter)
		}
		return max(min(c.hint, p.BackoffMax), p.BackoffMin)
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

// obeyed is how long a provider that asked to be left alone is left alone: not shorter than it asked, a little longer by
// chance, because it asked all of them at once, and no longer than RetryAfterMax. Nonsense counts as nothing asked.
func (p Policy) obeyed(asked time.Duration, jitter float64) time.Duration {
	if asked <= 0 {
		return 0
	}
	return min(sum(asked, time.Duration(jitter*float64(p.BackoffMin))), p.RetryAfterMax)
}

// cut says in words that a provider asked for more than is obeyed; empty if it did not.
func (p Policy) cut(asked time.Duration) string {
	if asked <= p.RetryAfterMax {
		return ""
	}
	return fmt.Sprintf("the provider asked to be left alone for %s, longer than the %s that are obeyed", asked, p.RetryAfterMax)
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

// grown is the back-off after n failures. The first one already has room for jitter.
func (p Policy) grown(n int, jitter float64) time.Duration {
	return p.BackoffMin + time.Duration(jitter*float64(p.backoff(max(n, 1))-p.BackoffMin))
}

// spread is d with its upper half random.
func spread(d time.Duration, jitter float64) time.Duration {
	return d/2 + time.Duration(jitter*float64(d/2))
}
