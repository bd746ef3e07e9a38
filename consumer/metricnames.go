package consumer

// MetricType says how a metric is to be read.
type MetricType string

// The types of metrics.
const (
	MetricCounter   MetricType = "counter"
	MetricGauge     MetricType = "gauge"
	MetricHistogram MetricType = "histogram"
)

// Metric describes one instrument. Its name is the same in OTLP and for Prometheus, unit and "_total" included, so that what
// stands here is what a query says. The values of labels are from small fixed sets: kinds, and words of this package.
type Metric struct {
	Name   string
	Type   MetricType
	Unit   string
	Labels []string
	Help   string

	observed bool // read when somebody looks; the others are counted as things happen
	shared   bool // the same for all workers: read from Postgres and JetStream
}

// Metrics are all metrics of this package: those of an Engine and those of a Bridge.
func Metrics() []Metric { return declared }

// Labels of metrics.
const (
	labelKind    = "kind"
	labelOutcome = "outcome"
	labelStatus  = "status"
)

var declared []Metric

func declare(m Metric) Metric {
	m.observed = m.observed || m.Type == MetricGauge
	declared = append(declared, m)
	return m
}

func count(name, unit, help string, labels ...string) Metric {
	return declare(Metric{Name: name, Type: MetricCounter, Unit: unit, Help: help, Labels: labels})
}

func gaugeOf(name, unit, help string, labels ...string) Metric {
	return declare(Metric{Name: name, Type: MetricGauge, Unit: unit, Help: help, Labels: labels})
}

func sharedGauge(name, unit, help string, labels ...string) Metric {
	return declare(Metric{Name: name, Type: MetricGauge, Unit: unit, Help: help, Labels: labels, shared: true})
}

func spreadOf(name, unit, help string, labels ...string) Metric {
	return declare(Metric{Name: name, Type: MetricHistogram, Unit: unit, Help: help, Labels: labels})
}

func total(name, unit, help string) Metric {
	return declare(Metric{Name: name, Type: MetricCounter, Unit: unit, Help: help, observed: true})
}

// What this process does, counted as it happens. All of these add up over workers.
var (
	metricJobs = count("settle_jobs_total", "{job}",
		"attempts by what was committed: finished, failed, needs_review, unknown, given_back (not sent, tried again later)",
		labelKind, labelOutcome)
	metricAttempts = count("settle_attempts_total", "{attempt}",
		"claims that gave an attempt: first (of a new key), again (known not applied), ask (the provider is asked first)",
		labelKind, "start")
	metricDuplicates = count("settle_duplicates_total", "{delivery}",
		"deliveries stopped because their task is over or waits for a person", labelKind)
	metricReplays = count("settle_replays_total", "{delivery}",
		"those of them that were answered with the stored result", labelKind)
	metricRefusals = count("settle_refusals_total", "{message}", "messages that were not accepted, by the reason of the refusal", "reason")
	metricLookups  = count("settle_lookups_total", "{call}",
		"look-ups by verdict: found, found_refused, absent, still_running, contradictory, cannot_tell", labelKind, "verdict")
	metricLost = count("settle_leases_lost_total", "{attempt}", "attempts that lost their task before they could save", labelKind)
	metricBeat = count("settle_heartbeat_failures_total", "{beat}",
		"heartbeats that failed, by the clock that ran on: lease (all attempts of the process), ack_wait (one delivery)", "clock")

	metricClaim   = spreadOf("settle_claim_duration_seconds", "s", "a claim, with the wait for its group; of a local job all that comes before its Apply", labelKind)
	metricPerform = spreadOf("settle_perform_duration_seconds", "s", "one call of Perform; of a local kind, of Apply", labelKind)
	metricSave    = spreadOf("settle_save_duration_seconds", "s", "a save, with the wait for its group and its repetitions; of a local job all from its Apply to the commit", labelKind)
	metricAck     = spreadOf("settle_ack_duration_seconds", "s", "an ack, until the server has confirmed it", labelKind)
	metricThrough = spreadOf("settle_end_to_end_duration_seconds", "s",
		"from the storing of a message in the stream to its ack or term, by the clocks of broker and worker", labelKind)
	metricGroup = spreadOf("settle_group_size", "{request}", "requests that one statement served: claim_new, claim, guard, save; apply: local jobs in one transaction", "statement")
)

// What this process is like right now.
var (
	metricReady   = gaugeOf("settle_ready", "1", "1 while the worker serves: what /readyz says")
	metricSlots   = gaugeOf("settle_slots", "{job}", "jobs that may be performed at once in this worker", labelKind)
	metricInUse   = gaugeOf("settle_slots_in_use", "{job}", "slots that are taken, by jobs or by pulls that wait for some", labelKind)
	metricBreaker = gaugeOf("settle_breaker_open", "1", "1 while the breaker of the kind's provider is open", labelKind)
	metricRecover = gaugeOf("settle_recovery_last_run_timestamp_seconds", "s",
		"when recovery last chose among the due tasks: of the kind for which that is longest ago. Not there before it has for all")

	metricPool        = gaugeOf("settle_pool_connections", "{connection}", "connections to Postgres: in_use, idle, opening", "state")
	metricPoolMax     = gaugeOf("settle_pool_max_connections", "{connection}", "the most that the pool opens")
	metricPoolTaken   = total("settle_pool_acquires_total", "{acquire}", "connections taken from the pool")
	metricPoolWaited  = total("settle_pool_waits_total", "{acquire}", "those of them that had to wait for one")
	metricPoolWaiting = total("settle_pool_wait_seconds_total", "s", "time for which they waited")
)

// What all workers share, read from Postgres and JetStream about every ten seconds: each worker says the same, so take the max of
// them, not the sum. What could not be read is not there.
var (
	metricBacklog = sharedGauge("settle_backlog", "{job}", "jobs that are not done, each in one part: undelivered (in the stream), in_flight "+
		"(an attempt holds it), waiting (nobody does), unknown (being checked with the provider), parked (waits for a person)", labelKind, "part")
	metricTasks = sharedGauge("settle_tasks", "{task}", "tasks that are not over: started, unknown, needs_review. Of all kinds together 100,000 are counted: beyond that it is a lower bound, and kinds that were not seen are left out", labelKind, labelStatus)
	metricAge   = sharedGauge("settle_oldest_seconds", "s", "age of the oldest of them; 0 if there is none", labelKind, labelStatus)
	metricRows  = sharedGauge("settle_outbox_rows", "{row}", "events and follow-up jobs that are not published. Counted up to 100,000", "stream")
	metricLag   = sharedGauge("settle_outbox_oldest_seconds", "s", "age of the oldest of them; 0 if there is none", "stream")
	metricStray = sharedGauge("settle_unrouted_messages", "{message}", "messages in JOBS that no consumer is given")
)

// What a bridge does.
var metricBridge = count("settle_bridge_events_total", "{event}",
	"CloudEvents that a bridge took: published (as jobs), refused (kept as refusals), unmapped (left to others)", labelOutcome)
