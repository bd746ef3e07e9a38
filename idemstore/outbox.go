package idemstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// The outbox: events and follow-up jobs that were committed and are not yet known to be in their stream.

// emit queues the events and follow-up jobs of a group of saves. Commit may run again, so the same name is the same
// event. They are numbered in the order of the arguments: a task's are published in that order.
const emit = `/* settle:emit */
insert into settle.outbox (task_id, name, subject, key, payload, trace)
select task_id, subject || ' ' || key, subject, key, payload, trace
from unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::text[]) with ordinality as e(task_id, subject, key, payload, trace, n)
order by n
on conflict (task_id, name) do nothing`

// enqueue adds one job for a publisher, in the publisher's transaction.
const enqueue = `/* settle:enqueue */
insert into settle.outbox (name, subject, key, payload, message_id, reply, trace)
values (gen_random_uuid()::text, $1, $2, $3, $4, $5, $6)`

// takeOutbox takes rows that are due, oldest first, of each task only the oldest: what follows it must not overtake
// it. They are not due again for $2 microseconds, which is how long nobody else tries them if the taker dies. Rows that
// another process is taking are left to it. $3 and $4 are the lane.
const takeOutbox = `/* settle:take-outbox */
with due as materialized (
  select o.id from settle.outbox o
  where o.next_at <= clock_timestamp() and starts_with(o.subject, $3) <> $4
    and (o.task_id is null or not exists (select from settle.outbox p where p.task_id = o.task_id and p.id < o.id))
  order by o.id limit $1
  for update of o skip locked
), taken as (
  update settle.outbox o set next_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
  from due where o.id = due.id
  returning o.id, o.task_id, o.name, o.subject, o.key, o.payload, o.message_id, o.reply, o.trace, o.failures, o.created_at
)
select o.id, coalesce(o.task_id, 0) as task_id, o.name, o.subject, o.key, o.payload, o.message_id, o.reply, o.trace, o.failures, o.created_at,
  coalesce(t.event_id, '') as caused_by, coalesce(t.kind, '') as task_kind, coalesce(t.attempts, 0) as task_attempt
from taken o left join settle.tasks t on t.id = o.task_id
order by o.id`

const deleteOutbox = `/* settle:delete-outbox */ delete from settle.outbox where id = any($1)`

// delayOutbox keeps rows whose publish was not confirmed for later. $3 microseconds for each; none of it for no rows.
const delayOutbox = `/* settle:delay-outbox */
update settle.outbox o set failures = o.failures + 1, last_error = d.error,
  next_at = clock_timestamp() + d.delay * interval '1 microsecond'
from unnest($1::bigint[], $2::text[], $3::bigint[]) as d(id, error, delay)
where o.id = d.id`

// outboxState is what waits: how many, since when, and when the next is due.
const outboxState = `/* settle:outbox-state */
select count(*), coalesce(` + `(extract(epoch from clock_timestamp() - min(created_at)) * 1000000)::bigint` + `, 0),
  count(*) filter (where failures > 0)
from settle.outbox`

const listOutbox = `/* settle:list-outbox */
select id, coalesce(task_id, 0), subject, key, length(payload), created_at, failures, next_at, last_error
from settle.outbox where id > $1 order by id limit $2`

// OutboxRow is one event or job that waits to be published.
type OutboxRow struct {
	ID        int64
	TaskID    int64 // 0: a publisher's own
	Name      string
	Subject   string
	Key       string
	Payload   []byte
	MessageID string // empty: made of task and name
	Reply     string
	Trace     string
	Failures  int
	CreatedAt time.Time
	CausedBy  string // id of the CloudEvent that brought the task, if one did
	// TaskKind and TaskAttempt are those of the task that emitted it.
	TaskKind    string
	TaskAttempt int
}

// Sent is what became of one row that was tried.
type Sent struct {
	ID    int64
	Error string        // empty: confirmed, and the row goes
	Delay time.Duration // with Error: not tried again before
	// Unsendable keeps the row's content as a refusal instead of trying it again.
	Unsendable *Refusal
}

// Lane is a part of the outbox by where its rows go: those whose subject begins with Prefix, or with Others all but
// those. The zero Lane is the whole outbox.
type Lane struct {
	Prefix string
	Others bool
}

// TakeOutbox takes rows of a lane that are due, at most limit, of a task only the oldest, and that only if it is in the
// lane. For as long as held nobody else takes
// them; the caller publishes them within that time and tells what became of each with SettleOutbox. A caller that dies
// leaves them to be published again, under the same message id.
func (s *Store) TakeOutbox(ctx context.Context, lane Lane, limit int, held time.Duration) (taken []OutboxRow, err error) {
	err = s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(takeOutbox, limit, held.Microseconds(), lane.Prefix, lane.Others)
	}, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		taken, err = pgx.CollectRows(rows, pgx.RowToStructByPos[OutboxRow])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take outbox: %w", err)
	}
	return taken, nil
}

// SettleOutbox removes rows that were confirmed or can never be published, and keeps the others for later. It is
// repeated over broken connections: doing it twice is harmless.
func (s *Store) SettleOutbox(ctx context.Context, sent []Sent) error {
	err := again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) { queueSent(b, sent) }, func(r pgx.BatchResults) error {
			var errs error
			for range statementsOf(sent) {
				_, err := r.Exec()
				errs = errors.Join(errs, err)
			}
			return errs
		}))
	})
	if err != nil {
		return fmt.Errorf("settle outbox: %w", err)
	}
	return nil
}

// statementsOf is how many statements queueSent queues.
func statementsOf(sent []Sent) int {
	n := 2
	for _, x := range sent {
		if x.Unsendable != nil {
			n++
		}
	}
	return n
}

func queueSent(b *pgx.Batch, sent []Sent) {
	var (
		gone, kept []int64
		problems   []string
		delays     []int64
	)
	for _, x := range sent {
		switch {
		case x.Unsendable != nil:
			queueRefusal(b, *x.Unsendable)
			gone = append(gone, x.ID)
		case x.Error == "":
			gone = append(gone, x.ID)
		default:
			kept, problems, delays = append(kept, x.ID), append(problems, clean(x.Error)), append(delays, x.Delay.Microseconds())
		}
	}
	b.Queue(deleteOutbox, gone)
	b.Queue(delayOutbox, kept, problems, delays)
}

// Enqueued is a job that a publisher puts into the outbox.
type Enqueued struct {
	Subject, Key, MessageID, Reply, Trace string
	Payload                               []byte
}

// Enqueue adds a job to the outbox in the caller's transaction.
func Enqueue(ctx context.Context, tx pgx.Tx, e Enqueued) error {
	if _, err := tx.Exec(ctx, enqueue, e.Subject, e.Key, e.Payload, e.MessageID, e.Reply, clean(e.Trace)); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return nil
}

// OutboxState is what waits in the outbox.
type OutboxState struct {
	Rows   int
	Oldest time.Duration // age of the oldest row
	Failed int           // rows whose publish was tried and not confirmed
}

// OutboxState counts the outbox.
func (s *Store) OutboxState(ctx context.Context) (OutboxState, error) {
	found, err := query(ctx, s, func(row pgx.CollectableRow) (out OutboxState, err error) {
		var age int64
		err = row.Scan(&out.Rows, &age, &out.Failed)
		out.Oldest = time.Duration(age) * time.Microsecond
		return out, err
	}, outboxState)
	if err != nil {
		return OutboxState{}, fmt.Errorf("outbox state: %w", err)
	}
	return found[0], nil
}

// OutboxEntry is a row of the outbox as a person sees it, without its payload.
type OutboxEntry struct {
	ID        int64
	TaskID    int64
	Subject   string
	Key       string
	Size      int
	CreatedAt time.Time
	Failures  int
	NextAt    time.Time
	LastError string
}

// ListOutbox returns what waits, oldest first, after the row with id after.
func (s *Store) ListOutbox(ctx context.Context, after int64, limit int) ([]OutboxEntry, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[OutboxEntry], listOutbox, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list outbox: %w", err)
	}
	return found, nil
}

// queueEmits queues the events of a group, one statement for all.
func queueEmits(b *pgx.Batch, saves []Save) {
	if !hasEmits(saves) {
		return
	}
	var (
		tasks                   []int64
		subjects, keys, parents []string
		payloads                [][]byte
	)
	for _, x := range saves {
		for _, e := range x.Emits {
			tasks, subjects, keys = append(tasks, x.TaskID), append(subjects, clean(e.Subject)), append(keys, clean(e.Key))
			payloads, parents = append(payloads, e.Payload), append(parents, clean(e.Trace))
		}
	}
	b.Queue(emit, tasks, subjects, keys, payloads, parents)
}

func hasEmits(saves []Save) bool {
	return slices.ContainsFunc(saves, func(s Save) bool { return len(s.Emits) > 0 })
}
