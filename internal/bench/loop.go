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
	return func(ctx context.Context, s *Stage) error {
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
		for range s.connections { // more would wait for one
			workers.Go(func() {
				if err := s.loopWorker(ctx, messages); err != nil {
					cancel(err)
				}
			})
		}
		err = await(ctx, s)
		messages.Stop()
		workers.Wait()
		return err
	}
}

func (s *Stage) loopWorker(ctx context.Context, messages jetstream.MessagesContext) error {
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
)

func (s *Stage) byHand(ctx context.Context, m jetstream.Msg) error {
	var j job
	if err := json.Unmarshal(m.Data(), &j); err != nil {
		return err
	}
	began := time.Now()
	var id int64
	if err := s.Pool.QueryRow(ctx, handInsert, j.ID, m.Data()).Scan(&id); err != nil {
		return err
	}
	claimed := time.Now()
	s.waits.add(claiming, claimed.Sub(began))
	if _, err := s.Pool.Exec(ctx, handUpdate, id, `{"id":"`+j.ID+`"}`); err != nil {
		return err
	}
	saved := time.Now()
	s.waits.add(saving, saved.Sub(claimed))
	err := m.DoubleAck(ctx)
	if err == nil {
		s.waits.add(acking, time.Since(saved))
	}
	return err
}
