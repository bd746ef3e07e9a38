package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

func migrateCommand() *cli.Command {
	return &cli.Command{
		Name:  "migrate",
		Usage: "create or update the database schema",
		Description: `Running it again changes nothing. Workers may run meanwhile.

With --streams it also makes the streams JOBS and EVENTS and the consumers of all kinds, or of those named with --kind, where
they are missing, as a worker with the same settings does: then workers need no permission to make them.`,
		Flags: append(append([]cli.Flag{databaseFlag(),
			&cli.BoolFlag{Name: "streams", Usage: "also make streams and consumers; needs NATS"}}, natsFlags()...),
			kindFlag(), ackWaitFlag(), maxAckPendingFlag(), replicasFlag(), logFlag()),
		Action: action(0, 0, migrate),
	}
}

func migrate(ctx context.Context, cmd *cli.Command) error {
	config, err := postgresConfig(cmd, "settle-migrate")
	if err != nil {
		return err
	}
	if cmd.Bool("streams") { // what is wrong with them is said before anything is done
		if _, _, err := natsOptions(cmd, ""); err != nil {
			return err
		}
	}
	prepareNothing(cmd, config)
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := idemstore.Migrate(ctx, conn); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := fmt.Fprintf(cmd.Root().Writer, "database schema is at version %d\n", settle.SchemaVersion); err != nil || !cmd.Bool("streams") {
		return err
	}
	return makeStreams(ctx, cmd, config)
}

// makeStreams makes what workers otherwise make when they start, and says so where that hides a loss.
func makeStreams(ctx context.Context, cmd *cli.Command, config *pgxpool.Config) error {
	kinds, err := chosenKinds(cmd, func(o handlerOptions) ([]consumer.Definition, error) {
		return definitions(handlerOptions{kindsFile: o.kindsFile}) // their consumers need no provider
	})
	if err != nil {
		return err
	}
	conn, err := connectNATS(cmd, "settle-migrate")
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	log := newLog(cmd)
	lost, err := jobsAreLost(ctx, js, config)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	err = consumer.EnsureConsumers(ctx, js, consumer.Config{AckWait: cmd.Duration("ack-wait"),
		MaxAckPending: cmd.Int("max-ack-pending"), Replicas: cmd.Int("replicas"), Logger: log}, kinds...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if lost {
		log.WarnContext(ctx, "the stream JOBS was gone, though there are tasks, and is new now: jobs that had not begun are lost, "+
			"and only their publishers know them. Let them publish again what they published since its last backup: repeats are free. "+
			"Workers settle the tasks that had begun")
	}
	_, err = fmt.Fprintln(cmd.Root().Writer, "streams and consumers are there")
	return err
}

// jobsAreLost reports whether there are tasks, and not the stream that their jobs came with.
func jobsAreLost(ctx context.Context, js jetstream.JetStream, config *pgxpool.Config) (bool, error) {
	if _, err := js.Stream(ctx, "JOBS"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil // another error is told by whoever makes the stream
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer pool.Close()
	return idemstore.New(pool, 0).HasTasks(ctx)
}
