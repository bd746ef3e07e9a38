package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
)

const (
	adminReadLimit  = 10 * time.Second // for a whole request
	adminWriteLimit = 30 * time.Second // for an answer, its queries included
	adminIdleLimit  = 2 * time.Minute
)

func adminCommand() *cli.Command {
	return &cli.Command{
		Name:  "admin",
		Usage: "serve the support screen: find a task, read what became of it, see what waits for people",
		Description: `One box finds a task by customer, order, external reference, key, request id, task id or trace id. The screen only
reads. With NATS it also looks for messages that nobody is given. Takes the flags and variables of settle work that
shape a kind, so that it says of kinds what a worker with the same settings does. The JSON API is below /api/.
It has no sign-in yet, so it listens to this host alone.`,
		Flags:    adminFlags(),
		Commands: []*cli.Command{adminUserCommand()},
		Action:   action(0, 0, serveAdmin),
	}
}

func adminFlags() []cli.Flag {
	flags := append([]cli.Flag{databaseFlag()}, natsFlags()...)
	flags = append(flags, kindFlags()...)
	return append(flags,
		stringFlag("admin-addr", "`HOST:PORT` of the screen, on the loopback interface", "127.0.0.1:8088"),
		stringFlag("trace-url", "`URL` of a trace with {trace_id} in it, http://jaeger:16686/trace/{trace_id}: trace ids become links", ""),
		durationFlag("recover-after", "age from which a task that is not settled is said to run long; at least 1s", defaults.RecoverAfter, time.Second),
		logFlag(),
	)
}

func serveAdmin(ctx context.Context, cmd *cli.Command) error {
	log := newLog(cmd)
	addr := cmd.String("admin-addr")
	if err := onLoopback(addr); err != nil {
		return wrongUse("--admin-addr (%s): %w", variableOf("admin-addr").Key(), err)
	}
	kinds, err := adminKinds(cmd)
	if err != nil {
		return err
	}
	pool, err := openPool(ctx, cmd, "settle-admin", true, log)
	if err != nil {
		return stopped(ctx, err)
	}
	defer pool.Close()
	store := idemstore.New(pool, time.Second) // no lease is taken here
	if err := store.CheckSchema(ctx); err != nil {
		return stopped(ctx, err)
	}
	strays, closeNATS, err := straysOf(cmd)
	if err != nil {
		return err
	}
	defer closeNATS()
	screen, err := admin.New(admin.Config{Store: store, Kinds: kinds, TraceURL: cmd.String("trace-url"),
		LongAfter: cmd.Duration("recover-after"), Strays: strays, Logger: log})
	if err != nil {
		return wrongUse("%w; --trace-url is %s", err, variableOf("trace-url").Key())
	}
	return serveScreen(ctx, addr, adminMux(screen, pool.Ping), log)
}

// onLoopback refuses an address that other hosts reach.
func onLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("must be HOST:PORT")
	}
	if !isLoopback(host) {
		return errors.New("must be on the loopback interface (127.0.0.1, [::1] or localhost): nobody signs in to this screen yet")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// straysOf finds messages that nobody is given; nil where no NATS is named.
func straysOf(cmd *cli.Command) (find func(context.Context, int) ([]consumer.Unrouted, error), closeAll func(), err error) {
	if cmd.String("nats-url") == "" {
		return nil, func() {}, nil
	}
	conn, err := connectNATS(cmd, "settle-admin")
	if err != nil {
		return nil, nil, err
	}
	js, err := openJetStream(conn)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return func(ctx context.Context, limit int) ([]consumer.Unrouted, error) {
		found, err := consumer.FindUnrouted(ctx, js, limit)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil // nothing was ever published
		}
		return found, err
	}, conn.Close, nil
}

// adminMux adds to the screen what a supervisor asks. What names this host by a name of its own is turned away: a page of
// somebody else could reach the loopback interface that way.
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
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !isLoopback(host) {
			http.Error(w, "this screen is for this host only", http.StatusForbidden)
			return
		}
		screen.ServeHTTP(w, r)
	})
	return mux
}

// serveScreen serves until ctx ends; requests under way get a second.
func serveScreen(ctx context.Context, addr string, handler http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return wrongUse("--admin-addr (%s): %w", variableOf("admin-addr").Key(), err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: httpReadHeader, ReadTimeout: adminReadLimit, WriteTimeout: adminWriteLimit,
		IdleTimeout: adminIdleLimit, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.InfoContext(ctx, "the support screen listens", "url", "http://"+listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("serve the support screen: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpStopLimit)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close()
	}
	<-served
	return nil
}
