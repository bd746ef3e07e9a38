package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/bench"
)

// The bare prototype does in groups what the hand-written loop does one by one, and nothing else: no lease, no fence, no
// hash, no look-up, no second kind. It is what could be reached by somebody who needs none of them.

const (
	// group is how many messages go into a statement.
	group = 256
	// groups are under way at once. peers --tune measures others.
	groups = 4
)

var prototypePeer = peer{name: "prototype", usual: true,
	make: func(bench.Options) bench.Contestant { return prototypeWith("prototype", groups) },
	settings: []string{
		fmt.Sprintf("%d groups of up to %d at once (--tune measures 1 to 8); each is pulled, claimed by one insert and saved by one update, both of arrays, and then acked: all acks are sent at once, and each is confirmed", groups, group),
		"one table with the key as its only index beside the primary key; a statement is a transaction",
	},
}

func prototypeWith(name string, groups int) bench.Contestant {
	return bench.Contestant{Name: name, Label: fmt.Sprintf("bare prototype, %d groups of %d", groups, group),
		Prepare: func(ctx context.Context, s *bench.Stage) error {
			if err := makePrototype(ctx, s); err != nil {
				return err
			}
			return s.Queue(ctx)
		},
		Race:  bench.Rate(func(ctx context.Context, s *bench.Stage) error { return pulled(ctx, s, groups, inGroup) }),
		Check: func(ctx context.Context, s *bench.Stage) error { return expect(ctx, s, prototypeDone) }}
}

const (
	prototypeTable = `create table prototype (id bigint generated always as identity primary key, key text not null unique,
  status text not null, payload bytea not null, result text, claimed_at timestamptz not null default now(), finished_at timestamptz)`
	prototypeClaim = `insert into prototype (key, status, payload) select key, 'started', payload
from unnest($1::text[], $2::bytea[]) as m (key, payload) on conflict (key) do nothing returning id, key`
	prototypeSave = `update prototype p set status = 'finished', result = r.result, finished_at = now()
from unnest($1::bigint[], $2::text[]) as r (id, result) where p.id = r.id and p.status = 'started'`
	prototypeDone = `select count(*), count(distinct key) filter (where status = 'finished' and result like '%' || key || '%') from prototype`
)

func makePrototype(ctx context.Context, s *bench.Stage) error {
	_, err := s.Pool.Exec(ctx, prototypeTable)
	return err
}

// pulled takes groups of messages, so many at once, and acks what do has done, until all are acked.
func pulled(ctx context.Context, s *bench.Stage, groups int, do func(context.Context, *bench.Stage, []jetstream.Msg) error) error {
	c, err := s.Consumer(ctx)
	if err != nil {
		return err
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := make(chan struct{})
	var workers sync.WaitGroup
	for range groups {
		workers.Go(func() {
			if err := eachGroup(working, s, c, over, do); err != nil {
				stop(err)
			}
		})
	}
	err = s.AwaitAcked(working)
	close(over)
	workers.Wait()
	return err
}

// eachGroup takes group after group until it is over.
func eachGroup(ctx context.Context, s *bench.Stage, c jetstream.Consumer, over <-chan struct{},
	do func(context.Context, *bench.Stage, []jetstream.Msg) error,
) error {
	answers, err := s.JS.Conn().SubscribeSync(nats.NewInbox())
	if err != nil {
		return err
	}
	defer answers.Unsubscribe() //nolint:errcheck // the connection ends with the run
	for {
		messages, err := pull(c)
		if err != nil {
			return err
		}
		if len(messages) > 0 {
			if err := do(ctx, s, messages); err != nil {
				return err
			}
			if err := ackAll(ctx, s.JS.Conn(), answers, messages); err != nil {
				return err
			}
		}
		select {
		case <-over:
			return nil
		default:
		}
	}
}

// pull takes what is there, and waits a little if that is nothing.
func pull(c jetstream.Consumer) (messages []jetstream.Msg, err error) {
	batch, err := c.FetchNoWait(group)
	if err == nil {
		if messages, err = all(batch); len(messages) > 0 {
			return messages, err
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
		return nil, err
	}
	if batch, err = c.Fetch(1, jetstream.FetchMaxWait(100*time.Millisecond)); err != nil {
		return nil, err
	}
	return all(batch)
}

func all(batch jetstream.MessageBatch) (messages []jetstream.Msg, err error) {
	messages = make([]jetstream.Msg, 0, group)
	for m := range batch.Messages() {
		messages = append(messages, m)
	}
	return messages, batch.Error()
}

// inGroup claims the keys, does nothing for each, and saves what came of it.
func inGroup(ctx context.Context, s *bench.Stage, messages []jetstream.Msg) error {
	payloads := make([][]byte, len(messages))
	for i, m := range messages {
		payloads[i] = m.Data()
	}
	return asArrays(ctx, s, payloads)
}

// asArrays is a statement for the claims and one for the saves.
func asArrays(ctx context.Context, s *bench.Stage, payloads [][]byte) error {
	keys, err := keysOf(payloads)
	if err != nil {
		return err
	}
	rows, err := s.Pool.Query(ctx, prototypeClaim, keys, payloads)
	if err != nil {
		return err
	}
	ids, results := make([]int64, 0, len(keys)), make([]string, 0, len(keys))
	var id int64
	var key string
	if _, err := pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		ids, results = append(ids, id), append(results, `{"id":"`+key+`"}`)
		return nil
	}); err != nil {
		return err
	}
	if len(ids) < len(keys) {
		return fmt.Errorf("%d of %d keys are claimed already: a message came twice", len(keys)-len(ids), len(keys))
	}
	_, err = s.Pool.Exec(ctx, prototypeSave, ids, results)
	return err
}

func keysOf(payloads [][]byte) ([]string, error) {
	keys := make([]string, len(payloads))
	for i, p := range payloads {
		var j noop
		if err := json.Unmarshal(p, &j); err != nil {
			return nil, err
		}
		keys[i] = j.ID
	}
	return keys, nil
}

// ackAll acks the messages and waits for the answer to each.
func ackAll(ctx context.Context, conn *nats.Conn, answers *nats.Subscription, messages []jetstream.Msg) error {
	for _, m := range messages {
		if err := conn.PublishRequest(m.Reply(), answers.Subject, []byte("+ACK")); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for range messages {
		if _, err := answers.NextMsgWithContext(ctx); err != nil {
			return fmt.Errorf("confirm an ack: %w", err)
		}
	}
	return nil
}
