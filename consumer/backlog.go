package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// Undelivered counts the jobs of each of these kinds that wait in the stream and were given to no worker yet. It takes one
// round trip per kind, and only looks. Without the stream JOBS it returns an error that wraps jetstream.ErrStreamNotFound.
func Undelivered(ctx context.Context, js jetstream.JetStream, kinds ...string) (map[string]uint64, error) {
	stream, err := js.Stream(ctx, jobStream)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", jobStream, err)
	}
	n, err := undelivered(ctx, stream, kinds)
	if err != nil {
		return nil, fmt.Errorf("look at consumers of stream %s: %w", jobStream, err)
	}
	return n, nil
}

// ExportBacklog shows, until ctx ends, what workers show of Postgres and JetStream: settle_backlog, settle_tasks,
// settle_oldest_seconds, settle_outbox_* and settle_unrouted_messages, of the kinds that are named. It is for a process that
// runs where no worker may: whoever starts workers when there is work has to see it before one runs.
//
// It reads about every 10 s and changes nothing. What cannot be read is left out, and the log is told, until it can be; a nil js leaves
// out what is in the stream. Of c only Logger, MeterProvider and Lease count. It blocks, and returns nil when ctx ends; an error
// says that the MeterProvider does not take the metrics.
func ExportBacklog(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, c Config, kinds ...string) error {
	c = c.withDefaults()
	m := newMeters(c.MeterProvider)
	m.watch(func(d Metric) bool { return d.shared })
	s := &shared{store: idemstore.New(pool, c.Lease), js: js, kinds: kinds, log: textualLog(c.Logger)}
	stop, err := m.observe(s.show)
	if err := errors.Join(m.err(), err); err != nil {
		return fmt.Errorf("export the backlog: %w", err)
	}
	defer stop()
	s.measure(ctx)
	return nil
}
