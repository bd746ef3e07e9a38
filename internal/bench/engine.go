package bench

import (
	"context"
	"errors"
	"slices"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// engine runs a kind until await has seen the end. watched gives it the telemetry that it runs with.
func engine(kind func(*Stage) consumer.Definition, watched telemetryOf, await func(context.Context, *Stage) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		c := consumer.Config{Slots: s.Slots, Logger: quiet}
		unwatch, err := watched(ctx, &c)
		if err != nil {
			return err
		}
		defer unwatch()
		if s.waits != nil && c.MeterProvider == nil {
			c.MeterProvider = provider{waits: s.waits}
		}
		e, err := consumer.New(s.Pool, s.JS, c, kind(s))
		if err != nil {
			return err
		}
		serving, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		ended := make(chan error, 1)
		go func() {
			err := e.Run(serving)
			stop(errors.Join(errors.New("the engine does not run any more"), err))
			ended <- err
		}()
		err = await(serving, s)
		stop(nil)
		return errors.Join(err, <-ended)
	}
}

// together runs so many at once. They see the end at about the same time; the first of them says when that was.
func together(n int, one func(context.Context, *Stage) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		stages, ended := make([]Stage, n), make(chan error, n)
		for i := range stages {
			stages[i] = *s
			go func() { ended <- one(ctx, &stages[i]) }()
		}
		var errs []error
		for range stages {
			errs = append(errs, <-ended)
		}
		s.emptied = slices.MinFunc(stages, func(a, b Stage) int { return a.emptied.Compare(b.emptied) }).emptied
		return errors.Join(errs...)
	}
}

// acked waits until all jobs are.
func acked(ctx context.Context, s *Stage) error { return s.AwaitAcked(ctx) }

// published waits until all jobs are acked and what they emit is confirmed.
func published(ctx context.Context, s *Stage) error {
	if err := s.AwaitAcked(ctx); err != nil {
		return err
	}
	store := idemstore.New(s.Pool, 0)
	return s.Await(ctx, s.Jobs, func(ctx context.Context) (int, error) {
		outbox, err := store.OutboxState(ctx)
		return outbox.Rows, err
	})
}

// recovered waits until no task is unknown.
func recovered(ctx context.Context, s *Stage) error {
	return s.Await(ctx, s.rows, func(ctx context.Context) (int, error) {
		if asked := int(s.asked.n.Load()); asked < s.rows {
			return s.rows - asked, nil // counting rows would cost the server more than settling them
		}
		return s.count(ctx, countUnknown)
	})
}
