package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sethvargo/go-retry"
	"github.com/urfave/cli/v3"
)

const (
	poolSize     = 16 // connections, unless DATABASE_URL says pool_max_conns
	waitFirst    = 100 * time.Millisecond
	waitLongest  = 5 * time.Second
	remindEvery  = 30 * time.Second // between two log lines about a server that is still down
	pingDeadline = 5 * time.Second
)

// postgresConfig reads DATABASE_URL. Its error does not repeat the text, because a password cannot be told from
// the rest of what cannot be read.
func postgresConfig(cmd *cli.Command, application string) (*pgxpool.Config, error) {
	text, err := needed(cmd, "database-url", "DATABASE_URL")
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, wrongUse("--database-url (DATABASE_URL) is neither a postgres:// URL nor keyword=value pairs, " +
			"or a file it names cannot be read; it is not shown because it may hold a password")
	}
	if !strings.Contains(text, "pool_max_conns") {
		config.MaxConns = poolSize
	}
	parameters := config.ConnConfig.RuntimeParams
	if parameters["application_name"] == "" {
		parameters["application_name"] = application
	}
	return config, nil
}

// prepareNothing is for commands that run few statements once: behind a pooler a prepared one would be in the way of the
// next run of the command. It leaves the exec mode that DATABASE_URL names.
func prepareNothing(cmd *cli.Command, config *pgxpool.Config) {
	if !strings.Contains(cmd.String("database-url"), "default_query_exec_mode") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
}

// openPool returns a pool that has reached Postgres once. With wait it keeps trying while Postgres is down, and
// says so; otherwise the first failure is the answer. The caller closes the pool.
func openPool(ctx context.Context, cmd *cli.Command, application string, wait bool, log *slog.Logger) (*pgxpool.Pool, error) {
	config, err := postgresConfig(cmd, application)
	if err != nil {
		return nil, err
	}
	if !wait {
		prepareNothing(cmd, config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	ping := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pingDeadline)
		defer cancel()
		if err := pool.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return fmt.Errorf("%s:%d does not answer within %s; see that it runs and that DATABASE_URL leads to it",
			config.ConnConfig.Host, config.ConnConfig.Port, pingDeadline)
	}
	if wait {
		err = untilReady(ctx, log.With("url", maskURL(cmd.String("database-url"))), ping)
	} else {
		err = ping(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, postgresError(err)
	}
	return pool, nil
}

// postgresError makes wrong use of what will be refused again.
func postgresError(err error) error {
	err = fmt.Errorf("connect to Postgres: %w", err)
	if refusedForGood(err) {
		return &exitError{exitUsage, err}
	}
	return err
}

// refusedForGood reports whether Postgres answered that the login or the database is wrong (classes 28 and 3D), or a
// pooler that it does not take a parameter of DATABASE_URL. PgBouncer's code for that stands for passing troubles too.
func refusedForGood(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "28") || pg.Code == "3D000" ||
		pg.Code == "08P01" && strings.HasPrefix(pg.Message, "unsupported startup parameter"))
}

// untilReady tries until it works, ctx ends, or the answer is for good. It says that it waits at the first
// failure and every half minute, and that it is over if it had waited.
func untilReady(ctx context.Context, log *slog.Logger, try func(context.Context) error) error {
	backoff := retry.WithCappedDuration(waitLongest, retry.WithJitterPercent(20, retry.NewExponential(waitFirst)))
	var said time.Time
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		err := try(ctx)
		if err == nil || refusedForGood(err) || ctx.Err() != nil {
			return err
		}
		if time.Since(said) >= remindEvery {
			said = time.Now()
			log.WarnContext(ctx, "waiting for Postgres", "error", err)
		}
		return retry.RetryableError(err)
	})
	if err == nil && !said.IsZero() {
		log.InfoContext(ctx, "Postgres is there")
	}
	return err
}
