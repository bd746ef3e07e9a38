package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlemq/settle/consumer"
)

// reachChecks: what is away is a finding like any other.
func reachChecks() []check {
	return []check{
		{"database-away", Error, needsNothing, true, "Postgres answers within its time",
			"no job can be claimed or saved; workers wait", func(f *Facts) []Finding {
				if f.Database != nil {
					return nil
				}
				return one("Postgres does not answer: "+f.DatabaseError, Value{"answer", "none"}, Value{"answer", "within " + reachLimit.String()},
					"start it, or set DATABASE_URL to where it is")
			}},
		{"broker-away", Error, needsNothing, true, "NATS and its JetStream answer within their time",
			"no job is delivered or published; workers wait", func(f *Facts) []Finding {
				if f.Broker != nil {
					return nil
				}
				return one("NATS does not answer: "+f.BrokerError, Value{"answer", "none"}, Value{"answer", "within " + reachLimit.String()},
					"start it with JetStream (nats-server -js), or set NATS_URL to where it is")
			}},
	}
}

// one is the only finding of a check.
func one(what string, found, wanted Value, fix string) []Finding {
	return []Finding{{What: what, Found: found, Wanted: wanted, Fix: fix}}
}

const (
	shortestHeartbeat = 2 * time.Second
	beatsPerClock     = 3 // of an engine
	leaseOverAckWait  = 2
	waitingPerConn    = 16 // local jobs per connection: each holds one for the time of its transaction
	leastConnections  = 4  // claims, saves, renewals and the outbox go side by side
)

// timerChecks are about the configuration of workers.
func timerChecks() []check {
	return []check{
		{"heartbeat-short", Warning, needsNothing, false, "heartbeat, a third of the lease and of each AckWait (of the consumer, if it is there), against 2s",
			"a pause of that length, as a busy database or garbage collection makes, loses the lease: results turn into look-ups", heartbeatShort},
		{"lease-over-ack-wait", Note, needsNothing, false, "lease against twice each AckWait (of the consumer, if it is there)",
			"after a crash the message comes back and is handed back again until the lease is over", leaseLong},
		{"http-timeout-over-deadline", Note, needsNothing, false, "HTTP timeout against the deadline",
			"the deadline cuts the call: the longer timeout never counts", timeoutOverDeadline},
		{"drain-under-timeout", Warning, needsNothing, false, "drain timeout against the HTTP timeout",
			"a call that is under way at SIGTERM is cut: its outcome is unknown and has to be asked for", drainShort},
		{"delay-over-max-age", Warning, needsNothing, false, "longest delay between two attempts against the maximum age",
			"one such wait uses the whole age up: the task goes to a person without another attempt", delayOverAge},
		{"deadline-over-max-age", Warning, needsNothing, false, "deadline against the maximum age",
			"one attempt uses the whole age up", deadlineOverAge},
		{"absent-under-timeout", Warning, needsNothing, false, "absent-after of a provider without keys against the HTTP timeout",
			"a request may still be at work at the provider when its \"absent\" is believed; sent again, there are two effects", absentShort},
		{"no-lookup", Note, needsNothing, false, "whether a kind can ask its provider",
			"each unknown outcome that no young key protects needs a person", noLookup},
		{"pool-small", Warning, needsNothing, false, "connections of the pool against 4",
			"the renewal of leases waits behind claims and saves", poolSmall},
		{"pool-under-slots", Warning, needsNothing, false, "slots of local kinds against 16 for each connection of the pool",
			"a local job holds a connection for its transaction, and the renewal of leases stands in the same queue", poolUnderSlots},
	}
}

// heartbeatShort looks at each clock that a heartbeat has to come before: an engine beats at a third of the shortest.
func heartbeatShort(f *Facts) (out []Finding) {
	say := func(clock string, d time.Duration, fix string) []Finding {
		if d/beatsPerClock >= shortestHeartbeat {
			return nil
		}
		return one("leases are renewed every "+(d/beatsPerClock).String()+" because of the "+clock, Value{"heartbeat", (d / beatsPerClock).String()},
			Value{"least", shortestHeartbeat.String()}, fix)
	}
	out = say("lease", f.Config.Lease, "SETTLE_LEASE=30s")
	if f.settingCounts() {
		out = append(out, say("AckWait", f.Config.AckWait, "SETTLE_ACK_WAIT=30s")...)
	}
	return append(out, f.perAckWait(func(k consumer.Description, wait time.Duration) []Finding {
		return say("AckWait of consumer "+k.Consumer, wait, consumerWait(k, consumer.DefaultConfig().AckWait))
	})...)
}

func leaseLong(f *Facts) (out []Finding) {
	say := func(whose string, wait time.Duration, fix string) []Finding {
		if f.Config.Lease <= leaseOverAckWait*wait {
			return nil
		}
		return one("the lease is much longer than the AckWait"+whose, Value{"lease", f.Config.Lease.String()}, Value{"AckWait", wait.String()}, fix)
	}
	if f.settingCounts() {
		out = say("", f.Config.AckWait, "SETTLE_LEASE="+f.Config.AckWait.String())
	}
	return append(out, f.perAckWait(func(k consumer.Description, wait time.Duration) []Finding {
		return say(" of consumer "+k.Consumer, wait, consumerWait(k, f.Config.Lease)+", or a shorter SETTLE_LEASE")
	})...)
}

// settingCounts reports whether a kind goes by SETTLE_ACK_WAIT: its consumer is still to be made, or not known.
func (f *Facts) settingCounts() bool {
	return slices.ContainsFunc(f.Kinds, func(k consumer.Description) bool { _, there := f.ackWait(k); return !there })
}

// perAckWait looks at the AckWait of each consumer that is there.
func (f *Facts) perAckWait(find func(consumer.Description, time.Duration) []Finding) []Finding {
	return perKind(f.Kinds, func(k consumer.Description) []Finding {
		if wait, there := f.ackWait(k); there {
			return find(k, wait)
		}
		return nil
	})
}

func consumerWait(k consumer.Description, wait time.Duration) string {
	return fmt.Sprintf("nats consumer edit %s %s --wait=%s", jobStream, k.Consumer, wait)
}

func timeoutOverDeadline(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if f.ProviderTimeout <= k.Policy.Deadline {
			return nil
		}
		return one("a call may take longer than its whole attempt", Value{"HTTP timeout", f.ProviderTimeout.String()},
			Value{"deadline", k.Policy.Deadline.String()}, "SETTLE_PROVIDER_TIMEOUT="+(k.Policy.Deadline/2).String())
	})
}

func drainShort(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if f.Config.DrainTimeout >= f.timeout(k) {
			return nil
		}
		return one("a worker that is stopped does not wait for the answer to a call", Value{"drain timeout", f.Config.DrainTimeout.String()},
			Value{"HTTP timeout", f.timeout(k).String()}, "SETTLE_DRAIN_TIMEOUT="+f.timeout(k).String())
	})
}

func delayOverAge(f *Facts) []Finding {
	return perKind(f.Kinds, func(k consumer.Description) []Finding {
		if k.LongestDelay < k.Policy.MaxAge {
			return nil
		}
		return one("a task may wait for longer than it may live", Value{"longest delay", k.LongestDelay.String()},
			Value{"maximum age", k.Policy.MaxAge.String()}, "SETTLE_MAX_AGE="+(2*k.LongestDelay).String()+
				", or lower SETTLE_BACKOFF_MAX, SETTLE_RETRY_AFTER_MAX or SETTLE_MISCONFIGURED_DELAY")
	})
}

func deadlineOverAge(f *Facts) []Finding {
	return perKind(f.Kinds, func(k consumer.Description) []Finding {
		if k.Policy.Deadline < k.Policy.MaxAge {
			return nil
		}
		return one("an attempt may take longer than a task may live", Value{"deadline", k.Policy.Deadline.String()},
			Value{"maximum age", k.Policy.MaxAge.String()}, "SETTLE_MAX_AGE="+(10*k.Policy.Deadline).String())
	})
}

func absentShort(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if !k.Provider.Unkeyed || k.Provider.AbsentAfter >= f.timeout(k) {
			return nil
		}
		return one("\"absent\" is believed before a call would have timed out", Value{"absent-after", k.Provider.AbsentAfter.String()},
			Value{"HTTP timeout", f.timeout(k).String()}, "SETTLE_ABSENT_AFTER="+(f.timeout(k)*3/2).String())
	})
}

func noLookup(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if k.HasLookup {
			return nil
		}
		return one("its provider cannot be asked what became of a request", Value{"look-up", "none"}, Value{"look-up", "one"},
			"give the kind a Lookup, if the provider has any way to be asked")
	})
}

func poolSmall(f *Facts) []Finding {
	if f.PoolSize >= leastConnections {
		return nil
	}
	return one("the pool has few connections", Value{"connections", fmt.Sprint(f.PoolSize)}, Value{"least", fmt.Sprint(leastConnections)},
		"pool_max_conns=16 in DATABASE_URL")
}

func poolUnderSlots(f *Facts) []Finding {
	slots, names := 0, []string(nil)
	for _, k := range f.Kinds {
		if k.Local {
			slots, names = slots+f.Config.Slots, append(names, k.Name)
		}
	}
	if slots <= waitingPerConn*f.PoolSize {
		return nil
	}
	return one("many local jobs wait for each connection ("+strings.Join(names, ", ")+")", Value{"slots of local kinds", fmt.Sprint(slots)},
		Value{"connections", fmt.Sprint(f.PoolSize)}, fmt.Sprintf("pool_max_conns=%d in DATABASE_URL, or SETTLE_SLOTS=%d",
			(slots+waitingPerConn-1)/waitingPerConn, max(waitingPerConn*f.PoolSize*f.Config.Slots/slots, 1)))
}

// perKind names the kind in the findings about each.
func perKind(kinds []consumer.Description, find func(consumer.Description) []Finding) (out []Finding) {
	for _, k := range kinds {
		for _, found := range find(k) {
			found.Kind = k.Name
			out = append(out, found)
		}
	}
	return out
}

// keyChecks are about the time for which keys are kept, on both sides.
func keyChecks() []check {
	return []check{
		{"key-lifetime-margin", Warning, needsNothing, false, "lifetime of the provider's keys against deadline and time in flight",
			"no resend is ever covered by its key: each unknown outcome has to be asked for, and ends with a person where that does not settle it",
			keyMargin},
		{"key-lifetime-under-max-age", Warning, needsNothing, false, "lifetime of the provider's keys against the maximum age",
			"a task that is still open when the key is forgotten can only be asked about, or needs a person", keyUnderAge},
		{"key-lifetime-under-replay", Note, needsNothing, false, "lifetime of the provider's keys against the replay horizon, where key rows are removed",
			"after it only the key row stops a second effect of a job that is published again", keyUnderReplay},
		{"proof-age", Error, needsStream, true, "age at which key rows go against stream reach, longest delay and replay horizon",
			"a job whose key row is gone counts as new: a second effect", func(f *Facts) []Finding {
				if f.ProofAge == nil {
					return nil
				}
				return one(f.ProofAge.Error(), Value{"proof retention", f.Config.ProofRetention.String()},
					Value{"replay horizon", f.Config.ReplayHorizon.String() + " and more"}, "SETTLE_PROOF_RETENTION=0")
			}},
	}
}

func keyMargin(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if k.Provider.Unkeyed || k.UsableKey > 0 {
			return nil
		}
		return one("the provider's keys live no longer than a request may be on its way", Value{"key lifetime", k.Provider.KeyLifetime.String()},
			Value{"deadline", k.Policy.Deadline.String() + " and a margin"}, "SETTLE_PROVIDER_KEY_LIFETIME= what the provider promises, or a shorter SETTLE_DEADLINE")
	})
}

func keyUnderAge(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if k.Provider.Unkeyed || k.UsableKey == 0 || k.Provider.KeyLifetime >= k.Policy.MaxAge {
			return nil
		}
		return one("a task may outlive the provider's key", Value{"key lifetime", k.Provider.KeyLifetime.String()},
			Value{"maximum age", k.Policy.MaxAge.String()}, "SETTLE_MAX_AGE="+k.Provider.KeyLifetime.String())
	})
}

func keyUnderReplay(f *Facts) []Finding {
	return perKind(f.remote(), func(k consumer.Description) []Finding {
		if k.Provider.Unkeyed || f.Config.ProofRetention == 0 || k.Provider.KeyLifetime >= f.Config.ReplayHorizon {
			return nil
		}
		return one("jobs may be published again after the provider has forgotten their keys", Value{"key lifetime", k.Provider.KeyLifetime.String()},
			Value{"replay horizon", f.Config.ReplayHorizon.String()}, "SETTLE_REPLAY_HORIZON="+k.Provider.KeyLifetime.String()+", or SETTLE_PROOF_RETENTION=0")
	})
}
