package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// unsafeConsumer says what of a consumer's settings breaks safety; empty if nothing does. The text goes on after its name.
func unsafeConsumer(kind string, c jetstream.ConsumerConfig, asked time.Duration) string {
	filters := c.FilterSubjects
	if len(filters) == 0 {
		filters = []string{c.FilterSubject}
	}
	switch {
	case len(c.BackOff) > 0:
		return fmt.Sprintf("has BackOff %v, which replaces AckWait (asked %v, effective %v) and bends the delays of naks; "+
			"remove BackOff from the consumer", c.BackOff, asked, c.AckWait)
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Sprintf("has ack policy %v; it must be explicit", c.AckPolicy)
	case !slices.Equal(filters, []string{subject(kind)}):
		return fmt.Sprintf("filters %v; it must filter exactly %s", filters, subject(kind))
	case c.AckWait < time.Second:
		return fmt.Sprintf("has AckWait %v; it must be at least 1s", c.AckWait)
	}
	return ""
}

// consumerSettings reports a consumer that a worker would refuse, or warn of.
func (d *drifting) consumerSettings(kind string, c jetstream.ConsumerConfig) {
	if d.kinds[kind] == nil {
		return // somebody else's
	}
	if wrong := unsafeConsumer(kind, c, d.config.AckWait); wrong != "" {
		d.add(Drift{Sort: DriftSettings, Kind: kind, Count: 1, NeedsPerson: true, What: "consumer " + c.Durable + " " + wrong,
			Do: "change it, or delete it: the next worker makes it again; a worker that starts refuses it"})
	}
	if c.MaxDeliver > 0 {
		d.add(Drift{Sort: DriftSettings, Kind: kind, Count: 1, NeedsPerson: true,
			What: fmt.Sprintf("consumer %s gives messages up after %d deliveries", c.Durable, c.MaxDeliver),
			Do:   "set its MaxDeliver to -1; when to stop is decided from the table"})
	}
}

// streamSettings reports a stream that may drop a message before its first claim has committed, or keep it for ever.
func (d *drifting) streamSettings(c jetstream.StreamConfig) {
	say := func(person bool, what, do string) {
		d.add(Drift{Sort: DriftSettings, Count: 1, NeedsPerson: person, What: "stream " + c.Name + " " + what, Do: do})
	}
	if c.Retention != jetstream.WorkQueuePolicy {
		say(true, fmt.Sprintf("has %s retention: messages stay after they are settled", c.Retention), "make it anew as a work queue")
	}
	if c.Storage != jetstream.FileStorage {
		say(true, "is kept in memory: jobs are lost with the server", "make it anew with file storage")
	}
	if c.Discard != jetstream.DiscardNew && (c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxMsgsPerSubject > 0) {
		say(true, "discards its oldest messages when it is full: jobs are lost", "set its discard policy to new")
	}
	if c.MaxAge > 0 {
		say(false, fmt.Sprintf("drops messages at an age of %s", c.MaxAge), "nothing, if workers are never away for that long; else set its max age to 0")
	}
}
