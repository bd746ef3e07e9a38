package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
	"github.com/settlemq/settle/internal/admin/access"
	"github.com/settlemq/settle/internal/telemetry"
)

func adminCommand() *cli.Command {
	return &cli.Command{
		Name:  "admin",
		Usage: "serve the support screen: find a task, read what became of it, see what waits for people, and act",
		Description: `One box finds a task by customer, order, external reference, key, request id, task id or trace id. Operators act from
there, if the provider is known: ask, retry, send again, resolve, supersede, cancel, note, recover, pause; each act is done once,
needs a reason and is kept with the name. With NATS the screen also looks for messages that nobody is given, and publishes
refused ones again. Takes the flags and variables of settle work that
shape a kind, so that it says of kinds what a worker with the same settings does. The JSON API is below /api/. --http-addr shows
to Prometheus what waits, also where no worker runs; a scaler of workers looks there.
Nobody comes in without signing in, by the users' file, a token or a proxy.`,
		Flags:    adminFlags(),
		Commands: []*cli.Command{adminUserCommand()},
		Action:   action(0, 0, serveAdmin),
	}
}

func adminFlags() []cli.Flag {
	flags := append([]cli.Flag{databaseFlag()}, natsFlags()...)
	flags = append(flags, kindFlags()...)
	flags = append(flags, accessFlags()...)
	flags = append(flags, httpFlags("127.0.0.1:8086")...)
	return append(flags,
		stringFlag("trace-url", "`URL` of a trace with {trace_id} in it, http://jaeger:16686/trace/{trace_id}: trace ids become links", ""),
		durationFlag("recover-after", "age from which a task that is not settled is said to run long; at least 1s", defaults.RecoverAfter, time.Second),
		hashKeysFlag(), logFlag(),
	)
}

func serveAdmin(ctx context.Context, cmd *cli.Command) error {
	log := newLog(cmd)
	let, err := openAccess(cmd, log)
	if err != nil {
		return err
	}
	server, err := let.Listen(ctx, cmd.String("admin-addr"))
	if err != nil {
		return wrongUse("--admin-addr (%s): %w", variableOf("admin-addr").Key(), err)
	}
	defer server.Close()
	kinds, err := adminKinds(cmd)
	if err != nil {
		return err
	}
	pool, err := openPool(ctx, cmd, "settle-admin", true, log)
	if err != nil {
		return stopped(ctx, err)
	}
	defer pool.Close()
	store := idemstore.New(pool, 0)
	if err := store.CheckSchema(ctx); err != nil {
		return stopped(ctx, err)
	}
	js, closeNATS, err := adminStream(cmd)
	if err != nil {
		return err
	}
	defer closeNATS()
	stop, err := serveBacklog(ctx, cmd, pool, js, kinds, log)
	if err != nil {
		return err
	}
	defer stop()
	tracing, err := telemetry.Setup(ctx, "settle-operator", log, telemetryOptions(cmd)...)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	acts, err := newActs(cmd, actParts{pool, store, js, log, tracing.TracerProvider()})
	if err != nil {
		return err
	}
	defer closeActs(ctx, acts)
	screen, err := admin.New(admin.Config{Store: store, Kinds: kinds, TraceURL: cmd.String("trace-url"),
		LongAfter: cmd.Duration("recover-after"), Strays: straysOf(js), Undelivered: undeliveredOf(js, kinds), Logger: log, Actor: actorOf, Acts: acts})
	if err != nil {
		return wrongUse("%w; --trace-url is %s", err, variableOf("trace-url").Key())
	}
	log.InfoContext(ctx, "the support screen listens", "url", server.URL())
	return server.Run(ctx, adminMux(screen, pool.Ping))
}

// serveBacklog shows what waits to Prometheus, whether or not a worker runs, until stop.
func serveBacklog(ctx context.Context, cmd *cli.Command, pool *pgxpool.Pool, js jetstream.JetStream, kinds []admin.Kind, log *slog.Logger) (stop func(), err error) {
	metrics, err := telemetry.SetupMetrics(ctx, "settle-operator", log)
	if err != nil {
		return nil, wrongUse("%w", err)
	}
	probes, err := serveProbes(cmd, metrics.Handler(), log)
	if err != nil {
		return nil, err
	}
	probes.readyWhen(func() error { return answers(pool) })
	c := consumer.Config{Logger: log, MeterProvider: metrics.MeterProvider()}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	var measuring sync.WaitGroup
	measuring.Go(func() {
		if err := consumer.ExportBacklog(ctx, pool, js, c, namesOf(kinds)...); err != nil {
			log.WarnContext(ctx, "the backlog is not measured", "error", err)
		}
	})
	return func() {
		end()
		measuring.Wait()
		probes.stop()
		metrics.Shutdown(ctx)
	}, nil
}

// actorOf is who signed in.
func actorOf(r *http.Request) (name string, operator bool) {
	actor := access.From(r.Context())
	return actor.Name, actor.MayAct()
}

// closeActs gives acts that are under way as long as workers give their jobs.
func closeActs(ctx context.Context, acts *admin.Acts) {
	if acts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaults.DrainTimeout)
	defer cancel()
	acts.Close(ctx)
}

// adminStream is JetStream; nil where no NATS is named.
func adminStream(cmd *cli.Command) (js jetstream.JetStream, closeAll func(), err error) {
	if cmd.String("nats-url") == "" {
		return nil, func() {}, nil
	}
	conn, err := connectNATS(cmd, "settle-admin")
	if err != nil {
		return nil, nil, err
	}
	if js, err = openJetStream(conn); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return js, conn.Close, nil
}

// straysOf finds messages that nobody is given; nil without NATS.
func straysOf(js jetstream.JetStream) func(context.Context, int) ([]consumer.Unrouted, error) {
	if js == nil {
		return nil
	}
	return func(ctx context.Context, limit int) ([]consumer.Unrouted, error) {
		found, err := consumer.FindUnrouted(ctx, js, limit)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil // nothing was ever published
		}
		return found, err
	}
}

// undeliveredOf counts what waits in the stream; nil without NATS.
func undeliveredOf(js jetstream.JetStream, kinds []admin.Kind) func(context.Context) (map[string]uint64, error) {
	if js == nil {
		return nil
	}
	return func(ctx context.Context) (map[string]uint64, error) {
		n, err := consumer.Undelivered(ctx, js, namesOf(kinds)...)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil // nothing was ever published
		}
		return n, err
	}
}

func namesOf(kinds []admin.Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// adminMux adds to the screen what a supervisor asks.
func adminMux(screen http.Handler, ping func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
		defer cancel()
		if ping(ctx) != nil {
			http.Error(w, "Postgres does not answer", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("/", screen)
	return mux
}
