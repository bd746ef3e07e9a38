package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// Names of the streams, and what their subjects begin with.
const (
	jobStream     = "JOBS"
	jobSubjects   = "jobs."
	eventStream   = "EVENTS"
	eventSubjects = "events."
)

// Config bounds one engine. Zero fields take the documented defaults; New refuses bad values by name.
type Config struct {
	Slots         int           // jobs performed at once, per kind; 64
	AckWait       time.Duration // of consumers that the engine creates; 30 s, at least 1 s
	Lease         time.Duration // how long an attempt owns its task without a heartbeat; 30 s, 1 s to 1 h
	DrainTimeout  time.Duration // grace for running jobs when Run's context ends; 20 s
	MaxBody       int           // largest message body in bytes; 256 KiB
	MaxAckPending int           // of consumers that the engine creates; 20000
	Replicas      int           // of streams that the engine creates; 1
	Policy        Policy        // for the fields that a kind leaves zero

	Logger         *slog.Logger         // slog.Default()
	TracerProvider trace.TracerProvider // the global one
}

// Defaults of Config and Policy.
const (
	DefaultSlots         = 64
	DefaultAckWait       = 30 * time.Second
	DefaultLease         = 30 * time.Second
	DefaultDrainTimeout  = 20 * time.Second
	DefaultMaxBody       = 256 << 10
	DefaultMaxAckPending = 20000

	DefaultDeadline          = 20 * time.Second
	DefaultMaxFailures       = 5
	DefaultMaxAge            = 24 * time.Hour
	DefaultBackoffMin        = time.Second
	DefaultBackoffMax        = 5 * time.Minute
	DefaultRetryAfterMax     = time.Hour
	DefaultMisconfiguredWait = 5 * time.Minute
	DefaultRetention         = 168 * time.Hour

	DefaultKeyLifetime = 24 * time.Hour
	DefaultAbsentAfter = 15 * time.Second
)

// or is v, or the fallback where v is zero.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func (c Config) withDefaults() Config {
	c.Slots = or(c.Slots, DefaultSlots)
	c.AckWait = or(c.AckWait, DefaultAckWait)
	c.Lease = or(c.Lease, DefaultLease)
	c.DrainTimeout = or(c.DrainTimeout, DefaultDrainTimeout)
	c.MaxBody = or(c.MaxBody, DefaultMaxBody)
	c.MaxAckPending = or(c.MaxAckPending, DefaultMaxAckPending)
	c.Replicas = or(c.Replicas, 1)
	c.Policy = c.Policy.over(Policy{
		Deadline: DefaultDeadline, MaxFailures: DefaultMaxFailures, MaxAge: DefaultMaxAge,
		BackoffMin: DefaultBackoffMin, BackoffMax: DefaultBackoffMax, RetryAfterMax: DefaultRetryAfterMax,
		MisconfiguredWait: DefaultMisconfiguredWait, Retention: DefaultRetention,
	})
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	return c
}

// over is p with its zero fields taken from base.
func (p Policy) over(base Policy) Policy {
	p.Lease = or(p.Lease, base.Lease)
	p.Deadline = or(p.Deadline, base.Deadline)
	p.MaxFailures = or(p.MaxFailures, base.MaxFailures)
	p.MaxAge = or(p.MaxAge, base.MaxAge)
	p.BackoffMin = or(p.BackoffMin, base.BackoffMin)
	p.BackoffMax = or(p.BackoffMax, base.BackoffMax)
	p.RetryAfterMax = or(p.RetryAfterMax, base.RetryAfterMax)
	p.MisconfiguredWait = or(p.MisconfiguredWait, base.MisconfiguredWait)
	p.Retention = or(p.Retention, base.Retention)
	return p
}

// withDefaults completes a provider profile.
func (p Provider) withDefaults() Provider {
	p.KeyLifetime = or(p.KeyLifetime, DefaultKeyLifetime)
	p.AbsentAfter = or(p.AbsentAfter, DefaultAbsentAfter)
	if p.AppliedNothing == nil {
		p.AppliedNothing = []int{401, 405, 429}
	}
	return p
}

func (c Config) check() error {
	var errs []error
	bad := func(field, want string, got any) {
		errs = append(errs, fmt.Errorf("config: %s must be %s, not %v", field, want, got))
	}
	if c.Slots < 1 {
		bad("Slots", "at least 1", c.Slots)
	}
	if c.AckWait < time.Second {
		bad("AckWait", "at least 1s", c.AckWait)
	}
	if c.Lease < time.Second || c.Lease > time.Hour {
		bad("Lease", "1s to 1h", c.Lease)
	}
	if c.DrainTimeout < 0 {
		bad("DrainTimeout", "positive", c.DrainTimeout)
	}
	if c.MaxBody < 2 {
		bad("MaxBody", "at least 2 bytes", c.MaxBody)
	}
	if c.MaxAckPending < 1 {
		bad("MaxAckPending", "at least 1", c.MaxAckPending)
	}
	return errors.Join(errs...)
}

// check refuses a policy that cannot work; name says whose it is.
func (p Policy) check(name string) error {
	var errs []error
	bad := func(field, want string, got any) {
		errs = append(errs, fmt.Errorf("kind %s: policy: %s must be %s, not %v", name, field, want, got))
	}
	if p.Deadline < time.Second {
		bad("Deadline", "at least 1s", p.Deadline)
	}
	if p.MaxFailures < 1 {
		bad("MaxFailures", "at least 1", p.MaxFailures)
	}
	if p.MaxAge < time.Second {
		bad("MaxAge", "at least 1s", p.MaxAge)
	}
	if p.BackoffMin < 10*time.Millisecond {
		bad("BackoffMin", "at least 10ms", p.BackoffMin)
	}
	if p.BackoffMax < p.BackoffMin {
		bad("BackoffMax", "at least BackoffMin", p.BackoffMax)
	}
	if p.RetryAfterMax < 0 || p.MisconfiguredWait < 0 || p.Retention < 0 {
		bad("RetryAfterMax, MisconfiguredWait and Retention", "positive", "negative")
	}
	return errors.Join(errs...)
}

// keyMargin is taken off a provider's key lifetime: a request that passed the age check must arrive, at latest
// after the deadline and the time in flight, before the key is forgotten; clocks may differ a little.
func keyMargin(deadline time.Duration) time.Duration { return deadline + 10*time.Second }

// usableKey is how long a resend may rest on the provider's key, counted from the first possible send. Zero means
// never: such a task is asked about, and resent only as if the provider kept no keys.
func (p Provider) usableKey(deadline time.Duration) time.Duration {
	if p.Unkeyed {
		return 0
	}
	return max(p.KeyLifetime-keyMargin(deadline), 0)
}

// check refuses a profile with impossible values.
func (p Provider) check(name string) error {
	if p.KeyLifetime < 0 || p.AbsentAfter < 0 {
		return fmt.Errorf("kind %s: provider: KeyLifetime and AbsentAfter must not be negative", name)
	}
	return nil
}
