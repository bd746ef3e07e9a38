package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
)

const (
	jobStream   = "JOBS"
	jobSubjects = "jobs.>"

	roomForHeaders   = 4 << 10 // bytes
	shortestWindow   = 2 * time.Minute
	lossyEnough      = time.Second // a sync interval up to which little is lost
	replicasToOutage = 3
)

// brokerChecks are about the server and the stream.
func brokerChecks() []check {
	out := []check{
		{"max-payload", Warning, needsBroker, false, "largest body and its headers against max_payload of the server",
			"publishers are refused jobs that this configuration allows", maxPayload},
		{"sync-interval", Warning, needsBroker, false, "how often the server writes through to its disk (asked for with --nats-monitor), where a stream has one replica",
			"a crash of the machine forgets jobs whose publish was acknowledged, and acks, after which a job comes again", syncInterval},
		{"monitor-away", Note, needsBroker, false, "whether the monitor of the NATS server answers, where --nats-monitor names one",
			"how the server writes to its disk stays unknown", func(f *Facts) []Finding {
				if f.Broker.Monitor == "" {
					return nil
				}
				return one("the monitor does not tell: "+f.Broker.Monitor, Value{"answer", "none"}, Value{"answer", "within " + monitorLimit.String()},
					"SETTLE_NATS_MONITOR=http://HOST:8222 as the server's http_port says, or nothing")
			}},
		{"stream-missing", Note, needsBroker, true, "whether the stream JOBS is there",
			"nothing can be published to it before it is made", func(f *Facts) []Finding {
				if f.Broker.Jobs != nil || f.Database != nil && f.Database.HasTasks {
					return nil
				}
				return one("there is no stream "+jobStream, Value{"streams " + jobStream, "0"}, Value{"streams " + jobStream, "1"},
					"start a worker or publish a job: both make it")
			}},
		{"stream-lost", Warning, needsBoth, false, "whether the stream JOBS is there, where tasks say that it was",
			"jobs that had not begun are gone with it, and only their publishers know them", func(f *Facts) []Finding {
				if f.Broker.Jobs != nil || !f.Database.HasTasks {
					return nil
				}
				return one("there are tasks, and the stream "+jobStream+" that their jobs came with is gone", Value{"streams " + jobStream, "0"}, Value{"streams " + jobStream, "1"},
					"settle migrate --streams makes it, as a worker does that may; let publishers publish again what they published since the last backup of the stream: repeats are free. Workers settle the tasks that had begun")
			}},
		{"stream-replicas", Warning, needsStream, false, "replicas of the stream against 3",
			"acknowledged jobs are lost with the one server, and so are acks: a job comes again, and is answered from its row", func(f *Facts) []Finding {
				if f.Broker.Jobs.Replicas >= replicasToOutage {
					return nil
				}
				return one("the stream survives the loss of no server", Value{"replicas", fmt.Sprint(f.Broker.Jobs.Replicas)},
					Value{"replicas", fmt.Sprint(replicasToOutage)}, "nats stream edit "+jobStream+" --replicas=3")
			}},
		{"stream-subjects", Error, needsStream, false, "subjects of the stream against jobs.>",
			"jobs of some kinds are refused, or go where no worker looks", func(f *Facts) []Finding {
				if slices.Contains(f.Broker.Jobs.Subjects, jobSubjects) {
					return nil
				}
				return one("the stream does not take all jobs", Value{"subjects", fmt.Sprint(f.Broker.Jobs.Subjects)}, Value{"subjects", jobSubjects},
					"nats stream edit "+jobStream+" --subjects='"+jobSubjects+"'")
			}},
		{"duplicates-window", Note, needsStream, false, "duplicates window of the stream against 2m",
			"a publish that is repeated later than that is stored twice; the second one is answered from the row", func(f *Facts) []Finding {
				if f.Broker.Jobs.Duplicates >= shortestWindow {
					return nil
				}
				return one("the stream forgets message ids early", Value{"window", f.Broker.Jobs.Duplicates.String()}, Value{"window", shortestWindow.String()},
					"nats stream edit "+jobStream+" --dupe-window=2m")
			}},
		{"clock-broker", Warning, needsStream, false, "difference between this clock and the broker's, by the round trip, against 2s",
			"leases do not depend on it; the ages of messages, and with them alerts and the age check of key rows, do",
			func(f *Facts) []Finding { return clockOff(f.Broker.Clock, "the broker") }},
	}
	return append(out, streamFaults()...)
}

func maxPayload(f *Facts) []Finding {
	if int64(f.Config.MaxBody)+roomForHeaders <= f.Broker.MaxPayload {
		return nil
	}
	return one("the server refuses large jobs", Value{"largest body", fmt.Sprint(f.Config.MaxBody, " bytes")}, Value{"max_payload", fmt.Sprint(f.Broker.MaxPayload, " bytes")},
		fmt.Sprintf("max_payload: %d in the server's configuration, or SETTLE_MAX_BODY=%d", f.Config.MaxBody+roomForHeaders,
			max(f.Broker.MaxPayload-roomForHeaders, 2)))
}

func syncInterval(f *Facts) []Finding {
	s := f.Broker.Sync
	if s == nil || s.Always || s.Every <= lossyEnough || f.Broker.Jobs != nil && f.Broker.Jobs.Replicas >= replicasToOutage {
		return nil
	}
	return one("the server acknowledges jobs long before they are on its disk", Value{"sync_interval", s.Every.String()}, Value{"sync_interval", "always"},
		"jetstream { sync_interval: always } in the server's configuration, or a stream with 3 replicas")
}

// streamFaults are the settings that package consumer knows to be wrong.
func streamFaults() []check {
	found := func(setting, fix string) func(*Facts) []Finding {
		return func(f *Facts) (out []Finding) {
			for _, fault := range consumer.CheckStream(*f.Broker.Jobs) {
				if fault.Setting == setting {
					out = append(out, one("stream "+jobStream+" "+fault.What, Value{setting, fault.Found}, Value{setting, fault.Wanted}, fix)...)
				}
			}
			return out
		}
	}
	const anew = "make the stream anew while no worker runs and it is empty: nats stream rm " + jobStream + ", then start a worker"
	age := found("max_age", "nats stream edit "+jobStream+" --max-age=0")
	return []check{
		{"stream-retention", Warning, needsStream, false, "retention of the stream against a work queue",
			"settled messages stay until the disk is full", found("retention", anew)},
		{"stream-storage", Error, needsStream, false, "storage of the stream against files",
			"all jobs that were not taken up yet are lost with the server", found("storage", anew)},
		{"stream-message-ttl", Warning, needsStream, false, "allow_msg_ttl of the stream against off",
			"a job that is published with a Nats-TTL header, and waits for longer, is dropped and nobody is told", func(f *Facts) []Finding {
				if !f.Broker.Jobs.AllowMsgTTL {
					return nil
				}
				return one("the stream lets publishers limit how long a message lives", Value{"allow_msg_ttl", "on"}, Value{"allow_msg_ttl", "off"},
					"it cannot be switched off: publish no job with Nats-TTL, and "+anew)
			}},
		{"stream-discard", Error, needsStream, false, "discard policy of a stream with limits against new",
			"when it is full the oldest jobs are dropped before anybody has taken them up", found("discard", "nats stream edit "+jobStream+" --discard=new")},
		{"stream-max-age", Error, needsStream, false, "maximum age of messages against the maximum age of a task",
			"a job that waits for longer, behind an outage or a pause, is dropped and nobody is told", func(f *Facts) []Finding {
				out := age(f)
				for i := range out {
					if f.Broker.Jobs.MaxAge > f.longestAge() {
						out[i].Severity = Warning
					}
					out[i].Wanted = Value{"max_age", "0, or more than " + f.longestAge().String()}
				}
				return out
			}},
	}
}

// longestAge is the longest time for which a task of any kind stays open without a person.
func (f *Facts) longestAge() (longest time.Duration) {
	for _, k := range f.Kinds {
		longest = max(longest, k.Policy.MaxAge)
	}
	return longest
}

// consumerChecks are about the consumer of each kind.
func consumerChecks() []check {
	faulty := func(setting string) func(*Facts) []Finding {
		return func(f *Facts) []Finding {
			return perConsumer(f, func(k consumer.Description, c jetstream.ConsumerConfig) (out []Finding) {
				for _, fault := range consumer.CheckConsumer(f.Config, k.Name, c) {
					if fault.Setting == setting {
						out = append(out, one("consumer "+k.Consumer+" "+fault.What, Value{setting, fault.Found}, Value{setting, fault.Wanted}, consumerFix(setting, k, f))...)
					}
				}
				return out
			})
		}
	}
	return []check{
		{"consumer-backoff", Error, needsStream, true, "BackOff of the consumer against none",
			"it replaces AckWait and bends the delays of naks: jobs come while they are at work", faulty("backoff")},
		{"consumer-ack-policy", Error, needsStream, true, "ack policy of the consumer against explicit",
			"jobs are gone before they are done", faulty("ack_policy")},
		{"consumer-filter", Error, needsStream, true, "filter of the consumer against the subject of its kind",
			"jobs of another kind come in, or its own do not", faulty("filter")},
		{"consumer-ack-wait", Error, needsStream, true, "AckWait of the consumer against 1s",
			"jobs come again while they are at work", faulty("ack_wait")},
		{"consumer-max-deliver", Warning, needsStream, true, "MaxDeliver of the consumer against -1",
			"the broker gives a message up although its task is open", faulty("max_deliver")},
		{"consumer-max-ack-pending", Warning, needsStream, true, "MaxAckPending of the consumer against four times the slots",
			"delayed messages count: with that many, nothing new is delivered", faulty("max_ack_pending")},
		{"consumer-ack-wait-differs", Note, needsStream, false, "AckWait of the consumer against SETTLE_ACK_WAIT",
			"an existing consumer is never changed: what it has counts, not the setting", func(f *Facts) []Finding {
				return perConsumer(f, func(k consumer.Description, c jetstream.ConsumerConfig) []Finding {
					if c.AckWait == f.Config.AckWait {
						return nil
					}
					return one("consumer "+k.Consumer+" has another AckWait than is set", Value{"AckWait", c.AckWait.String()}, Value{"SETTLE_ACK_WAIT", f.Config.AckWait.String()},
						consumerWait(k, f.Config.AckWait))
				})
			}},
		{"consumer-replicas", Warning, needsStream, false, "replicas of the consumer against those of the stream",
			"what was delivered and acked is forgotten with one server, although the messages are not", func(f *Facts) []Finding {
				return perConsumer(f, func(k consumer.Description, c jetstream.ConsumerConfig) []Finding {
					if c.Replicas == 0 || c.Replicas >= f.Broker.Jobs.Replicas { // 0: as the stream
						return nil
					}
					return one("consumer "+k.Consumer+" has fewer replicas than its stream", Value{"replicas", fmt.Sprint(c.Replicas)},
						Value{"replicas", fmt.Sprint(f.Broker.Jobs.Replicas)}, fmt.Sprintf("nats consumer edit %s %s --replicas=%d", jobStream, k.Consumer, f.Broker.Jobs.Replicas))
				})
			}},
	}
}

func consumerFix(setting string, k consumer.Description, f *Facts) string {
	switch setting {
	case "max_deliver":
		return fmt.Sprintf("nats consumer edit %s %s --max-deliver=-1", jobStream, k.Consumer)
	case "max_ack_pending":
		return fmt.Sprintf("nats consumer edit %s %s --max-pending=%d", jobStream, k.Consumer, f.Config.MaxAckPending)
	}
	return fmt.Sprintf("nats consumer rm %s %s --force: the next worker makes it anew, and what was not acked comes again", jobStream, k.Consumer)
}

// perConsumer looks at the consumers of the kinds that have one.
func perConsumer(f *Facts, find func(consumer.Description, jetstream.ConsumerConfig) []Finding) []Finding {
	return perKind(f.Kinds, func(k consumer.Description) []Finding {
		if c, there := f.Broker.Consumers[k.Name]; there {
			return find(k, c)
		}
		return nil
	})
}

// driftChecks are about messages and tasks that do not belong together.
func driftChecks() (out []check) {
	about := map[consumer.DriftSort]struct{ id, about, why string }{
		consumer.DriftGivenUp:  {"messages-given-up", "messages that the broker gave up", "nobody does these jobs"},
		consumer.DriftUnrouted: {"messages-unrouted", "messages of subjects that no consumer is given", "nobody does these jobs, and nobody notices"},
		consumer.DriftSettled:  {"messages-settled", "delivered messages whose task is final", "they take room, and are answered from the row once more"},
		consumer.DriftGone:     {"tasks-without-message", "open tasks whose message is gone", "only recovery brings them to an end"},
	}
	for _, sort := range slices.Sorted(maps.Keys(about)) {
		a := about[sort]
		out = append(out, check{a.id, Warning, needsDrift, false, a.about, a.why, func(f *Facts) []Finding { return drifts(f, sort) }})
	}
	return out
}

func drifts(f *Facts, sort consumer.DriftSort) (out []Finding) {
	for _, d := range f.Drift {
		if d.Sort != sort {
			continue
		}
		found := Finding{Kind: d.Kind, What: d.What, Fix: d.Do, Found: Value{"count", fmt.Sprint(d.Count)}, Wanted: Value{"count", "0"}}
		if !d.NeedsPerson {
			found.Severity = Note
		}
		out = append(out, found)
	}
	return out
}
