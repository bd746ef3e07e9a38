package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// Gauges about what all workers share are read by one goroutine per process, however many look at them and however often. A
// reading that fails leaves nothing behind: a number that was true before the database went away would be taken for one that
// is true now.

const (
	measureEvery  = 10 * time.Second
	measureSpread = measureEvery / 10 // by which a pause differs from that at most
	measureLimit  = 3 * time.Second   // for all answers of one server
)

// shared is what all workers share, as it was read last; nil: it could not be.
type shared struct {
	store *idemstore.Store
	js    jetstream.JetStream // nil: the stream is not looked at
	kinds []string
	log   *slog.Logger

	table  atomic.Pointer[idemstore.Census]
	stream atomic.Pointer[streamCensus]
	silent map[string]bool // what could not be read the last time, and was told; of measure alone
}

// streamCensus is what the job stream holds for nobody in particular yet.
type streamCensus struct {
	undelivered map[string]uint64 // by kind
	unrouted    uint64
}

// measure reads until ctx ends.
func (s *shared) measure(ctx context.Context) {
	defer s.table.Store(nil)
	defer s.stream.Store(nil)
	atOwnMoments(ctx, func() {
		s.table.Store(readGauges(ctx, s, "table", s.store.Census))
		if s.js != nil {
			s.stream.Store(readGauges(ctx, s, "stream", s.streamCensus))
		}
	})
}

// atOwnMoments reads at once, and then about every measureEvery until ctx ends. Workers that were started together part after
// the first reading, and stay apart: Postgres is not asked to count the same tasks twenty times in one moment.
func atOwnMoments(ctx context.Context, read func()) {
	pause := time.Duration(rand.Float64() * float64(measureEvery))
	for ctx.Err() == nil {
		read()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = measureEvery - measureSpread + time.Duration(rand.Float64()*2*float64(measureSpread))
	}
}

// readGauges is nil if f fails.
func readGauges[T any](ctx context.Context, s *shared, what string, f func(context.Context) (*T, error)) *T {
	limited, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	read, err := f(limited)
	if ctx.Err() == nil {
		s.tell(what, err)
	}
	if err != nil {
		return nil
	}
	return read
}

// tell says that gauges cannot be read any more, or again, once each.
func (s *shared) tell(what string, err error) {
	switch {
	case err != nil && !s.silent[what]:
		s.log.Info("gauges not read; they are left out until they can be", "of", what, "error", err)
	case err == nil && s.silent[what]:
		s.log.Info("gauges are read again", "of", what)
	}
	if s.silent == nil {
		s.silent = map[string]bool{}
	}
	s.silent[what] = err != nil
}

func (s *shared) streamCensus(ctx context.Context) (*streamCensus, error) {
	stream, err := s.js.Stream(ctx, jobStream)
	if err != nil {
		return nil, err
	}
	c := &streamCensus{}
	if c.undelivered, err = undelivered(ctx, stream, s.kinds); err != nil {
		return nil, err
	}
	strays, err := unroutedOf(ctx, stream, 0)
	for _, stray := range strays {
		c.unrouted += stray.Count
	}
	return c, err
}

func undelivered(ctx context.Context, stream jetstream.Stream, kinds []string) (n map[string]uint64, err error) {
	n = map[string]uint64{}
	for _, kind := range kinds {
		if n[kind], err = undeliveredOf(ctx, stream, kind); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// undeliveredOf counts the jobs of a kind that no worker was given. Where no worker ever was, those are all.
func undeliveredOf(ctx context.Context, stream jetstream.Stream, kind string) (n uint64, err error) {
	cons, err := stream.Consumer(ctx, consumerName(kind))
	if err == nil {
		return cons.CachedInfo().NumPending, nil
	}
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject(kind)))
	if err != nil {
		return 0, err
	}
	for _, count := range info.State.Subjects {
		n += count
	}
	return n, nil
}

// show shows what could be read.
func (s *shared) show(w watcher) {
	s.showTable(w)
	s.showStream(w)
}

// showTable shows the tasks that are not over, of the kinds that are served here, and the outbox.
func (s *shared) showTable(w watcher) {
	c := s.table.Load()
	if c == nil {
		return
	}
	for _, kind := range s.kinds {
		showTasks(w, kind, c)
	}
	for stream, rows := range map[string]idemstore.Pile{jobStream: c.OutboxJobs, eventStream: c.OutboxEvents} {
		w.see(metricRows, float64(rows.Count), stream)
		w.see(metricLag, rows.Oldest.Seconds(), stream)
	}
}

// showTasks shows where the tasks of a kind stand. Of what a census that was cut short has not seen it says nothing: zero would
// be a lie.
func showTasks(w watcher, kind string, c *idemstore.Census) {
	open := c.Open[kind]
	for _, x := range []struct {
		status idemstore.Status
		pile   idemstore.Pile
		cut    bool
		parts  map[string]int // of the backlog
	}{
		{idemstore.Started, open.Started, c.OpenCut, map[string]int{"in_flight": open.Held, "waiting": open.Started.Count - open.Held}},
		{idemstore.Unknown, open.Unknown, c.OpenCut, map[string]int{"unknown": open.Unknown.Count}},
		{idemstore.NeedsReview, open.Parked, c.ParkedCut, map[string]int{"parked": open.Parked.Count}},
	} {
		if x.cut && x.pile.Count == 0 {
			continue
		}
		for part, n := range x.parts {
			w.see(metricBacklog, float64(n), kind, part)
		}
		w.see(metricTasks, float64(x.pile.Count), kind, string(x.status))
		w.see(metricAge, x.pile.Oldest.Seconds(), kind, string(x.status))
	}
}

func (s *shared) showStream(w watcher) {
	c := s.stream.Load()
	if c == nil {
		return
	}
	for kind, n := range c.undelivered {
		w.see(metricBacklog, float64(n), kind, "undelivered")
	}
	w.see(metricStray, float64(c.unrouted))
}
