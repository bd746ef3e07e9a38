package soak

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
)

// judge reads the provider's tables, the rows and the streams, and says what of the promise was not kept. The workers are
// still there: what a frozen one sends late would be counted.
func (s *soaking) judge(ctx context.Context) (r Report, err error) {
	r = Report{Seed: s.Seed, Jobs: s.Jobs, Workers: s.Workers, Messages: int(s.messages.Load()), Broken: []string{}}
	if err := pause(ctx, 2*lease); err != nil {
		return r, err
	}
	s.mu.Lock()
	r.Faults, r.Kills = maps.Clone(s.done), s.kills
	s.mu.Unlock()
	for _, c := range s.claims() {
		n, err := s.number(ctx, c.in, c.sql, c.args...)
		if err != nil {
			return r, fmt.Errorf("%s: %w", c.what, err)
		}
		if n != c.want {
			r.Broken = append(r.Broken, fmt.Sprintf("%s: %d, want %d", c.what, n, c.want))
		}
	}
	if err := s.judgeStreams(ctx, &r); err != nil {
		return r, err
	}
	if r.Requests, err = s.number(ctx, s.effects, `select count(*) from provider.requests where method = 'POST'`); err != nil {
		return r, err
	}
	err = s.pool.QueryRow(ctx, `select coalesce(sum(attempts), 0), coalesce(sum(duplicates), 0) from settle.tasks where kind <> 'receipt.send'`).
		Scan(&r.Attempts, &r.Duplicates)
	r.OK = len(r.Broken) == 0
	return r, err
}

// claim is one number that has to be right.
type claim struct {
	what string
	in   *pgxpool.Pool
	sql  string
	args []any
	want int
}

func (s *soaking) claims() []claim {
	return []claim{
		{"orders that were charged more than once", s.effects,
			`select count(*) from (select from provider.charges where status = 'succeeded' group by order_id having count(*) > 1) x`, nil, 0},
		{"orders that were charged", s.effects, `select count(distinct order_id) from provider.charges where status = 'succeeded'`, nil, s.Jobs},
		{"finished tasks", s.pool, `select count(*) from settle.tasks where kind = 'payment.charge' and status = 'finished'`, nil, s.Jobs},
		{"tasks without the provider's id", s.pool,
			`select count(*) from settle.tasks where kind = 'payment.charge' and status = 'finished' and coalesce(external_id, '') = ''`, nil, 0},
		{"tasks that are not over", s.pool, `select count(*) from settle.tasks where status in ('started', 'unknown')`, nil, 0},
		{"tasks that need a person", s.pool, `select count(*) from settle.tasks where status = 'needs_review'`, nil, 0},
		{"payments booked", s.pool, `select count(*) from shop.payments`, nil, s.Jobs},
		{"orders marked as paid", s.pool, `select count(*) from shop.orders where status = 'paid'`, nil, s.Jobs},
		{"receipts", s.pool, `select count(*) from shop.receipts`, nil, s.Jobs},
		{"contact events that are finished", s.pool, `select count(*) from settle.tasks where kind = 'contact.sync' and status = 'finished'`, nil, s.Jobs},
		{"contact events recorded", s.pool, `select count(*) from shop.import_events`, nil, s.Jobs},
		{"newest versions of all contacts together", s.pool, `select coalesce(sum(version), 0)::int from shop.contacts`, nil, s.Jobs},
		{"events not published", s.pool, `select count(*) from settle.outbox`, nil, 0},
		{"messages refused", s.pool, `select count(*) from settle.refusals`, nil, 0},
	}
}

// judgeStreams counts what is left to do, and the events: one per charge, and repeats only under the same id.
func (s *soaking) judgeStreams(ctx context.Context, r *Report) error {
	left, err := s.stored(ctx)
	if err != nil {
		return err
	}
	if left != 0 {
		r.Broken = append(r.Broken, fmt.Sprintf("messages left in the stream: %d", left))
	}
	c, err := s.js.OrderedConsumer(ctx, "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"events.payment.charged"}})
	if err != nil {
		return fmt.Errorf("read the events: %w", err)
	}
	ids := map[string]bool{}
	for {
		batch, err := c.Fetch(500, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return fmt.Errorf("read the events: %w", err)
		}
		n := 0
		for m := range batch.Messages() {
			n++
			ids[m.Headers().Get("Nats-Msg-Id")] = true
		}
		if n == 0 {
			break
		}
	}
	if len(ids) != s.Jobs {
		r.Broken = append(r.Broken, fmt.Sprintf("events: %d, want %d", len(ids), s.Jobs))
	}
	return nil
}
