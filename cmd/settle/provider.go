package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/telemetry"
)

func providerCommand() *cli.Command {
	return &cli.Command{
		Name:  "provider",
		Usage: "serve the stand-in provider: charges and reports with idempotency keys, and faults on demand",
		Description: "For demos, labs and tests. Whoever reaches its address can set faults: keep it on loopback. " +
			"It never touches the tables of settle work.",
		Flags: []cli.Flag{
			databaseFlag(),
			stringFlag("provider-addr", "`HOST:PORT` to listen on", provider.DefaultAddr),
			logFlag(), hashKeysFlag(),
		},
		Action: action(0, 0, runProvider),
	}
}

func runProvider(ctx context.Context, cmd *cli.Command) error {
	log := newLog(cmd)
	tracing, err := telemetry.Setup(ctx, "settle-provider", log, telemetryOptions(cmd)...)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	pool, err := openPool(ctx, cmd, "settle-provider", true, log)
	if err != nil {
		return stopped(ctx, err)
	}
	defer pool.Close()
	server := provider.New(pool, provider.Options{Logger: log, Wrap: provider.Trace(tracing.TracerProvider())})
	url, err := server.Listen(cmd.String("provider-addr"))
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "the stand-in provider listens", "url", url)
	return server.Run(ctx)
}
