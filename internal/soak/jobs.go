package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/consumer"
)

const (
	publishers = 16
	backlog    = 8000            // messages in the stream, so that faults meet a steady state
	enough     = 0.9             // of the jobs are done before it becomes calm
	restLimit  = 5 * time.Minute // without any progress
)

func order(seed uint64, i int) string { return fmt.Sprintf("%d-%d", seed, i) }

func body(seed uint64, i int) []byte {
	return fmt.Appendf(nil, `{"order_id":%q,"customer_id":"c_%d","amount":%d,"currency":"EUR"}`, order(seed, i), i%97, 100+i%900)
}

// contact is an event of the same number about one of a few contacts, each of which changes twenty times. Events of a
// contact come close to each other and out of order.
func contact(seed uint64, i, jobs int) []byte {
	of := max(jobs/20, 1)
	return fmt.Appendf(nil, `{"source_id":"%d-%d","version":%d,"name":"n%d","email":""}`, seed, i%of, i/of+1, i)
}

// publishAll publishes every job, a third of them more than once.
func (s *soaking) publishAll(ctx context.Context) error {
	next := make(chan int)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var hands sync.WaitGroup
	for h := range publishers {
		r := rand.New(rand.NewPCG(s.Seed, uint64(h)+2)) //nolint:gosec // repeatable, no secret
		hands.Go(func() {
			for i := range next {
				if err := s.publish(ctx, r, i); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := range s.Jobs {
		if i%100 == 0 {
			s.awaitRoom(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	hands.Wait()
	return context.Cause(ctx)
}

// awaitRoom waits until the stream is not too full.
func (s *soaking) awaitRoom(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := s.stored(ctx); err == nil && n < backlog {
			return
		}
		_ = pause(ctx, 50*time.Millisecond)
	}
}

// publish publishes a charge and a contact's event, each a third of the time more than once.
func (s *soaking) publish(ctx context.Context, r *rand.Rand, i int) error {
	if err := s.publishCopies(ctx, r, s.Charge, "charge-"+order(s.Seed, i), body(s.Seed, i)); err != nil {
		return err
	}
	if err := s.publishCopies(ctx, r, s.Contact, "contact-"+order(s.Seed, i), contact(s.Seed, i, s.Jobs)); err != nil {
		return err
	}
	s.published.Add(1)
	return nil
}

// publishCopies publishes one job until it is stored. A publisher that got no answer publishes again.
func (s *soaking) publishCopies(ctx context.Context, r *rand.Rand, kind consumer.Definition, id string, job []byte) error {
	copies := 1
	if r.IntN(3) == 0 {
		copies += 1 + r.IntN(2)
	}
	for c := range copies {
		for {
			_, err := consumer.PublishRaw(ctx, s.js, kind, job, nats.Header{"Nats-Msg-Id": {fmt.Sprintf("%s-%d", id, c)}})
			var refused *consumer.InvalidJobError
			if errors.As(err, &refused) || ctx.Err() != nil {
				return err
			}
			s.messages.Add(1)
			if err == nil {
				break
			}
			_ = pause(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// awaitMost waits until most jobs are done, in spite of everything.
func (s *soaking) awaitMost(ctx context.Context) error {
	return s.awaitProgress(ctx, func(x State) bool { return float64(x.Done) >= enough*float64(s.Jobs) })
}

// rest waits until nothing is left to do: every task is final, the stream and the outbox are empty.
func (s *soaking) rest(ctx context.Context) error {
	s.say("calm: no more faults")
	return s.awaitProgress(ctx, func(x State) bool {
		if x.Done+x.Parked < s.Jobs {
			return false
		}
		left, err := s.stored(ctx)
		waiting, err2 := s.store.OutboxState(ctx)
		open, err3 := s.number(ctx, s.pool, `select count(*) from settle.tasks where status in ('started', 'unknown')`)
		return err == nil && err2 == nil && err3 == nil && left == 0 && waiting.Rows == 0 && open == 0
	})
}

// awaitProgress waits until something holds, or until nothing has changed for long: that is a finding, and judged as one.
func (s *soaking) awaitProgress(ctx context.Context, holds func(State) bool) error {
	last, since := State{}, time.Now()
	for time.Since(since) < restLimit {
		now, err := s.state(ctx)
		if err == nil && holds(now) {
			return nil
		}
		if err == nil && (now.Done != last.Done || now.Effects != last.Effects) {
			last, since = now, time.Now()
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	s.say("nothing has changed for %s", restLimit)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *soaking) stored(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := s.js.Stream(ctx, "JOBS")
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.Msgs, nil
}

// state counts.
func (s *soaking) state(ctx context.Context) (x State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	x.Published = int(s.published.Load())
	err = s.pool.QueryRow(ctx, `select count(*) filter (where status in ('finished', 'failed')), count(*) filter (where status = 'unknown'),
		count(*) filter (where status = 'needs_review') from settle.tasks where kind = 'payment.charge'`).Scan(&x.Done, &x.Unknown, &x.Parked)
	if err == nil {
		x.Effects, err = s.number(ctx, s.effects, `select count(*) from provider.charges where status = 'succeeded'`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.done {
		x.Faults += n
	}
	x.Kills = s.kills
	return x, err
}
