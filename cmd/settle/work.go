package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/build"
	"github.com/settlemq/settle/internal/heap"
	"github.com/settlemq/settle/internal/telemetry"
)

func workCommand() *cli.Command {
	return &cli.Command{
		Name:  "work",
		Usage: "run a worker: take jobs, make their effects happen once, save, ack",
		Description: `Waits for Postgres and NATS where they are down, now and later. The first SIGINT or SIGTERM drains: running
jobs get --drain-timeout, and the exit code is 0. The second one ends the process at once; whatever was under
way then is taken up by another worker.

It looks at settings and servers first, as settle doctor does: an error ends it with 2, warnings are logged.

Traces go where the OTEL_EXPORTER_OTLP_* variables say. --http-addr shows metrics to Prometheus; they are also sent over
OTLP where OTEL_METRICS_EXPORTER is otlp.`,
		Flags:  workFlags(),
		Action: action(0, 0, work),
	}
}

func work(ctx context.Context, cmd *cli.Command) error { return workWith(ctx, cmd, ordinary) }

// makings are the parts of a worker that the demo's workers have in another form.
type makings struct {
	kinds     func(handlerOptions) ([]consumer.Definition, error)
	jetStream func(jetstream.JetStream) jetstream.JetStream
	config    func(consumer.Config) consumer.Config
}

var ordinary = makings{
	kinds:     definitions,
	jetStream: func(js jetstream.JetStream) jetstream.JetStream { return js },
	config:    func(c consumer.Config) consumer.Config { return c },
}

func workWith(ctx context.Context, cmd *cli.Command, m makings) error {
	heap.Roomy()
	log := newLog(cmd)
	if err := checkWork(cmd); err != nil {
		return err
	}
	kinds, err := callingKinds(cmd, m.kinds)
	if err != nil {
		return err
	}
	alerts, err := readAlerting(cmd)
	if err != nil {
		return err
	}
	defer alerts.close()
	tracing, err := telemetry.Setup(ctx, "settle-worker", log, telemetryOptions(cmd)...)
	if err != nil {
		return wrongUse("%w", err)
	}
	metrics, err := telemetry.SetupMetrics(ctx, "settle-worker", log)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer shutDown(context.WithoutCancel(ctx), tracing, metrics)
	probes, err := serveProbes(cmd, metrics.Handler(), log)
	if err != nil {
		return err
	}
	defer probes.stop()

	config := m.config(engineConfig(cmd))
	config.Logger, config.TracerProvider, config.MeterProvider = log, tracing.TracerProvider(), metrics.MeterProvider()
	log.InfoContext(ctx, "starting", "version", build.Read().Version, "kinds", len(kinds))
	return stopped(ctx, connectAndRun(ctx, cmd, config, kinds, probes, m, alerts))
}

// connectAndRun owns the two connections. The engine has drained when they are closed.
func connectAndRun(ctx context.Context, cmd *cli.Command, config consumer.Config, kinds []consumer.Definition, probes *probes, m makings, alerts alerting) error {
	log := config.Logger
	pool, err := openPool(ctx, cmd, "settle-worker", true, log)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := keepNATS(ctx, cmd, "settle-worker", log)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	if err := examineStart(ctx, cmd, pool, js, config, kinds); err != nil {
		return err
	}
	config.Notify = alerts.notifier(conn, log)
	return runEngine(ctx, pool, m.jetStream(js), config, kinds, probes)
}

func runEngine(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, config consumer.Config, kinds []consumer.Definition, probes *probes) error {
	engine, err := consumer.New(pool, js, config, kinds...)
	if err != nil {
		return wrongUse("%w", err)
	}
	probes.readyWhen(engine.Ready)
	switch err = engine.Run(ctx); {
	case err == nil:
		config.Logger.InfoContext(ctx, "stopped")
	case errors.Is(err, consumer.ErrProofAge):
		return wrongUse("--proof-retention (%s): %w", variableOf("proof-retention").Key(), err)
	case ctx.Err() == nil:
		return wrongUse("%w", err) // it waits for everything but settings that cannot work
	}
	return err
}

// checkWork finds settings that cannot work before anything is started.
func checkWork(cmd *cli.Command) error {
	if _, err := postgresConfig(cmd, ""); err != nil {
		return err
	}
	if _, _, err := natsOptions(cmd, ""); err != nil {
		return err
	}
	if err := needProvider(cmd); err != nil {
		return err
	}
	return checkOrder(cmd)
}

// engineConfig is everything but logger and telemetry.
func engineConfig(cmd *cli.Command) consumer.Config {
	return consumer.Config{
		Slots:          cmd.Int("slots"),
		AckWait:        cmd.Duration("ack-wait"),
		Lease:          cmd.Duration("lease"),
		Policy:         policy(cmd),
		MaxBody:        cmd.Int("max-body"),
		MaxAckPending:  cmd.Int("max-ack-pending"),
		Replicas:       cmd.Int("replicas"),
		ProofRetention: cmd.Duration("proof-retention"),
		ReplayHorizon:  cmd.Duration("replay-horizon"),
		DrainTimeout:   cmd.Duration("drain-timeout"),
		RecoverEvery:   cmd.Duration("recover-every"),
		RecoverAfter:   cmd.Duration("recover-after"),
		Breaker:        breakerOf(cmd),
		LinkTraces:     linksTraces(cmd),

		EventSource:     cmd.String("event-source"),
		EventTypePrefix: cmd.String("event-type-prefix"),
	}
}

// stopped takes an error that is only the end of ctx for what it is: the orderly end that was asked for.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}
