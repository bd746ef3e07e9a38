package consumer

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// WrongSetting is a setting of a stream or a consumer that is not as it has to be.
type WrongSetting struct {
	Setting       string // which one, in a stable word: backoff, ack_policy, max_age
	Unsafe        bool   // of a consumer: a worker refuses to serve with it
	Found, Wanted string // the value that is there, and the one that has to be
	What          string // goes on after the name of the stream or the consumer
	Do            string // what to do
}

// CheckConsumer says what is wrong with the settings of a kind's consumer, as the server gives them, for workers with this
// configuration; nil: nothing. What is unsafe comes first; a worker that meets it does not start. It does no I/O.
func CheckConsumer(config Config, kind string, c jetstream.ConsumerConfig) (found []WrongSetting) {
	config = config.withDefaults()
	found = unsafeSettings(kind, c, config.AckWait)
	if c.MaxDeliver > 0 {
		found = append(found, WrongSetting{Setting: "max_deliver", Found: strconv.Itoa(c.MaxDeliver), Wanted: "-1",
			What: fmt.Sprintf("gives messages up after %d deliveries", c.MaxDeliver),
			Do:   "set its MaxDeliver to -1; when to stop is decided from the table"})
	}
	if least := 4 * config.Slots; c.MaxAckPending > 0 && c.MaxAckPending < least {
		found = append(found, WrongSetting{Setting: "max_ack_pending", Found: strconv.Itoa(c.MaxAckPending), Wanted: "at least " + strconv.Itoa(least),
			What: fmt.Sprintf("allows %d messages in flight; delayed ones count, so it may stall", c.MaxAckPending),
			Do:   fmt.Sprintf("set its MaxAckPending to %d", config.MaxAckPending)})
	}
	return found
}

// unsafeSettings are those that a worker refuses.
func unsafeSettings(kind string, c jetstream.ConsumerConfig, asked time.Duration) (found []WrongSetting) {
	say := func(setting, have, want, format string, args ...any) {
		found = append(found, WrongSetting{Setting: setting, Unsafe: true, Found: have, Wanted: want, What: fmt.Sprintf(format, args...),
			Do: "change it, or delete it: the next worker makes it again; a worker that starts refuses it"})
	}
	if len(c.BackOff) > 0 {
		say("backoff", fmt.Sprint(c.BackOff), "none", "has BackOff %v, which replaces AckWait (asked %v, effective %v) and bends the delays "+
			"of naks; remove BackOff from the consumer", c.BackOff, asked, c.AckWait)
	}
	if c.AckPolicy != jetstream.AckExplicitPolicy {
		say("ack_policy", c.AckPolicy.String(), "explicit", "has ack policy %v; it must be explicit", c.AckPolicy)
	}
	filters := c.FilterSubjects
	if len(filters) == 0 {
		filters = []string{c.FilterSubject}
	}
	if !slices.Equal(filters, []string{subject(kind)}) {
		say("filter", fmt.Sprint(filters), subject(kind), "filters %v; it must filter exactly %s", filters, subject(kind))
	}
	if c.AckWait < time.Second {
		say("ack_wait", c.AckWait.String(), "at least 1s", "has AckWait %v; it must be at least 1s", c.AckWait)
	}
	return found
}

// CheckStream says what is wrong with the settings of the job stream, as the server gives them: it may drop a message before
// its first claim has committed, or keep it for ever. Nil: nothing is. It does no I/O.
func CheckStream(c jetstream.StreamConfig) (found []WrongSetting) {
	say := func(setting, have, want, what, do string) {
		found = append(found, WrongSetting{Setting: setting, Found: have, Wanted: want, What: what, Do: do})
	}
	if c.Retention != jetstream.WorkQueuePolicy {
		say("retention", c.Retention.String(), jetstream.WorkQueuePolicy.String(),
			fmt.Sprintf("has %s retention: messages stay after they are settled", c.Retention), "make it anew as a work queue")
	}
	if c.Storage != jetstream.FileStorage {
		say("storage", c.Storage.String(), jetstream.FileStorage.String(), "is kept in memory: jobs are lost with the server",
			"make it anew with file storage")
	}
	if c.Discard != jetstream.DiscardNew && (c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxMsgsPerSubject > 0) {
		say("discard", c.Discard.String(), jetstream.DiscardNew.String(), "discards its oldest messages when it is full: jobs are lost",
			"set its discard policy to new")
	}
	if c.MaxAge > 0 {
		say("max_age", c.MaxAge.String(), "0", fmt.Sprintf("drops messages at an age of %s", c.MaxAge),
			"nothing, if workers are never away for that long; else set its max age to 0")
	}
	return found
}

// consumerSettings reports a consumer that a worker would refuse, or that gives messages up.
func (d *drifting) consumerSettings(kind string, c jetstream.ConsumerConfig) {
	if d.kinds[kind] == nil {
		return // somebody else's
	}
	for _, f := range CheckConsumer(d.config, kind, c) {
		if f.Setting != "max_ack_pending" { // a matter of speed
			d.add(Drift{Sort: DriftSettings, Kind: kind, Count: 1, NeedsPerson: true, What: "consumer " + c.Durable + " " + f.What, Do: f.Do})
		}
	}
}

func (d *drifting) streamSettings(c jetstream.StreamConfig) {
	for _, f := range CheckStream(c) {
		d.add(Drift{Sort: DriftSettings, Count: 1, NeedsPerson: f.Setting != "max_age", What: "stream " + c.Name + " " + f.What, Do: f.Do})
	}
}
