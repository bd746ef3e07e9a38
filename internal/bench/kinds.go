package bench

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

type job struct {
	ID  string `json:"id"`
	Pad string `json:"pad"`
}

type result struct {
	ID string `json:"id"`
}

func key(j job) (string, error) { return j.ID, nil }

var contract = consumer.Contract{Effect: "none"}

// external is a kind whose effect takes no time, and whose provider knows every key at once.
func external(s *Stage) consumer.Definition { return externalKind(s, 0, nil) }

// emitting is the same with one event per job.
func emitting(s *Stage) consumer.Definition {
	return externalKind(s, 0, func(w *consumer.Writes, f consumer.Final[job, result]) error {
		w.Emit(s.event(), f.Key, f.Result)
		return nil
	})
}

// slow is the same with an effect that takes time.
func slow(s *Stage) consumer.Definition { return externalKind(s, effectTime, nil) }

const effectTime = 20 * time.Millisecond

func externalKind(s *Stage, effect time.Duration, commit func(*consumer.Writes, consumer.Final[job, result]) error) consumer.Definition {
	return consumer.Kind[job, result]{Name: s.Kind, Commit: commit, Contract: contract, Key: key,
		ExternalID: func(r result) string { return r.ID },
		Perform: func(ctx context.Context, a *consumer.Attempt[job]) (result, error) {
			if err := a.MaySend(); err != nil {
				return result{}, err
			}
			return result{a.Job.ID}, pass(ctx, effect)
		},
		Lookup: func(_ context.Context, a *consumer.Attempt[job]) (result, consumer.Verdict, error) {
			s.asked.one()
			return result{a.Job.ID}, consumer.Found, nil
		},
	}
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// local is a local kind without rows of its own.
func local(s *Stage) consumer.Definition {
	return consumer.LocalKind[job, result]{Name: s.Kind, Contract: contract, Key: key,
		Apply: func(_ context.Context, _ pgx.Tx, a *consumer.Attempt[job]) (result, error) {
			return result{a.Job.ID}, nil
		},
	}
}
