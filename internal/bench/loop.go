package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Loop is the hand-written loop with so many goroutines, each with a connection of its own.
func Loop(name string, goroutines int) Contestant {
	return Contestant{Name: name, Label: fmt.Sprintf("hand-written loop, %d goroutines", goroutines), Connections: goroutines,
		Race: Rate(loop(acked)), Check: doneByHand}
}

// loop is what one writes by hand: insert, update, confirmed ack, for each message. await says when all is done.
func loop(await func(context.Context, *Stage) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error { return s.oneByOne(ctx, s.byHand, await) }
}

// OneByOne hands each message to do, as many at once as the pool has connections, until all are acked. An error ends it.
func (s *Stage) OneByOne(ctx context.Context, do func(context.Context, jetstream.Msg) error) error {
	return s.oneByOne(ctx, do, acked)
}

func (s *Stage) oneByOne(ctx context.Context, do func(context.Context, jetstream.Msg) error, await func(context.Context, *Stage) error) error {
	c, err := s.Consumer(ctx)
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(256))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range s.connections {
		workers.Go(func() {
			if err := each(ctx, messages, do); err != nil {
				cancel(err)
			}
		})
	}
	err = await(ctx, s)
	messages.Stop()
	workers.Wait()
	return err
}

func each(ctx context.Context, messages jetstream.MessagesContext, do func(context.Context, jetstream.Msg) error) error {
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(ctx, m); err != nil {
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
)

func (s *Stage) byHand(ctx context.Context, m jetstream.Msg) error {
	if err := s.ByHand(ctx, m.Data()); err != nil {
		return err
	}
	saved := time.Now()
	err := m.DoubleAck(ctx)
	if err == nil {
		s.waits.add(acking, time.Since(saved))
	}
	return err
}

// ByHand is what the loop does with a payload: one statement that claims its key, and one that saves the result. The Check
// of Loop counts what it has left.
func (s *Stage) ByHand(ctx context.Context, payload []byte) error {
	var j job
	if err := json.Unmarshal(payload, &j); err != nil {
		return err
	}
	began := time.Now()
	var id int64
	if err := s.Pool.QueryRow(ctx, handInsert, j.ID, payload).Scan(&id); err != nil {
		return err
	}
	claimed := time.Now()
	s.waits.add(claiming, claimed.Sub(began))
	if _, err := s.Pool.Exec(ctx, handUpdate, id, `{"id":"`+j.ID+`"}`); err != nil {
		return err
	}
	s.waits.add(saving, time.Since(claimed))
	return nil
}
