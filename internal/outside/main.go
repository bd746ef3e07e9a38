// Command shop is a service of somebody else: a kind, a table and a connection pool of its own, and nothing of Settle
// but what is public. Its module path lies outside of Settle's, so the compiler sees to that.
//
//	shop order 18452 18453    publishes a parcel for each order
//	shop work                 books them until SIGINT or SIGTERM
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

//go:embed shop.sql
var tables string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 {
		return errors.New("usage: shop work | shop order ID [ID …]")
	}
	conn, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	kind := bookParcel(&courier{url: os.Getenv("COURIER_URL"), http: &http.Client{Transport: &consumer.Transport{}}})
	if args[0] == "order" {
		return order(ctx, js, kind, args[1:])
	}
	return work(ctx, js, kind)
}

// order publishes a job for each order. Where it is not known whether one arrived, the same command again is safe.
func order(ctx context.Context, js jetstream.JetStream, kind consumer.Kind[Parcel, Label], orders []string) error {
	if err := consumer.EnsureStreams(ctx, js, consumer.Config{}); err != nil {
		return err
	}
	for _, id := range orders {
		p, err := consumer.Publish(ctx, js, kind, Parcel{Order: id, Grams: 500})
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, p.Key, p.Outcome)
	}
	return nil
}

// work books parcels until ctx ends.
func work(ctx context.Context, js jetstream.JetStream, kinds ...consumer.Definition) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepare(ctx, pool); err != nil {
		return err
	}
	engine, err := consumer.New(pool, js, consumer.Config{Slots: 8, Logger: slog.Default()}, kinds...)
	if err != nil {
		return err
	}
	return engine.Run(ctx)
}

// prepare makes Settle's tables and our own.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	err := pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return idemstore.Migrate(ctx, c.Conn()) })
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, tables)
		return err
	})
}
