package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
)

// Stage is what one measurement has for itself: a database and a kind with its consumer.
type Stage struct {
	Jobs  int // to be done
	Slots int
	Kind  string // nobody else has it
	URL   string // of its database, which has Settle's tables
	Pool  *pgxpool.Pool
	JS    jetstream.JetStream

	servers     *servers
	connections int
	database    string
	keys        func(i int) string
	template    string // a database of which its own is a copy; empty: its own is new
	rows        int    // finished or unknown ones that are there before
	waits       *waits
	live        func(done, of int, took time.Duration)
	asked       *lookups
	queued      *atomic.Int64 // messages so far
	emptied     time.Time     // when its last job was acked, and the last event confirmed
}

// lookups are those of a measurement.
type lookups struct {
	n     atomic.Int64
	first atomic.Pointer[time.Time]
}

func (l *lookups) one() {
	if l.n.Add(1) == 1 {
		at := time.Now()
		l.first.Store(&at)
	}
}

const poolSize = 64 // connections, unless a contestant asks for others

func (s *servers) newStage(c *Contestant) *Stage {
	s.made++
	st := &Stage{Jobs: c.Jobs, Slots: c.Slots, connections: c.Connections, Kind: fmt.Sprintf("%s.%s_%d", s.name, c.Name, s.made), JS: s.js,
		servers: s, database: fmt.Sprintf("settle_%s_%d", s.name, s.made), keys: c.Keys, asked: &lookups{}, queued: new(atomic.Int64)}
	if st.keys == nil {
		st.keys = func(i int) string { return fmt.Sprintf("k%07d", i) }
	}
	return st
}

// fill makes the rows of a contestant. Its database is kept until the run is over, for copies.
func (s *servers) fill(ctx context.Context, c *Contestant, live func(done, of int, took time.Duration)) (st *Stage, err error) {
	st = s.newStage(c)
	st.live = live
	s.closers = append(s.closers, func() error { return st.drop(context.WithoutCancel(ctx)) })
	defer func() { err = errors.Join(err, st.unqueue(context.WithoutCancel(ctx))) }()
	if err := st.open(ctx); err != nil {
		return nil, err
	}
	defer st.Pool.Close() // nobody may be connected to what is copied
	return st, c.Fill(ctx, st)
}

// copyOf makes it one whose rows are there already: they are of its kind.
func (s *Stage) copyOf(filled *Stage) {
	s.Kind, s.template, s.rows = filled.Kind, filled.database, filled.rows
}

func (s *Stage) open(ctx context.Context) (err error) {
	if err := s.servers.create(ctx, s.database, s.template); err != nil {
		return fmt.Errorf("make a database (the role needs CREATEDB): %w", err)
	}
	if s.URL, err = devenv.DatabaseURL(s.servers.databaseURL, s.database); err != nil {
		return err
	}
	if s.template == "" {
		if err := s.makeTables(ctx); err != nil {
			return err
		}
	}
	config, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return errors.New("the database URL cannot be read; it is not shown because it may hold a password")
	}
	config.MaxConns = int32(s.connections) //nolint:gosec // not so many
	s.Pool, err = pgxpool.NewWithConfig(ctx, config)
	return err
}

func (s *Stage) makeTables(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := idemstore.Migrate(ctx, conn); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, handTable)
	return err
}

// close takes away what the measurement has made.
func (s *Stage) close(ctx context.Context) error {
	if s.Pool != nil {
		s.Pool.Close()
	}
	return errors.Join(s.drop(ctx), s.unqueue(ctx))
}

func (s *Stage) drop(ctx context.Context) error {
	return s.servers.exec(ctx, "drop database if exists "+s.database+" with (force)")
}

// unqueue takes its consumer and what is left of its messages out of the stream.
func (s *Stage) unqueue(ctx context.Context) error {
	stream, err := s.JS.Stream(ctx, jobStream)
	if err != nil {
		return err
	}
	err = stream.DeleteConsumer(ctx, s.Durable())
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = nil
	}
	return errors.Join(err, stream.Purge(ctx, jetstream.WithPurgeSubject(s.Subject())))
}

// Subject is where jobs of the measurement are published.
func (s *Stage) Subject() string { return "jobs." + s.Kind }

// event is where jobs of the measurement emit.
func (s *Stage) event() string { return "events." + s.Kind }

// Durable is the name of its consumer, which is removed at the end, whoever has made it.
func (s *Stage) Durable() string { return strings.ReplaceAll(s.Kind, ".", "-") }

// Consumer makes the durable consumer of the measurement, or finds it: as an engine makes its own.
func (s *Stage) Consumer(ctx context.Context) (jetstream.Consumer, error) {
	return s.JS.CreateConsumer(ctx, jobStream, jetstream.ConsumerConfig{Durable: s.Durable(), FilterSubject: s.Subject(),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: 20000})
}

// Queue publishes the jobs and waits until the server has confirmed all. Options go with each message.
func (s *Stage) Queue(ctx context.Context, with ...func(i int) jetstream.PublishOpt) error {
	if _, err := s.Consumer(ctx); err != nil { // first: a message that no consumer is given would count as a stray
		return err
	}
	for i := range s.Jobs {
		options := []jetstream.PublishOpt{jetstream.WithStallWait(time.Minute)}
		for _, o := range with {
			options = append(options, o(i))
		}
		if _, err := s.JS.PublishAsync(s.Subject(), s.Body(i), options...); err != nil {
			return err
		}
	}
	s.queued.Add(int64(s.Jobs))
	select {
	case <-s.JS.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		return fmt.Errorf("%d publishes are not confirmed", s.JS.PublishAsyncPending())
	}
}

// Body is the payload of a job: 256 bytes.
func (s *Stage) Body(i int) []byte { return bodyOf(s.keys(i)) }

func bodyOf(key string) []byte {
	return fmt.Appendf(nil, `{"id":"%s","pad":"%0*d"}`, key, max(234-len(key), 1), 0)
}

// AwaitAcked waits until all messages are acked, and notes when.
func (s *Stage) AwaitAcked(ctx context.Context) error {
	return s.Await(ctx, s.Jobs, func(ctx context.Context) (left int, err error) {
		c, err := s.JS.Consumer(ctx, jobStream, s.Durable())
		if err != nil {
			return 0, err
		}
		// The consumer hears of a stored message a moment later, and NumPending is 0 until then.
		info := c.CachedInfo()
		coming := s.queued.Load() - int64(info.Delivered.Consumer)                //nolint:gosec // not so many
		return int(max(coming, int64(info.NumPending))) + info.NumAckPending, nil //nolint:gosec // not so many
	})
}

const (
	lookEvery = 5 * time.Millisecond
	tellEvery = 100 * time.Millisecond
)

// Await waits until nothing is left of so many, and notes when. It asks every 5 ms.
func (s *Stage) Await(ctx context.Context, of int, left func(context.Context) (int, error)) error {
	began := time.Now()
	var told time.Time
	for {
		n, err := left(ctx)
		if err != nil {
			return err
		}
		if s.emptied = time.Now(); n == 0 {
			return nil
		}
		if s.emptied.Sub(told) > tellEvery {
			told = s.emptied
			s.live(of-n, of, s.emptied.Sub(began))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// Rate is a Race: f returns after AwaitAcked or Await has; the figure is jobs per second from its begin to that moment.
func Rate(f func(context.Context, *Stage) error) func(context.Context, *Stage) ([]float64, error) {
	return func(ctx context.Context, s *Stage) ([]float64, error) {
		began := time.Now()
		err := f(ctx, s)
		return []float64{float64(s.Jobs) / s.emptied.Sub(began).Seconds()}, err
	}
}

// newName is one that no other run has: what it makes in servers begins with it.
func newName() string { return fmt.Sprintf("bench_%06d", rand.IntN(1_000_000)) } //nolint:gosec // a name
