package doctor

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// Facts are all that the checks look at.
type Facts struct {
	Config          consumer.Config // with its defaults
	Kinds           []consumer.Description
	ProviderTimeout time.Duration // of one call, as it was configured
	PoolSize        int

	Database      *Database // nil: it does not answer
	DatabaseError string    // why
	Broker        *Broker   // nil: it does not answer
	BrokerError   string

	ProofAge error            // of consumer.CheckProofAge
	Drift    []consumer.Drift // settings left out: they have checks of their own
	Compared bool             // Drift was looked for
}

// Database is what Postgres says.
type Database struct {
	Server   idemstore.Server
	Clock    Clock
	ExecMode error // of Store.CheckExecMode
	Schema   error // of Store.CheckSchema
	Lacks    []idemstore.Lack
	HasTasks bool // false also if it could not be seen
}

// Broker is what NATS says.
type Broker struct {
	MaxPayload int64
	Jobs       *jetstream.StreamConfig // nil: there is no such stream
	Clock      Clock                   // of the leader of Jobs
	Consumers  map[string]jetstream.ConsumerConfig
	Sync       *Sync  // nil: not known
	Monitor    string // why it did not say; empty: it did, or was not asked
}

// Sync is how a server writes messages through to its disk.
type Sync struct {
	Always bool
	Every  time.Duration
}

// Clock is how far another clock is ahead of ours: it was read between two readings of our own, so the difference lies
// between two bounds.
type Clock struct{ Least, Most time.Duration }

// clockOf compares a reading with the moments before and after it, by our clock.
func clockOf(there, before, after time.Time) Clock {
	return Clock{Least: there.Sub(after), Most: there.Sub(before)}
}

// Off is the least by which the clocks surely differ.
func (c Clock) Off() time.Duration { return max(c.Least, -c.Most, 0) }

// ackWait is the clock that the broker runs for a kind, and whether it is that of a consumer that is there: a worker changes
// none. One with BackOff has no AckWait that counts; a worker refuses it.
func (f *Facts) ackWait(k consumer.Description) (wait time.Duration, there bool) {
	if f.Broker == nil {
		return f.Config.AckWait, false
	}
	if c, there := f.Broker.Consumers[k.Name]; there && c.AckWait > 0 && len(c.BackOff) == 0 {
		return c.AckWait, true
	}
	return f.Config.AckWait, false
}

// timeout is the time of one call, as it is in force for a kind.
func (f *Facts) timeout(k consumer.Description) time.Duration {
	return min(f.ProviderTimeout, k.Policy.Deadline)
}

// remote are the kinds that have a provider.
func (f *Facts) remote() (out []consumer.Description) {
	for _, k := range f.Kinds {
		if !k.Local {
			out = append(out, k)
		}
	}
	return out
}
