package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv"
)

// servers are shared by all measurements of a run.
type servers struct {
	name        string // of the run: all that it makes has a name that begins with it
	databaseURL string
	js          jetstream.JetStream
	made        int      // measurements
	ours        bool     // PostgreSQL was started for the run, so its processes are on this machine and do nothing else
	streams     []string // that the run has made
	closers     []func() error
}

const (
	jobStream   = "JOBS"
	eventStream = "EVENTS"
)

// open finds or starts the servers. What has been started is stopped by close, also after an error.
func (s *servers) open(ctx context.Context, o Options) error {
	s.name, s.databaseURL = newName(), o.DatabaseURL
	if s.databaseURL == "" {
		postgres, err := devenv.StartPostgres(ctx, devenv.PostgresOptions{Durable: true})
		if err != nil {
			return fmt.Errorf("%w (or set DATABASE_URL)", err)
		}
		s.closers = append(s.closers, postgres.Stop)
		s.databaseURL, s.ours = postgres.URL(), true
	}
	conn := o.Conn
	if conn == nil {
		var err error
		if conn, err = s.startNATS(); err != nil {
			return fmt.Errorf("%w (or set NATS_URL)", err)
		}
	}
	var err error
	if s.js, err = jetstream.New(conn); err != nil {
		return err
	}
	return s.openStreams(ctx)
}

func (s *servers) startNATS() (*nats.Conn, error) {
	server, err := devenv.StartNATS(devenv.NATSOptions{})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, server.Stop)
	conn, err := nats.Connect(server.URL())
	if err == nil {
		s.closers = append(s.closers, func() error { conn.Close(); return nil })
	}
	return conn, err
}

// openStreams makes the streams where they are missing: their subjects can be in no other stream of the account.
func (s *servers) openStreams(ctx context.Context) error {
	var missing []string
	for _, name := range []string{jobStream, eventStream} {
		_, err := s.js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	err := consumer.EnsureStreams(ctx, s.js, consumer.Config{Logger: quiet})
	s.streams = missing
	return err
}

// close takes away what the run has made and stops what it has started.
func (s *servers) close(ctx context.Context) error {
	var errs []error
	if s.js != nil {
		errs = append(errs, s.purgeEvents(ctx))
	}
	for _, name := range s.streams {
		errs = append(errs, s.removeStream(ctx, name))
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// events are the subjects of what the run's jobs emit.
func (s *servers) events() string { return "events." + s.name + ".>" }

func (s *servers) purgeEvents(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, eventStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(s.events()))
}

// removeStream deletes a stream of the run, unless somebody else has begun to use it.
func (s *servers) removeStream(ctx context.Context, name string) error {
	stream, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if state := stream.CachedInfo().State; state.Msgs > 0 || state.Consumers > 0 {
		return nil
	}
	return s.js.DeleteStream(ctx, name)
}

// exec runs a statement in the database that the URL names, outside of a transaction.
func (s *servers) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// create makes a database, as a copy of the template if one is named. Files are copied as such where the server lets one
// choose: by way of the WAL, millions of rows would fill it.
func (s *servers) create(ctx context.Context, database, template string) error {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	statement := "create database " + database
	if template != "" {
		var choice bool
		if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int >= 150000").Scan(&choice); err != nil {
			return err
		}
		statement += " template " + template
		if choice {
			statement += " strategy file_copy"
		}
	}
	_, err = conn.Exec(ctx, statement)
	return err
}

// version is that of PostgreSQL.
func (s *servers) version(ctx context.Context) (v string, err error) {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "show server_version").Scan(&v)
	return v, err
}

var quiet = slog.New(slog.DiscardHandler)
