package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/idemstore"
)

func migrateCommand() *cli.Command {
	return &cli.Command{
		Name:        "migrate",
		Usage:       "create or update the database schema",
		Description: "Running it again changes nothing. Workers may run meanwhile.",
		Flags:       []cli.Flag{databaseFlag()},
		Action:      action(0, 0, migrate),
	}
}

func migrate(ctx context.Context, cmd *cli.Command) error {
	config, err := postgresConfig(cmd, "settle-migrate")
	if err != nil {
		return err
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
	_, err = fmt.Fprintf(cmd.Root().Writer, "database schema is at version %d\n", settle.SchemaVersion)
	return err
}
