package consumer

import (
	"net/http"
	"slices"
	"time"
)

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
	// Identity is base URL and account label. Another identity counts as an expired key, and what it does not know is no
	// reason to send: then a person decides.
	Identity string
	// Unkeyed says that the provider does not keep idempotency keys. The default is that it does.
	Unkeyed bool
	// KeyPrefix lets business keys that begin with it go to the provider as they are ("order_18452").
	// All others are sent as "s1-" and 40 hex digits. No prefix may begin another at the same provider.
	KeyPrefix string
	// KeyLifetime is how long the provider remembers a key, counted from the first possible send; 24 h.
	KeyLifetime time.Duration
	// Stored lists the statuses of 400 and above whose answers the provider stores under the key and gives again to
	// every resend; 402. A refusal that is not stored does not settle what an earlier attempt may have done, and an
	// error that is stored makes resends pointless. A refusal of which no answer was kept (KeepAnswer) counts as 402.
	// Nil is the default, an empty list is none.
	Stored []int
	// Status409 and Status422 say what the provider means by these two, which every provider uses in its own way.
	// Handlers that speak HTTP look at them; the engine does not.
	Status409, Status422 Meaning
	// AbsentAfter is the time after the last possible send from which a look-up shows every request; 15 s.
	AbsentAfter time.Duration
	// ResendUnkeyed allows a resend at an unkeyed provider after two settled "absent" readings. Off by default:
	// a person is asked instead.
	ResendUnkeyed bool
	// MaxPerSecond and MaxInFlight cap the calls to the provider, look-ups included, of all workers together; 0: no
	// cap. Kinds of one Identity share the cap and must not differ in it. Each worker has an equal share. With more
	// workers than requests per second, or in flight, some have none and do nothing: the first ones by their random id
	// have it.
	MaxPerSecond float64
	MaxInFlight  int
	// AppliedNothing lists HTTP statuses after which surely nothing was applied; 401, 405 and 429. Nil is the default,
	// an empty list is none.
	AppliedNothing []int
}

// Meaning is what a provider means by a status that others use for something else.
type Meaning int

// The meanings.
const (
	// MeansByBody is the default: a known word in the body decides. Without one a 409 says nothing, so the outcome is
	// unknown, and a 422 is a refusal.
	MeansByBody     Meaning = iota
	MeansRefused            // refused, for good
	MeansConflict           // the key was used with other content: a person decides
	MeansInProgress         // an earlier request with the key is still at work
	MeansExists             // the effect is there already: it is asked about, by its id if the answer has one
)

// String names a meaning as `settle kinds` prints it.
func (m Meaning) String() string {
	switch m {
	case MeansRefused:
		return "refused"
	case MeansConflict:
		return "conflict"
	case MeansInProgress:
		return "in progress"
	case MeansExists:
		return "exists"
	case MeansByBody:
	}
	return "by body"
}

// storesError reports whether an answer with this status is an error that a resend would get again.
func (p Provider) storesError(status int) bool {
	return status >= http.StatusBadRequest && !p.Unkeyed && slices.Contains(p.Stored, status)
}

// storesRefusal reports whether a refusal is what any earlier request with the key got, too.
func (p Provider) storesRefusal(status int) bool {
	return p.storesError(or(status, http.StatusPaymentRequired))
}
