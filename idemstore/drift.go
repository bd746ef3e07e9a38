package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a comparison of stream and table asks of the table. All of it only reads.

// Standing is where the task of a key stands.
type Standing struct {
	TaskID   int64
	Key      string
	Status   Status
	FinalFor time.Duration // of a final one: for how long, by the database clock
}

// Standings returns where the tasks of some keys of a kind stand, by key. Keys without a task are left out.
func (s *Store) Standings(ctx context.Context, kind string, keys ...string) (map[string]Standing, error) {
	found, err := query(ctx, s, func(row pgx.CollectableRow) (t Standing, err error) {
		var final int64
		err = row.Scan(&t.TaskID, &t.Key, &t.Status, &final)
		t.FinalFor = microsecondsOf(&final)
		return t, err
	}, standings, kind, keys)
	if err != nil {
		return nil, fmt.Errorf("look up tasks by key: %w", err)
	}
	out := make(map[string]Standing, len(found))
	for _, t := range found {
		out[t.Key] = t
	}
	return out, nil
}

// OpenTask is a task that is neither final nor parked.
type OpenTask struct {
	TaskID  int64
	Kind    string
	Origin  Origin // where its first message was
	Age     time.Duration
	Overdue time.Duration // since it was due and nobody has held it; negative or zero: it is held, or not due yet
}

// OpenTasks returns the tasks that are started or unknown and at least so old, those that were due first at the front.
func (s *Store) OpenTasks(ctx context.Context, age time.Duration, limit int) ([]OpenTask, error) {
	found, err := query(ctx, s, func(row pgx.CollectableRow) (t OpenTask, err error) {
		var (
			sequence, age, overdue int64
			stored                 *time.Time
		)
		err = row.Scan(&t.TaskID, &t.Kind, &t.Origin.Stream, &sequence, &stored, &age, &overdue)
		t.Origin.Sequence, t.Origin.Stored = uint64(sequence), value(stored)
		t.Age, t.Overdue = microsecondsOf(&age), microsecondsOf(&overdue)
		return t, err
	}, openTasks, age.Microseconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("list open tasks: %w", err)
	}
	return found, nil
}

// KindsAtWork returns the kinds of which an attempt holds a task right now.
func (s *Store) KindsAtWork(ctx context.Context) (map[string]bool, error) {
	kinds, err := query(ctx, s, pgx.RowTo[string], kindsAtWork)
	if err != nil {
		return nil, fmt.Errorf("list kinds at work: %w", err)
	}
	out := map[string]bool{}
	for _, k := range kinds {
		out[k] = true
	}
	return out, nil
}

// standings: $1 kind, $2 keys.
var standings = `/* settle:standings */
select t.id, t.key, t.status, coalesce(` + microseconds(`clock_timestamp() - t.finished_at`) + `, 0)
from unnest($2::text[]) as w(key) join settle.tasks t on t.kind = $1 and t.key = w.key`

// openTasks: $1 least age in microseconds, $2 limit. A lease more than a day ahead holds nothing.
var openTasks = `/* settle:open-tasks */
select t.id, t.kind, t.stream, t.stream_sequence, t.stored_at, ` + microseconds(`c.at - t.created_at`) + `,
  ` + microseconds(`c.at - greatest(t.next_attempt_at, case when t.lease_until <= c.at + interval '1 day' then t.lease_until end)`) + `
from settle.tasks t cross join (select clock_timestamp()) as c(at)
where t.status in ('started', 'unknown') and t.created_at + $1::bigint * interval '1 microsecond' <= c.at
order by t.next_attempt_at, t.id limit $2`

const kindsAtWork = `/* settle:kinds-at-work */
select distinct kind from settle.tasks
where status = 'started' and lease_until > clock_timestamp() and lease_until <= clock_timestamp() + interval '1 day'`
