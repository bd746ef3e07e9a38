package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

func cloudEventsCommand() *cli.Command {
	flags := append([]cli.Flag{databaseFlag()}, natsFlags()...)
	return &cli.Command{
		Name:  "cloudevents",
		Usage: "make jobs of the CloudEvents of another stream, until a signal comes",
		Description: `Takes the CloudEvents (1.0, binary or structured) of --stream and publishes each, as it came, as a job of the kind
that --map gives its type:

settle cloudevents --stream ORDERS --map com.acme.order.placed=payment.charge

An event is acked once JOBS has confirmed its job. Passed on twice it is still one task. Its id and source are kept:
settle tasks find takes either, settle tasks show prints them. What cannot be read is kept as a refusal.
Several processes with the same --durable share the work. Waits for Postgres, NATS, the stream and JOBS where they are missing.`,
		Flags: append(append(flags,
			stringFlag("stream", "`NAME` of the stream with the events; required", ""),
			&cli.StringSliceFlag{Name: "map", Usage: "`TYPE=KIND`: events of this type become jobs of this kind; at least one",
				Sources: from(variableOf("map"))},
			&cli.StringSliceFlag{Name: "subject", Usage: "only events on this `SUBJECT`; may be given several times", DefaultText: "all",
				Sources: from(variableOf("subject"))},
			stringFlag("durable", "`NAME` of the consumer, which is made if it is missing", "settle"),
			sinceFlag(),
			choiceFlag("unmapped", "what becomes of events without a kind: `CHOICE` skip (left to others; in a work queue kept as refusals "+
				"all the same) or refuse (kept as refusals)", unmappedSkip, unmappedSkip, unmappedRefuse),
			durationFlag("proof-retention", "age at which the key rows of final tasks are deleted, 0: never. A consumer that is missing is not "+
				"made anew where it would begin with older events", 0, 0),
			durationFlag("replay-horizon", "how long after its publish a job may be published again by hand", defaults.ReplayHorizon, anyPositive),
			countFlag("max-body", "largest body of a structured event in `BYTES`", defaults.MaxBody, 2),
			logFlag(),
		), httpFlags("127.0.0.1:8087")...),
		Action: action(0, 0, cloudEvents),
	}
}

func sinceFlag() *cli.StringFlag {
	f := stringFlag("since", "where the consumer is made, `TIME` from which it takes events: an age such as 24h, a date, or an RFC 3339 time", "")
	f.DefaultText = "all that the stream holds"
	return f
}

// The values of --unmapped.
const (
	unmappedSkip   = "skip"
	unmappedRefuse = "refuse"
)

func cloudEvents(ctx context.Context, cmd *cli.Command) error {
	config, err := bridgeConfig(cmd)
	if err != nil {
		return err
	}
	metrics, err := telemetry.SetupMetrics(ctx, "settle-cloudevents", config.Logger)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer shutDown(context.WithoutCancel(ctx), nil, metrics)
	probes, err := serveProbes(cmd, metrics.Handler(), config.Logger)
	if err != nil {
		return err
	}
	defer probes.stop()
	config.MeterProvider = metrics.MeterProvider()
	return stopped(ctx, connectAndBridge(ctx, cmd, config, probes))
}

// connectAndBridge owns the two connections. The bridge has finished what it took when they are closed.
func connectAndBridge(ctx context.Context, cmd *cli.Command, config consumer.BridgeConfig, probes *probes) error {
	pool, err := openPool(ctx, cmd, "settle-cloudevents", true, config.Logger)
	if err != nil {
		return err
	}
	defer pool.Close()
	store := idemstore.New(pool, 0)
	if err := store.CheckSchema(ctx); err != nil {
		return err
	}
	conn, err := keepNATS(ctx, cmd, "settle-cloudevents", config.Logger)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	bridge, err := consumer.NewBridge(pool, js, config)
	if err == nil {
		probes.readyWhen(func() error { return errors.Join(bridge.Ready(), answers(pool)) })
		err = bridge.Run(ctx)
	}
	if err != nil {
		return wrongUse("%w", err) // it waits for everything but settings that cannot work
	}
	return nil
}

// answers asks the database, whose loss a bridge, which needs it for refusals only, and the screen might not notice for long.
func answers(pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("database does not answer: %w", err)
	}
	return nil
}

func bridgeConfig(cmd *cli.Command) (c consumer.BridgeConfig, err error) {
	c = consumer.BridgeConfig{Subjects: cmd.StringSlice("subject"), Durable: cmd.String("durable"), MaxBody: cmd.Int("max-body"),
		ProofRetention: cmd.Duration("proof-retention"), ReplayHorizon: cmd.Duration("replay-horizon"),
		KeepUnmapped: cmd.String("unmapped") == unmappedRefuse, Logger: newLog(cmd)}
	if c.Stream, err = needed(cmd, "stream", variableOf("stream")); err != nil {
		return c, err
	}
	if c.Since, err = since(cmd.String("since"), time.Now()); err != nil {
		return c, wrongUse("--since (%s): %w", variableOf("since").Key(), err)
	}
	c.Kinds, err = mapping(cmd)
	return c, err
}

// mapping reads --map: the kind of each type.
func mapping(cmd *cli.Command) (map[string]consumer.Definition, error) {
	known, err := knownKinds(cmd)
	if err != nil {
		return nil, err
	}
	flag := fmt.Sprintf("--map (%s)", variableOf("map").Key())
	kinds := map[string]consumer.Definition{}
	for _, pair := range cmd.StringSlice("map") {
		eventType, kind, ok := strings.Cut(pair, "=")
		switch {
		case !ok || eventType == "":
			return nil, wrongUse("%s: %q is not TYPE=KIND%s", flag, pair, hint(cmd))
		case known[kind] == nil:
			return nil, wrongUse("%s: this build knows no kind %q; known are %s", flag, kind, strings.Join(sortedNames(known), ", "))
		case kinds[eventType] != nil:
			return nil, wrongUse("%s: type %q is mapped twice", flag, eventType)
		}
		kinds[eventType] = known[kind]
	}
	if len(kinds) == 0 {
		return nil, wrongUse("%s is not set%s", flag, hint(cmd))
	}
	return kinds, nil
}
