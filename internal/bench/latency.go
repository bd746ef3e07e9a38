package bench

import (
	"context"
	"slices"
	"time"

	"github.com/settlemq/settle/consumer"
)

// runner works until await returns.
type runner func(await func(context.Context, *Stage) error) func(context.Context, *Stage) error

func engineOf(kind func(*Stage) consumer.Definition) runner {
	return func(await func(context.Context, *Stage) error) func(context.Context, *Stage) error {
		return engine(kind, unseen, await)
	}
}

// Of so many jobs one is published at a time; the first of them are not counted, while caches and connections get warm.
const (
	latencyPart = 10
	latencyWarm = 20
)

// latencyOf publishes one job at a time and measures from there to its confirmed ack: the median, and the 99th percentile,
// in milliseconds.
func latencyOf(r runner) func(context.Context, *Stage) ([]float64, error) {
	return func(ctx context.Context, s *Stage) ([]float64, error) {
		acked := make(chan struct{}, 1)
		if s.waits == nil {
			s.waits = &waits{}
		}
		s.waits.acked = func() { acked <- struct{}{} }
		times := make([]float64, 0, max(s.Jobs/latencyPart, 1))
		err := r(func(ctx context.Context, s *Stage) error {
			began := time.Now()
			for i := range latencyWarm + cap(times) {
				took, err := s.oneJob(ctx, i, acked)
				if err != nil {
					return err
				}
				if i >= latencyWarm {
					times = append(times, float64(took)/float64(time.Millisecond))
				}
				s.live(len(times), cap(times), time.Since(began))
			}
			return nil
		})(ctx, s)
		if err != nil {
			return nil, err
		}
		slices.Sort(times)
		return []float64{percentile(times, 50), percentile(times, 99)}, nil
	}
}

// oneJob publishes a job and waits for its ack.
func (s *Stage) oneJob(ctx context.Context, i int, acked <-chan struct{}) (time.Duration, error) {
	began := time.Now()
	if _, err := s.JS.Publish(ctx, s.Subject(), s.Body(i)); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-acked:
		return time.Since(began), nil
	}
}

// percentile is the smallest value that so many percent of the sorted values do not exceed.
func percentile(sorted []float64, percent int) float64 {
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}
