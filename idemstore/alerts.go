package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Alert is one cause for which a person is called, however many tasks it holds up.
type Alert struct {
	Cause   string // what makes it one alert: "needs_review payment.charge absent"
	Kind    string // empty where it is not about one
	Text    string // in plain words
	TaskID  int64  // the latest example; 0: none
	Count   int    // since FirstAt
	FirstAt time.Time
	LastAt  time.Time
	ToldAt  *time.Time // nil: not yet
}

// Raising counts an alert.
type Raising struct {
	Cause, Kind, Text string
	TaskID            int64
	Count             int
	Absolute          bool // Count is how many there are now, not how many more
}

// StuckKind is how many tasks of a kind are not settled although they are old.
type StuckKind struct {
	Kind   string
	Count  int
	TaskID int64 // the oldest one's
}

// raise counts alerts and makes those due that were never told, or not within $7 microseconds. After a day without it a
// cause begins anew.
const raise = `/* settle:raise */
insert into settle.alerts as a (cause, kind, text, task_id, count)
select cause, kind, text, task, count
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) as u(cause, kind, text, task, count)
order by cause
on conflict (cause) do update set
  kind = excluded.kind, text = excluded.text, task_id = coalesce(excluded.task_id, a.task_id),
  first_at = case when a.last_at < clock_timestamp() - interval '1 day' then clock_timestamp() else a.first_at end,
  count = case when excluded.cause = any ($6) or a.last_at < clock_timestamp() - interval '1 day'
               then excluded.count else a.count + excluded.count end,
  due = a.due or a.told_at is null or a.told_at <= clock_timestamp() - $7::bigint * interval '1 microsecond',
  last_at = clock_timestamp()`

// takeAlerts takes alerts that are due, for $1 microseconds: nobody else tells them meanwhile.
const takeAlerts = `/* settle:take-alerts */
update settle.alerts a set telling_until = clock_timestamp() + $1::bigint * interval '1 microsecond'
from (select cause from settle.alerts
      where due and (telling_until is null or telling_until <= clock_timestamp())
      order by first_at limit $2 for update skip locked) as d
where a.cause = d.cause
returning a.cause, a.kind, a.text, coalesce(a.task_id, 0), a.count, a.first_at, a.last_at, a.told_at`

// told notes that an alert has reached somebody.
const told = `/* settle:told */
update settle.alerts set due = false, telling_until = null, told_at = clock_timestamp() where cause = $1`

const listAlerts = `/* settle:list-alerts */
select cause, kind, text, coalesce(task_id, 0), count, first_at, last_at, told_at
from settle.alerts order by last_at desc limit $1`

// stuck counts the tasks of kinds $1 that are older than $2 microseconds and not settled. It looks at no more than $3.
const stuck = `/* settle:stuck */
select kind, count(*)::int, min(id) from (
  select kind, id from settle.tasks
  where status in ('started', 'unknown') and kind = any ($1::text[])
    and created_at < clock_timestamp() - $2::bigint * interval '1 microsecond'
  limit $3) as old
group by kind order by kind`

// unheard are the tasks of kinds $1 that wait for a person, were parked at least $2 microseconds ago, and of whose cause no
// alert was counted since. It looks at no more than $3, the latest. The alert of a review is named by kind and cause.
const unheard = `/* settle:unheard */
select t.kind, coalesce(t.review_cause, ''), count(*)::int, max(t.id) from (
  select kind, review_cause, id, updated_at from settle.tasks
  where status = 'needs_review' and kind = any ($1::text[]) order by id desc limit $3) as t
left join settle.alerts a on a.cause = concat_ws(' ', 'needs_review', t.kind, coalesce(t.review_cause, ''))
where t.updated_at <= clock_timestamp() - $2::bigint * interval '1 microsecond' and (a.cause is null or a.last_at < t.updated_at)
group by 1, 2 order by 1, 2`

// Raise counts alerts, each cause at most once in a call. Those that are new, or were told longer ago than quiet, become
// due. It is repeated until it is known to be committed or ctx ends, so a lost answer may count twice.
func (s *Store) Raise(ctx context.Context, quiet time.Duration, alerts ...Raising) error {
	var causes, kinds, texts, absolute = []string{}, []string{}, []string{}, []string{}
	var tasks []*int64
	var counts []int64
	for _, a := range alerts {
		causes, kinds, texts = append(causes, clean(a.Cause)), append(kinds, clean(a.Kind)), append(texts, clean(a.Text))
		tasks, counts = append(tasks, orNull(a.TaskID)), append(counts, int64(a.Count))
		if a.Absolute {
			absolute = append(absolute, clean(a.Cause))
		}
	}
	err := again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(raise, causes, kinds, texts, tasks, counts, absolute, quiet.Microseconds())
		}, func(r pgx.BatchResults) error {
			_, err := r.Exec()
			return err
		}))
	})
	if err != nil {
		return fmt.Errorf("raise alerts: %w", err)
	}
	return nil
}

// TakeAlerts takes up to limit alerts that are due, and keeps them from everybody else for a time: after that, one that
// was not told is due again.
func (s *Store) TakeAlerts(ctx context.Context, limit int, keep time.Duration) (out []Alert, err error) {
	err = s.transact(ctx, func(b *pgx.Batch) { b.Queue(takeAlerts, keep.Microseconds(), limit) }, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err == nil {
			out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Alert])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take alerts: %w", err)
	}
	return out, nil
}

// Told notes that an alert has been told. It is due again when it is raised after the time that Raise was given.
func (s *Store) Told(ctx context.Context, cause string) error {
	err := again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) { b.Queue(told, cause) }, func(r pgx.BatchResults) error {
			_, err := r.Exec()
			return err
		}))
	})
	if err != nil {
		return fmt.Errorf("note alert as told: %w", err)
	}
	return nil
}

// Alerts returns alerts, the latest first; 0 is a limit of 100.
func (s *Store) Alerts(ctx context.Context, limit int) ([]Alert, error) {
	if limit <= 0 {
		limit = 100
	}
	found, err := query(ctx, s, pgx.RowToStructByPos[Alert], listAlerts, limit)
	if err != nil {
		return nil, fmt.Errorf("list alerts: %w", err)
	}
	return found, nil
}

// UnheardKind is how many tasks of a kind wait for a person for one reason, of whom nobody was told.
type UnheardKind struct {
	Kind   string
	Cause  Cause
	Count  int
	TaskID int64 // the latest one's
}

// Unheard finds tasks that were parked at least age ago without an alert since: the worker that parked them died before
// it could count one.
func (s *Store) Unheard(ctx context.Context, age time.Duration, kinds ...string) ([]UnheardKind, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[UnheardKind], unheard, kinds, age.Microseconds(), maxStuck)
	if err != nil {
		return nil, fmt.Errorf("find tasks of which nobody was told: %w", err)
	}
	return found, nil
}

// maxStuck bounds what Stuck and Unheard look at: more is not more alarming.
const maxStuck = 10_000

// Stuck counts the tasks of these kinds that are not settled although they are older than age; kinds without one are
// left out.
func (s *Store) Stuck(ctx context.Context, age time.Duration, kinds ...string) ([]StuckKind, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[StuckKind], stuck, kinds, age.Microseconds(), maxStuck)
	if err != nil {
		return nil, fmt.Errorf("count stuck tasks: %w", err)
	}
	return found, nil
}
