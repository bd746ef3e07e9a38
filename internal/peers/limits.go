package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/bench"
)

// What each half of the work costs alone: no queue on these servers is faster.

var transportPeer = peer{name: "transport",
	make: func(bench.Options) bench.Contestant {
		return bench.Contestant{Name: "transport", Label: "JetStream alone",
			Race: bench.Rate(func(ctx context.Context, s *bench.Stage) error { return pulled(ctx, s, groups, nothing) })}
	},
	settings: []string{fmt.Sprintf("%d groups of up to %d at once are pulled and acked, and each ack is confirmed; nothing is done for a message", groups, group)},
}

func nothing(context.Context, *bench.Stage, []jetstream.Msg) error { return nil }

var arraysPeer = tableAlone("arrays", "PostgreSQL alone, groups as arrays", asArrays,
	"the prototype's statements: one that claims a group and one that saves it")

var batchedPeer = tableAlone("batched", "PostgreSQL alone, two statements per job", oneByOne,
	"the prototype's table; the inserts of a group are sent at once, then its updates; each of the two is a transaction")

// tableAlone is the prototype's table without a broker.
func tableAlone(name, label string, do func(ctx context.Context, s *bench.Stage, payloads [][]byte) error, how string) peer {
	return peer{name: name,
		make: func(bench.Options) bench.Contestant {
			return bench.Contestant{Name: name, Label: label, Prepare: makePrototype,
				Race:  bench.Rate(func(ctx context.Context, s *bench.Stage) error { return withoutBroker(ctx, s, do) }),
				Check: func(ctx context.Context, s *bench.Stage) error { return expect(ctx, s, prototypeDone) }}
		},
		settings: []string{fmt.Sprintf("%d groups of %d at once, without a broker: nobody delivers a job or is told that it is done", groups, group), how},
	}
}

// withoutBroker does all jobs in groups, so many at once as the prototype does.
func withoutBroker(ctx context.Context, s *bench.Stage, do func(context.Context, *bench.Stage, [][]byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range groups {
		workers.Go(func() {
			for from := int(next.Add(group)) - group; from < s.Jobs; from = int(next.Add(group)) - group {
				payloads := make([][]byte, min(group, s.Jobs-from))
				for i := range payloads {
					payloads[i] = s.Body(from + i)
				}
				if err := do(ctx, s, payloads); err != nil {
					cancel(err)
					return
				}
				done.Add(int64(len(payloads)))
			}
		})
	}
	err := s.Await(ctx, s.Jobs, func(context.Context) (int, error) { return s.Jobs - int(done.Load()), nil })
	workers.Wait()
	return errors.Join(err, context.Cause(ctx))
}

const (
	oneClaim = `insert into prototype (key, status, payload) values ($1, 'started', $2) on conflict (key) do nothing returning id`
	oneSave  = `update prototype set status = 'finished', result = $2, finished_at = now() where id = $1 and status = 'started'`
)

// oneByOne is a statement for each claim and one for each save.
func oneByOne(ctx context.Context, s *bench.Stage, payloads [][]byte) error {
	keys, err := keysOf(payloads)
	if err != nil {
		return err
	}
	claims, saves := &pgx.Batch{}, &pgx.Batch{}
	for i, key := range keys {
		claims.Queue(oneClaim, key, payloads[i]).QueryRow(func(row pgx.Row) error {
			var id int64
			if err := row.Scan(&id); err != nil {
				return err
			}
			saves.Queue(oneSave, id, `{"id":"`+key+`"}`)
			return nil
		})
	}
	if err := s.Pool.SendBatch(ctx, claims).Close(); err != nil {
		return err
	}
	return s.Pool.SendBatch(ctx, saves).Close()
}
