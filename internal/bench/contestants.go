package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

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

// external is a kind whose effect takes no time.
func external() consumer.Definition { return externalKind("bench.external", nil) }

// emitting is the same with one event per job.
func emitting() consumer.Definition {
	return externalKind("bench.emitting", func(w *consumer.Writes, f consumer.Final[job, result]) error {
		w.Emit("events.bench.done", f.Key, f.Result)
		return nil
	})
}

func externalKind(name string, commit func(*consumer.Writes, consumer.Final[job, result]) error) consumer.Definition {
	return consumer.Kind[job, result]{Name: name, Commit: commit, Contract: contract, Key: key,
		ExternalID: func(r result) string { return r.ID },
		Perform: func(_ context.Context, a *consumer.Attempt[job]) (result, error) {
			return result{a.Job.ID}, a.MaySend()
		},
		Lookup: func(context.Context, *consumer.Attempt[job]) (result, consumer.Verdict, error) {
			return result{}, consumer.CannotTell, nil
		},
	}
}

// local is a local kind without rows of its own.
func local() consumer.Definition {
	return consumer.LocalKind[job, result]{Name: "bench.local", Contract: contract, Key: key,
		Apply: func(_ context.Context, _ pgx.Tx, a *consumer.Attempt[job]) (result, error) {
			return result{a.Job.ID}, nil
		},
	}
}

// engine runs a kind until the stream is empty, and the outbox. watched gives it the telemetry that it runs with.
func engine(kind consumer.Definition, watched telemetryOf) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		c := consumer.Config{Slots: s.slots, Logger: quiet}
		unwatch, err := watched(ctx, &c)
		if err != nil {
			return err
		}
		defer unwatch()
		e, err := consumer.New(s.pool, s.js, c, kind)
		if err != nil {
			return err
		}
		serving, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- e.Run(serving) }()
		err = s.awaitEmpty(ctx)
		stop()
		return errors.Join(err, <-ended)
	}
}

// loop is what one writes by hand: insert, update, confirmed ack, for each message, in 64 goroutines.
func loop(ctx context.Context, s *stage) error {
	c, err := s.js.CreateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{Durable: "loop", FilterSubject: "jobs.bench.loop",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 20000})
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(256))
	if err != nil {
		return err
	}
	var (
		workers sync.WaitGroup
		failed  = make(chan error, 64)
	)
	for range 64 {
		workers.Go(func() { failed <- s.loopWorker(ctx, messages) })
	}
	err = s.awaitEmpty(ctx)
	messages.Stop()
	workers.Wait()
	close(failed)
	for f := range failed {
		err = errors.Join(err, f)
	}
	return err
}

func (s *stage) loopWorker(ctx context.Context, messages jetstream.MessagesContext) error {
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.byHand(ctx, m); err != nil {
			return err
		}
	}
}

// What the loop keeps: one row per key, and no more than it needs.
const (
	handTable = `create table jobs (id bigint generated always as identity primary key, key text not null unique,
  status text not null, payload bytea not null, result text, finished_at timestamptz)`
	handInsert = `insert into jobs (key, status, payload) values ($1, 'started', $2) on conflict do nothing returning id`
	handUpdate = `update jobs set status = 'finished', result = $2, finished_at = now() where id = $1`
	handCount  = `select count(*) from jobs where status = 'finished'`
)

func (s *stage) byHand(ctx context.Context, m jetstream.Msg) error {
	var j job
	if err := json.Unmarshal(m.Data(), &j); err != nil {
		return err
	}
	var id int64
	if err := s.pool.QueryRow(ctx, handInsert, j.ID, m.Data()).Scan(&id); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, handUpdate, id, `{"id":"`+j.ID+`"}`); err != nil {
		return err
	}
	return m.DoubleAck(ctx)
}
