package consumer

import "time"

// Policy bounds attempts, waits and ages of a kind. Zero fields take Config.Policy, then the defaults named here.
type Policy struct {
	Lease LeasePolicy // what a save demands beside the fence; see LeasePolicy

	Deadline          time.Duration // total time of one perform or look-up; 20 s, at least 1 s
	MaxFailures       int           // unknown sends and crashes before a person is called; 5
	MaxAge            time.Duration // a task that is not final after this needs a person; 24 h, at least 1 s
	BackoffMin        time.Duration // first delay after a failure; 1 s, at least 10 ms
	BackoffMax        time.Duration // largest delay; 5 min
	RetryAfterMax     time.Duration // clamp of a provider's Retry-After; 1 h
	MisconfiguredWait time.Duration // delay after 401, 403, 404, 405, redirects, TLS name errors; 5 min
	Retention         time.Duration // age at which a final row's heavy columns may be archived; 168 h
}

// LeasePolicy says what completing a task demands. Neither policy recalls a request that has left.
type LeasePolicy int

// The lease policies.
const (
	// DefaultLeasePolicy is Lenient where the kind has a look-up, else Strict.
	DefaultLeasePolicy LeasePolicy = iota
	// Strict demands the fence and an unexpired lease (database clock).
	Strict
	// Lenient demands the fence alone: a late result is kept as long as nobody else has claimed the task.
	Lenient
)

// Provider is what a provider promises: the facts that decide whether a resend is safe.
type Provider struct {
	// Identity is base URL and account label. Another identity counts as an expired key.
	Identity string
	// Unkeyed says that the provider does not keep idempotency keys. The default is that it does.
	Unkeyed bool
	// KeyPrefix lets business keys that begin with it go to the provider as they are ("order_18452").
	// All others are sent as "s1-" and 40 hex digits. No prefix may begin another at the same provider.
	KeyPrefix string
	// KeyLifetime is how long the provider remembers a key, counted from the first possible send; 24 h.
	KeyLifetime time.Duration
	// ForgetsRefusals says that a refusal is not stored and replayed under the key. By default it is.
	ForgetsRefusals bool
	// AbsentAfter is the time after the last possible send from which a look-up shows every request; 15 s.
	AbsentAfter time.Duration
	// ResendUnkeyed allows a resend at an unkeyed provider after two settled "absent" readings. Off by default:
	// a person is asked instead.
	ResendUnkeyed bool
	// AppliedNothing lists HTTP statuses after which surely nothing was applied; 401, 405 and 429.
	AppliedNothing []int
}
