package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Lists of what people look after, for screens: a page at a time, quick however many rows there are. A page reads a bounded
// part of an index, in its order, and never counts rows that it skips.

const pageLook = 20_000 // rows that one page reads of parked or failed tasks

// Listing asks for a page of the tasks in one status.
type Listing struct {
	Status Status        // Started, Unknown, NeedsReview (the oldest first) or Failed (the newest first)
	Kind   string        // empty: all kinds
	Newer  time.Duration // only tasks that are at most this old, by the database clock; 0: of any age
	Older  time.Duration // only tasks that are at least this old
	After  int64         // for paging: Next of the page before
	Limit  int           // 50
}

// Page is a page of tasks, without payload, result and answer.
type Page struct {
	Tasks []Task
	// Next is what follows this page, 0: nothing. A page may be short, or empty, and be followed by more.
	Next int64
	// Cut is set where more tasks are open than a page looks at, 100,000: it is about those that are due first.
	Cut bool
}

// wantedOf are the rows of looked that a page shows ($2 kind, $3 and $4 ages in microseconds, $5 how many), and how far it
// has looked.
const wantedOf = `
), wanted as (
  select id from looked
  where ($2::text is null or kind = $2)
    and ($3::bigint = 0 or created_at >= (select clock_timestamp()) - $3::bigint * interval '1 microsecond')
    and created_at <= (select clock_timestamp()) - $4::bigint * interval '1 microsecond'
`

// pageOfParked: $1 after this id, $6 how many to look at. It reads tasks_parked.
const pageOfParked = `/* settle:page-of-parked */
with looked as materialized (
  select id, kind, created_at from settle.tasks where status = 'needs_review' and id > $1 order by id limit $6` + wantedOf + `
  order by id limit $5
)
select coalesce((select array_agg(id) from wanted), '{}'), coalesce((select max(id) from looked), 0), (select count(*)::int from looked)`

// pageOfFailed is the same backwards. It reads tasks_failed.
const pageOfFailed = `/* settle:page-of-failed */
with looked as materialized (
  select id, kind, created_at from settle.tasks where status = 'failed' and ($1 = 0 or id < $1) order by id desc limit $6` + wantedOf + `
  order by id desc limit $5
)
select coalesce((select array_agg(id) from wanted), '{}'), coalesce((select min(id) from looked), 0), (select count(*)::int from looked)`

// pageOfOpen: $7 status. The order of tasks_open is that of due times, which change: so it looks at all open tasks.
const pageOfOpen = `/* settle:page-of-open */
with looked as materialized (
  select id, kind, created_at, status from settle.tasks where status in ('started', 'unknown') order by next_attempt_at, id limit $6` + wantedOf + `
    and status = $7 and id > $1
  order by id limit $5
)
select coalesce((select array_agg(id) from wanted), '{}'), 0::bigint, (select count(*)::int from looked)`

// tasksOfPage: $1 ids, $2 status. A task that has moved on meanwhile is left out.
const tasksOfPage = `/* settle:tasks-of-page */
select ` + lightColumns + ` from settle.tasks t where t.id = any($1) and t.status = $2 order by array_position($1::bigint[], t.id)`

// looked is what a page has found out about its part of an index.
type looked struct {
	ids  []int64
	last int64 // the last id that it has read
	rows int   // how many it has read
}

// Page returns a page of tasks. It blocks for two round trips.
func (s *Store) Page(ctx context.Context, l Listing) (Page, error) {
	if l.Limit <= 0 {
		l.Limit = 50
	}
	found, look, err := s.look(ctx, l)
	if err != nil {
		return Page{}, fmt.Errorf("list %s tasks: %w", l.Status, err)
	}
	p := Page{Next: l.next(found, look), Cut: look == censusLimit && found.rows == look}
	if len(found.ids) > 0 {
		p.Tasks, err = query(ctx, s, scanTask, tasksOfPage, found.ids, l.Status)
	}
	if err != nil {
		return Page{}, fmt.Errorf("list %s tasks: %w", l.Status, err)
	}
	return p, nil
}

// look reads the part of an index that a page is about, of at most so many rows.
func (s *Store) look(ctx context.Context, l Listing) (found looked, look int, err error) {
	sql, look := "", pageLook
	args := []any{l.After, orNull(l.Kind), l.Newer.Microseconds(), l.Older.Microseconds(), l.Limit}
	switch l.Status {
	case NeedsReview:
		sql, args = pageOfParked, append(args, look)
	case Failed:
		sql, args = pageOfFailed, append(args, look)
	case Started, Unknown:
		look = censusLimit
		sql, args = pageOfOpen, append(args, look, l.Status)
	case Finished:
		return found, 0, fmt.Errorf("%s tasks are searched for, not listed", l.Status)
	}
	err = again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(byIndex)
			b.Queue(sql, args...)
		}, func(r pgx.BatchResults) error {
			if _, err := r.Exec(); err != nil {
				return err
			}
			return r.QueryRow().Scan(&found.ids, &found.last, &found.rows)
		}))
	})
	return found, look, err
}

// next is where the page after this one begins.
func (l Listing) next(found looked, look int) int64 {
	switch full := len(found.ids) == l.Limit; {
	case full:
		return found.ids[l.Limit-1]
	case l.Status != Started && l.Status != Unknown && found.rows == look:
		return found.last // nothing more in the part that was looked at, but there are other parts
	}
	return 0
}

// failedCensus: $1 how many to look at.
const failedCensus = `/* settle:failed-census */
select kind, count(*)::int, ` + `(extract(epoch from clock_timestamp() - min(created_at)) * 1000000)::bigint` + `
from (select kind, created_at from settle.tasks where status = 'failed' order by id desc limit $1) t group by kind`

// FailedOf counts the failed tasks of each kind that has any, of the newest 100,000 of all kinds.
func (s *Store) FailedOf(ctx context.Context) (map[string]Pile, error) {
	out, err := pilesBy[string](ctx, s, failedCensus, censusLimit)
	if err != nil {
		return nil, fmt.Errorf("count failed tasks: %w", err)
	}
	return out, nil
}

// pilesBy reads rows of a name, a count and the age of the oldest in microseconds.
func pilesBy[K ~string](ctx context.Context, s *Store, sql string, args ...any) (map[K]Pile, error) {
	out := map[K]Pile{}
	_, err := query(ctx, s, func(row pgx.CollectableRow) (none struct{}, err error) {
		var name K
		var p Pile
		var oldest int64
		err = row.Scan(&name, &p.Count, &oldest)
		p.Oldest = microsecondsOf(&oldest)
		out[name] = p
		return none, err
	}, sql, args...)
	return out, err
}

// refusedBy: $1 microseconds.
const refusedBy = `/* settle:refused-by */
select reason, count(*)::int, (extract(epoch from clock_timestamp() - min(at)) * 1000000)::bigint
from settle.refusals where at >= (select clock_timestamp()) - $1::bigint * interval '1 microsecond' group by reason`

// RefusedBy counts the messages that were refused at most so long ago, by reason.
func (s *Store) RefusedBy(ctx context.Context, within time.Duration) (map[Reason]Pile, error) {
	out, err := pilesBy[Reason](ctx, s, refusedBy, within.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("count refusals: %w", err)
	}
	return out, nil
}
