package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
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
	Replicas      int           // of streams that the engine creates, and so of their consumers; 1
	RecoverEvery  time.Duration // how often due tasks are taken up without their message; 15 s, at least 100 ms
	RecoverAfter  time.Duration // age from which a task that is not settled counts as stuck; 15 min, at least 1 s
	Breaker       int           // failures in a row at one provider after which its kinds pause; 10. Negative: never
	Policy        Policy        // for the fields that a kind leaves zero

	// EventSource and EventTypePrefix make CloudEvents of the events in EVENTS: ce-source is EventSource ("/settle"), ce-type
	// what their subject has behind "events.", with EventTypePrefix ("") before it. The ids of events are unique within one
	// database: installations that share consumers need sources of their own, and all workers of one the same.
	EventSource     string
	EventTypePrefix string

	// NoRecovery leaves tasks to their messages, and those whose message is gone to other engines.
	NoRecovery bool

	// ProofRetention is the age at which a final task's key row may be removed; 0, the default, is never. Run refuses
	// one that is shorter than the time for which a job can come again (ErrProofAge).
	ProofRetention time.Duration
	ReplayHorizon  time.Duration // how long after its publish a job may be published again by hand; 72 h

	// Notify is told of each Alert, one at a time, by a goroutine of its own: a slow one delays other alerts and nothing
	// else. It has 10 s, and a drain leaves 3 s. After an error it is tried again, here or in another worker, within a
	// few heartbeats, so it may be told twice. Every alert is also logged once, at level ERROR; nil is only that.
	Notify func(context.Context, Alert) error `json:"-"`

	// LinkTraces gives each delivery and each recovery a trace of its own, with links to the publisher's span and to the
	// attempt before. Otherwise they are children of the publisher's span, which may be days away and have thousands of
	// them. A trace of its own is sampled on its own, whatever the publisher's is.
	LinkTraces bool

	Logger         *slog.Logger         // slog.Default()
	TracerProvider trace.TracerProvider // the global one
	MeterProvider  metric.MeterProvider // of Metrics; none, which measures nothing and asks no server for the sake of gauges
}

// maxBody is the default of Config.MaxBody.
const maxBody = 256 << 10

// DefaultConfig is what zero fields of a Config and its Policy mean. Logger, TracerProvider and MeterProvider are left nil.
func DefaultConfig() Config {
	return Config{
		Slots: 64, AckWait: 30 * time.Second, Lease: 30 * time.Second, DrainTimeout: 20 * time.Second,
		MaxBody: maxBody, MaxAckPending: 20000, Replicas: 1, RecoverEvery: 15 * time.Second, RecoverAfter: 15 * time.Minute,
		Breaker: 10, ReplayHorizon: 72 * time.Hour, EventSource: "/settle",
		Policy: Policy{
			Deadline: 20 * time.Second, MaxFailures: 5, MaxAge: 24 * time.Hour,
			BackoffMin: time.Second, BackoffMax: 5 * time.Minute, RetryAfterMax: time.Hour,
			MisconfiguredWait: 5 * time.Minute, Retention: 168 * time.Hour,
		},
	}
}

// DefaultProvider is what zero fields of a Provider mean.
func DefaultProvider() Provider {
	return Provider{KeyLifetime: 24 * time.Hour, AbsentAfter: 15 * time.Second, Stored: []int{http.StatusPaymentRequired},
		AppliedNothing: []int{http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusTooManyRequests}}
}

// or is v, or the fallback where v is zero.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	c.Slots = or(c.Slots, d.Slots)
	c.AckWait = or(c.AckWait, d.AckWait)
	c.Lease = or(c.Lease, d.Lease)
	c.DrainTimeout = or(c.DrainTimeout, d.DrainTimeout)
	c.MaxBody = or(c.MaxBody, d.MaxBody)
	c.MaxAckPending = or(c.MaxAckPending, d.MaxAckPending)
	c.Replicas = or(c.Replicas, d.Replicas)
	c.RecoverEvery = or(c.RecoverEvery, d.RecoverEvery)
	c.RecoverAfter = or(c.RecoverAfter, d.RecoverAfter)
	c.ReplayHorizon = or(c.ReplayHorizon, d.ReplayHorizon)
	c.Breaker = or(c.Breaker, d.Breaker)
	c.EventSource = or(c.EventSource, d.EventSource)
	c.Policy = c.Policy.over(d.Policy)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = noop.NewMeterProvider()
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
	d := DefaultProvider()
	p.KeyLifetime = or(p.KeyLifetime, d.KeyLifetime)
	p.AbsentAfter = or(p.AbsentAfter, d.AbsentAfter)
	if p.AppliedNothing == nil {
		p.AppliedNothing = d.AppliedNothing
	}
	if p.Stored == nil {
		p.Stored = d.Stored
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
	if c.Replicas < 1 {
		bad("Replicas", "at least 1", c.Replicas)
	}
	if c.RecoverEvery < 100*time.Millisecond {
		bad("RecoverEvery", "at least 100ms", c.RecoverEvery)
	}
	if c.RecoverAfter < time.Second {
		bad("RecoverAfter", "at least 1s", c.RecoverAfter)
	}
	if c.ProofRetention < 0 {
		bad("ProofRetention", "positive, or 0 for ever", c.ProofRetention)
	}
	if c.ReplayHorizon < 0 {
		bad("ReplayHorizon", "positive", c.ReplayHorizon)
	}
	return errors.Join(append(errs, c.checkEvents()...)...)
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
	for field, statuses := range map[string][]int{"Stored": p.Stored, "AppliedNothing": p.AppliedNothing} {
		for _, status := range statuses {
			if status < 400 || status > 599 {
				return fmt.Errorf("kind %s: provider: %s must list statuses from 400 to 599, not %d", name, field, status)
			}
		}
	}
	for _, m := range []Meaning{p.Status409, p.Status422} {
		if m < MeansByBody || m > MeansExists {
			return fmt.Errorf("kind %s: provider: Status409 and Status422 must be one of the meanings, not %d", name, m)
		}
	}
	if p.MaxInFlight < 0 || !(p.MaxPerSecond >= 0 && p.MaxPerSecond <= math.MaxInt32) {
		return fmt.Errorf("kind %s: provider: MaxPerSecond and MaxInFlight must be 0 (no cap) or more, not %v and %d",
			name, p.MaxPerSecond, p.MaxInFlight)
	}
	return nil
}
