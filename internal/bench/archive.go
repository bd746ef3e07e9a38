package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// asExpired are finished rows whose content may go.
const asExpired = `{"expires_at": "2000-01-01T00:00:00Z"}`

// expired fills the table with rows for the archive.
func expired(rows int) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error { return s.multiply(ctx, rows, asExpired) }
}

// claims are how long each one took, in milliseconds.
type claims struct {
	mu    sync.Mutex
	times []float64
}

func (c *claims) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, float64(d)/float64(time.Millisecond))
}

// claimed measures the offered jobs and how long their claims take while another goes on, if there is one, until all jobs
// are done. Its last figure is what the other has come to, a second.
func claimed(other func(context.Context, *Stage) (done int, err error)) func(context.Context, *Stage) ([]float64, error) {
	return func(ctx context.Context, s *Stage) ([]float64, error) {
		var (
			c    claims
			done int
			took time.Duration
		)
		s.waits = &waits{claimed: c.add}
		figures, err := Rate(engine(external, unseen, func(ctx context.Context, s *Stage) error {
			beside, stop := context.WithCancel(ctx)
			defer stop()
			over, began := make(chan error, 1), time.Now()
			go func() {
				var err error
				if other != nil {
					done, err = other(beside, s)
				}
				took = time.Since(began)
				over <- err
			}()
			err := offeredAcked(ctx, s)
			stop()
			return errors.Join(err, <-over)
		}))(ctx, s)
		if err != nil {
			return nil, err
		}
		slices.Sort(c.times)
		figures = append(figures, percentile(c.times, 50), percentile(c.times, 99))
		if other != nil {
			figures = append(figures, float64(done)/took.Seconds())
		}
		return figures, nil
	}
}

// archiving moves the content of expired rows as settle archive does, with a pause as long as each batch, until ctx ends.
func archiving(ctx context.Context, s *Stage) (done int, err error) {
	store := idemstore.New(s.Pool, time.Minute)
	var slice idemstore.Slice
	for ctx.Err() == nil {
		began := time.Now()
		got, err := store.Archive(ctx, slice)
		if err != nil && ctx.Err() == nil {
			return done, err
		}
		done, slice.After = done+got.Tasks, got.Through
		if got.Done {
			return done, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Since(began)):
		}
	}
	return done, nil
}
