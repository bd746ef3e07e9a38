package consumer_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
)

// serve is the main program of a service. `settle migrate` has made the tables before.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}

	api := &Client{BaseURL: os.Getenv("PROVIDER_URL"), HTTP: &http.Client{Transport: &consumer.Transport{}}}
	engine, err := consumer.New(pool, js, consumer.Config{Slots: 32}, charge(api))
	if err != nil {
		return err // names every field and kind that is wrong
	}
	return engine.Run(ctx) // until ctx ends; then it drains
}

// A service of one kind. The first signal drains: jobs that run get Config.DrainTimeout, and nothing new begins.
func ExampleNew() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err) // and exit with 1
	}
}
