package main

import (
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/story"
)

// The values of --lease-policy.
const (
	leaseStrict  = "strict"
	leaseLenient = "lenient"
)

const (
	anyPositive  = time.Millisecond // where zero would mean the default
	leastBackoff = 10 * time.Millisecond

	leastRecoverEvery = 100 * time.Millisecond
)

// What the flags' defaults are taken from, so that --help cannot differ from the engine.
var (
	defaults = consumer.DefaultConfig()
	profile  = consumer.DefaultProvider()
)

// maxBodyFlag is for publishers and workers, which have to agree.
func maxBodyFlag() cli.Flag {
	return countFlag("max-body", "largest body in `BYTES`, below max_payload of the NATS server; the same for publishers and workers", defaults.MaxBody, 2)
}

// workFlags are all flags of settle work.
func workFlags() []cli.Flag {
	flags := append([]cli.Flag{databaseFlag()}, natsFlags()...)
	flags = append(flags, kindFlags()...)
	flags = append(flags, limitFlags()...)
	flags = append(flags, traceFlags()...)
	flags = append(flags, httpFlags("127.0.0.1:8089")...)
	return append(flags,
		countFlag("slots", "jobs performed at once, per kind and process", defaults.Slots, 1),
		ackWaitFlag(),
		durationFlag("lease", "how long an attempt owns its task without a heartbeat; 1s to 1h", 30*time.Second, time.Second),
		maxBodyFlag(),
		maxAckPendingFlag(),
		replicasFlag(),
		durationFlag("recover-every", "how often due tasks are taken up whose message does not come; at least 100ms",
			defaults.RecoverEvery, leastRecoverEvery),
		durationFlag("recover-after", "age from which a task that is not settled counts as stuck; at least 1s",
			defaults.RecoverAfter, time.Second),
		durationFlag("proof-retention", "age at which the key row of a final task may go, 0: never. Shorter than the time for which a "+
			"job can come again, it is refused", defaults.ProofRetention, 0),
		durationFlag("replay-horizon", "how long after its publish a job may be published again by hand", defaults.ReplayHorizon, anyPositive),
		stringFlag("event-source", "`URI` of this installation, the ce-source of the events that it emits", defaults.EventSource),
		stringFlag("event-type-prefix", "`TEXT` before the ce-type of the events that it emits: com.example. makes payment.charged "+
			"com.example.payment.charged", ""),
		durationFlag("drain-timeout", "grace for running jobs after SIGTERM; saves and acks get a few seconds more",
			defaults.DrainTimeout, anyPositive),
		stringFlag("nats-monitor", "`URL` of the monitor of the NATS server, http://HOST:8222: to learn how it writes to its disk", ""),
		logFlag(),
	)
}

// kindFlags shape the kinds themselves: which ones, their limits, their provider.
func kindFlags() []cli.Flag {
	return []cli.Flag{
		kindFlag(),
		choiceFlag("lease-policy", "what a save demands: `POLICY` strict (an unexpired lease) or lenient (only that nobody else "+
			"has claimed the task); unset: lenient where the kind has a look-up", "", leaseStrict, leaseLenient),
		durationFlag("deadline", "total time of one perform or look-up; at least 1s", defaults.Policy.Deadline, time.Second),
		countFlag("max-failures", "unknown sends and crashes before a person is called", defaults.Policy.MaxFailures, 1),
		durationFlag("max-age", "age at which a task that is not final needs a person; at least 1s", defaults.Policy.MaxAge, time.Second),
		durationFlag("backoff-min", "first delay after a failure; at least 10ms", defaults.Policy.BackoffMin, leastBackoff),
		durationFlag("backoff-max", "largest delay; at least 10ms", defaults.Policy.BackoffMax, leastBackoff),
		durationFlag("retry-after-max", "largest Retry-After of a provider that is obeyed", defaults.Policy.RetryAfterMax, anyPositive),
		durationFlag("misconfigured-delay", "delay after 401, 403, 404, 405, redirects and TLS name errors",
			defaults.Policy.MisconfiguredWait, anyPositive),
		retentionFlag(),
		secretFlag("provider-url", variableOf("provider-url"), "base `URL` of the provider; required to work"),
		durationFlag("provider-timeout", "time of one HTTP call; cut to the deadline", 10*time.Second, anyPositive),
		boolFlag("provider-keyed", "whether the provider keeps idempotency keys", true),
		durationFlag("provider-key-lifetime", "how long it keeps them", profile.KeyLifetime, anyPositive),
		durationFlag("absent-after", "time after the last send from which a look-up's \"absent\" counts at a provider without keys",
			profile.AbsentAfter, anyPositive),
		boolFlag("unkeyed-resend", "whether such an \"absent\" permits sending again; otherwise a person is asked", false),
		rateFlag("provider-max-per-second", "`CALLS` to the provider per second, of all workers together; look-ups count"),
		countFlag("provider-max-in-flight", "`CALLS` to the provider at once, of all workers together; 0: no cap", 0, 0),
		boolFlag("create-orders", "create unknown orders as pending (demo and labs)", false),
	}
}

func retentionFlag() cli.Flag {
	f := durationFlag("retention", "age at which payload, result and answer of a final task may be archived, of every kind",
		defaults.Policy.Retention, anyPositive)
	f.DefaultText += ", of charges " + story.Short(handlers.DefaultChargeRetention)
	return f
}

func kindFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "kind", Usage: "only this `KIND`; may be given several times", DefaultText: "all",
		Sources: from(variableOf("kind")),
	}
}

func ackWaitFlag() cli.Flag {
	return durationFlag("ack-wait", "time after which JetStream delivers again, for consumers that are created; at least 1s",
		defaults.AckWait, time.Second)
}

func maxAckPendingFlag() cli.Flag {
	return countFlag("max-ack-pending", "of consumers that are created", defaults.MaxAckPending, 1)
}

func replicasFlag() cli.Flag {
	return countFlag("replicas", "of streams that are created; 3 for acknowledged jobs to survive the loss of a server", 1, 1)
}

// policy is the part of kindFlags that holds for every kind.
func policy(cmd *cli.Command) consumer.Policy {
	p := consumer.Policy{
		Deadline:          cmd.Duration("deadline"),
		MaxFailures:       cmd.Int("max-failures"),
		MaxAge:            cmd.Duration("max-age"),
		BackoffMin:        cmd.Duration("backoff-min"),
		BackoffMax:        cmd.Duration("backoff-max"),
		RetryAfterMax:     cmd.Duration("retry-after-max"),
		MisconfiguredWait: cmd.Duration("misconfigured-delay"),
		Retention:         cmd.Duration("retention"),
	}
	switch cmd.String("lease-policy") {
	case leaseStrict:
		p.Lease = consumer.Strict
	case leaseLenient:
		p.Lease = consumer.Lenient
	}
	return p
}

// checkOrder refuses settings that are right alone and wrong together.
func checkOrder(cmd *cli.Command) error {
	low, high := cmd.Duration("backoff-min"), cmd.Duration("backoff-max")
	if low > high {
		return wrongUse("--backoff-min (%s) is %s, more than --backoff-max (%s), %s",
			variableOf("backoff-min").Key(), story.Short(low), variableOf("backoff-max").Key(), story.Short(high))
	}
	return nil
}
