package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/settlemq/settle/internal/bench"
)

// riverWorkers is about where River's own benchmark has found it fastest. peers --tune measures others.
const riverWorkers = 1000

var riverPeer = peer{name: "river", usual: true,
	make: func(bench.Options) bench.Contestant { return riverWith("river", riverWorkers) },
	settings: []string{
		"v0.51.2 with riverpgxv5, in the same PostgreSQL, without a broker: no message is acked, and no key is refused a second time",
		fmt.Sprintf("MaxWorkers %d, about what River's own benchmark has found best (--tune measures 64 to 2,000); FetchCooldown 2ms and FetchPollInterval 20ms, as River's own benchmark has them: by default it fetches at most every 100 ms", riverWorkers),
		"jobs are inserted with InsertManyFast, 5,000 at once, and the table is vacuumed and analysed, before the clock runs",
		"its batch completer is on, as always, and is told to stop when the last job was worked, so that nothing waits for its next turn of up to 250 ms; the clock stops when the last row is completed",
		"all indexes of its migrations; a pool of 64 connections; JobTimeout -1, so that no job has a timer",
	},
}

type noop struct {
	ID  string `json:"id"`
	Pad string `json:"pad"`
}

func (noop) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noop]
	worked *atomic.Int64
}

func (w *noopWorker) Work(context.Context, *river.Job[noop]) error {
	w.worked.Add(1)
	return nil
}

func riverWith(name string, workers int) bench.Contestant {
	return bench.Contestant{Name: name, Label: fmt.Sprintf("River, %d workers", workers), Prepare: riverInsert,
		Race:  bench.Rate(func(ctx context.Context, s *bench.Stage) error { return riverWork(ctx, s, workers) }),
		Check: func(ctx context.Context, s *bench.Stage) error { return expect(ctx, s, riverDone) }}
}

const (
	riverDone = `select count(*), count(distinct args ->> 'id') filter (where state = 'completed' and attempt = 1) from river_job`
	riverLeft = `select count(*) from river_job where state <> 'completed'`
)

func riverClient(s *bench.Stage, worked *atomic.Int64, queues map[string]river.QueueConfig) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{worked: worked})
	return river.NewClient(riverpgxv5.New(s.Pool), &river.Config{Workers: workers, Queues: queues,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, JobTimeout: -1,
		Logger: slog.New(slog.DiscardHandler)})
}

// riverInsert makes River's tables and fills them.
func riverInsert(ctx context.Context, s *bench.Stage) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(s.Pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	client, err := riverClient(s, nil, nil)
	if err != nil {
		return err
	}
	const atOnce = 5000
	for from := 0; from < s.Jobs; from += atOnce {
		jobs := make([]river.InsertManyParams, min(atOnce, s.Jobs-from))
		for i := range jobs {
			var args noop
			if err := json.Unmarshal(s.Body(from+i), &args); err != nil {
				return err
			}
			jobs[i].Args = args
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	_, err = s.Pool.Exec(ctx, "vacuum analyze river_job")
	return err
}

// riverWork runs a client until all rows are completed.
func riverWork(ctx context.Context, s *bench.Stage, workers int) (err error) {
	var worked atomic.Int64
	client, err := riverClient(s, &worked, map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	stopped := make(chan error, 1)
	stop := sync.OnceFunc(func() {
		go func() { stopped <- client.Stop(context.WithoutCancel(ctx)) }()
	})
	defer func() {
		stop()
		err = errors.Join(err, <-stopped)
		if n := worked.Load(); err == nil && n != int64(s.Jobs) {
			err = fmt.Errorf("jobs were worked %d times, want %d", n, s.Jobs)
		}
	}()
	return s.Await(ctx, s.Jobs, func(ctx context.Context) (left int, err error) {
		if n := int(worked.Load()); n < s.Jobs {
			return s.Jobs - n, nil // counting rows would cost the server more than a fetch
		}
		stop()
		err = s.Pool.QueryRow(ctx, riverLeft).Scan(&left)
		return left, err
	})
}
