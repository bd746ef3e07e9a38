package idemstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Archiving moves the heavy columns of old final rows to settle.tasks_archive and slims the row in place. The row stays,
// so a claim has one table to look at, and finds one of two forms of the same row. What a slim row keeps beside the
// content hash is a digest of the exact bytes, so that a repeat is told from a conflict as before.
//
// Workers never wait for long: rows that somebody holds are passed over, a batch is one short transaction, and the
// server ends one that takes longer than archiveLimit.

// ErrNotArchived: the task has all its columns.
var ErrNotArchived = errors.New("task is not archived")

const (
	archiveLimit  = 900 * time.Millisecond // for the statement that holds row locks; less than maxLockTimeout
	archivePage   = 5000                   // rows looked at in one transaction
	archiveBytes  = 4 << 20                // payload moved in one transaction, beyond the first row
	archiveBatch  = 100                    // rows changed in one transaction
	archiveOfPage = 4                      // rows of one page of the table changed in one transaction
	archiveAhead  = 4                      // due rows looked at for each one changed
)

// Slice selects the rows that one transaction goes through, in the order of their ids.
type Slice struct {
	After int64 // rows with an id above this one
	Limit int   // at most so many are changed; 0: 100
	Dry   bool  // nothing is changed, only counted
}

// limit is how many rows are changed.
func (s Slice) limit() int {
	if s.Limit <= 0 {
		return archiveBatch
	}
	return min(s.Limit, archiveBatch)
}

// Archived is what one transaction did.
type Archived struct {
	Tasks   int   // rows that were slimmed, or would be
	Bytes   int64 // of payload, result and answer
	Waiting int   // due, but with events that are not published yet, or in somebody's hands
	Through int64 // the id from which to go on
	Done    bool  // there are no rows behind it
}

// Archive slims one batch of final rows whose time has come (expires_at) and whose events are all published. It looks
// at no more than a few thousand rows, so many calls change nothing; call it until Done, and leave a pause behind those
// that did. It blocks for one round trip, whose locks last less than a second; a batch that is too large for that is
// tried again with half as many rows.
func (s *Store) Archive(ctx context.Context, slice Slice) (out Archived, err error) {
	limit := slice.limit()
	fill := func(b *pgx.Batch) {
		b.Queue(archive, slice.After, archivePage, archiveAhead*limit, limit, archiveBytes, archiveOfPage)
	}
	if slice.Dry {
		fill = func(b *pgx.Batch) { b.Queue(archiveDry, slice.After, archivePage, limit) }
	}
	err = s.sweep(ctx, &limit, fill, func(row pgx.Row) error {
		return row.Scan(&out.Tasks, &out.Bytes, &out.Waiting, &out.Through, &out.Done)
	})
	if err != nil {
		return Archived{}, fmt.Errorf("archive tasks: %w", err)
	}
	return out, nil
}

// Forgotten is what one transaction did.
type Forgotten struct {
	Tasks   int
	Through int64
	Done    bool
}

// Forget deletes final rows, key and all, that nobody has heard of for proof: neither finished nor repeated since. A
// repeat that comes later is a new task, so proof has to be longer than any way on which a job can come again. Rows
// whose retention is not over, or with events that are not published yet, stay. Audit, progress and archive of the rows go
// with them; refusals stay, without the task. Search terms are swept by SweepRefs. Call it like Archive.
func (s *Store) Forget(ctx context.Context, slice Slice, proof time.Duration) (out Forgotten, err error) {
	if proof <= 0 {
		return out, errors.New("forget tasks: the proof retention must be positive; 0 keeps rows for ever")
	}
	sql := forget
	if slice.Dry {
		sql = forgetDry
	}
	limit := slice.limit()
	err = s.sweep(ctx, &limit, func(b *pgx.Batch) { b.Queue(sql, slice.After, archivePage, limit, proof.Microseconds()) },
		func(row pgx.Row) error { return row.Scan(&out.Tasks, &out.Through, &out.Done) })
	if err != nil {
		return Forgotten{}, fmt.Errorf("forget tasks: %w", err)
	}
	return out, nil
}

// RefPlace is a place in the order of search terms. The zero value is before all of them.
type RefPlace struct {
	Name, Value string
	TaskID      int64
}

// SweepRefs deletes search terms of tasks that Forget has deleted, looking at a few thousand from a place on. It
// returns how many went, and the next place; done says that there are no more. Such terms are found by no search, so
// nothing hurries.
func (s *Store) SweepRefs(ctx context.Context, from RefPlace) (deleted int, next RefPlace, done bool, err error) {
	limit := archivePage
	err = s.sweep(ctx, &limit, func(b *pgx.Batch) { b.Queue(sweepRefs, from.Name, from.Value, from.TaskID, limit) },
		func(row pgx.Row) error { return row.Scan(&deleted, &next.Name, &next.Value, &next.TaskID, &done) })
	if err != nil {
		return 0, from, false, fmt.Errorf("sweep search terms: %w", err)
	}
	return deleted, next, done, nil
}

// sweep runs one statement that answers with one row, under archiveLimit. Where that is too short it is run again
// with half the limit. All such statements may be repeated.
func (s *Store) sweep(ctx context.Context, limit *int, fill func(*pgx.Batch), scan func(pgx.Row) error) error {
	for {
		err := again(ctx, func(ctx context.Context) error {
			return repeatable(s.transact(ctx, func(b *pgx.Batch) {
				b.Queue(limitStatements, strconv.FormatInt(archiveLimit.Milliseconds(), 10))
				fill(b)
			}, func(r pgx.BatchResults) error {
				if _, err := r.Exec(); err != nil {
					return err
				}
				return scan(r.QueryRow())
			}))
		})
		if sqlState(err) != canceledState || ctx.Err() != nil || *limit == 1 {
			return err
		}
		*limit /= 2
	}
}

// Restore gives an archived task its heavy columns back and keeps them there for keep, at least. The audit says who
// did it and why. Errors: ErrNotFound, ErrNotArchived.
func (s *Store) Restore(ctx context.Context, id int64, keep time.Duration, by By) error {
	var there, archived, restored bool
	err := again(ctx, func(ctx context.Context) error {
		err := repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(restore, id, keep.Microseconds(), clean(by.Actor), clean(by.Reason), traceID(by.Trace))
		}, func(r pgx.BatchResults) error { return r.QueryRow().Scan(&there, &archived, &restored) }))
		if err == nil && archived && !restored { // archived while the statement waited for the row
			return &notCommitted{errors.New("the archive changed meanwhile"), true}
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("restore task %d: %w", id, err)
	case !there:
		return fmt.Errorf("restore task %d: %w", id, ErrNotFound)
	case !archived:
		return fmt.Errorf("restore task %d: %w", id, ErrNotArchived)
	}
	return nil
}

const limitStatements = `/* settle:limit-statements */ select set_config('statement_timeout', $1, true)`

// archiveDue are the rows behind $1 that are due, before they are locked: at most $3 of them, out of at most $2 rows that
// are looked at.
const archiveDue = `due as materialized (
  select t.id, t.at_page, exists (select from settle.outbox o where o.task_id = t.id) as waiting,
    octet_length(t.payload) + coalesce(octet_length(t.result), 0) + coalesce(octet_length(t.answer), 0) as bytes
  from (select t.*, (t.ctid::text::point)[0] as at_page from settle.tasks t where t.id > $1::bigint order by t.id limit $2::int) t
  where ` + archivable + ` order by t.id limit $3::int
)`

const archivable = `t.status in ('finished', 'failed') and t.archived_at is null and t.expires_at <= clock_timestamp()`

// archive slims at most $4 rows, of $5 bytes together beyond the first, and no more of a page of the table than find room
// on it for their slim form: such a row needs no new index entries. The others of the page come with the next call, when
// the old forms are gone. Whether a row is due is judged once more under its lock: a person may have taken it up again.
const archive = `/* settle:archive */
with ` + archiveDue + `, fits as materialized (
  select id, bytes from (
    select id, bytes, row_number() over w as n, sum(bytes) over w - bytes as before
    from (select id, bytes, row_number() over (partition by at_page order by id) as n from due where not waiting) d
    where d.n <= $6::int window w as (order by id)) d
  where d.n <= $4::int and d.before < $5::bigint
), held as materialized (
  select t.id, t.payload, t.result, t.answer
  from fits f join settle.tasks t on t.id = f.id where ` + archivable + `
  order by t.id for update of t skip locked
), kept as (
  insert into settle.tasks_archive (task_id, payload, result, answer)
  select id, payload, result, answer from held
  on conflict (task_id) do update set payload = excluded.payload, result = excluded.result, answer = excluded.answer,
    archived_at = clock_timestamp()
), slimmed as (
  update settle.tasks t set payload = '\x', payload_digest = sha256(h.payload), result = null, answer = null,
    archived_at = clock_timestamp()
  from held h where t.id = h.id
  returning t.id
), rest as (
  -- What is left for the next call, which passes over all that was tried before it.
  select min(id) as id from due where not waiting and id not in (select id from fits)
), step as (
  select coalesce((select id - 1 from rest), ` + archiveOn + `) as through
)
select (select count(*) from slimmed), coalesce((select sum(bytes) from fits where id in (select id from slimmed)), 0),
  (select count(*) from due where id <= step.through and id not in (select id from slimmed)), step.through,
  (select id from rest) is null and ` + archiveOver + `
from step`

// archiveDry says what archive would do.
const archiveDry = `/* settle:archive-dry */
with ` + archiveDue + `
select (select count(*) from due where not waiting), coalesce((select sum(bytes) from due where not waiting), 0),
  (select count(*) from due where waiting), ` + archiveOn + `, ` + archiveOver

// archiveOn is the last row that was looked at: the last one that is due, if there may be more, else the last of all.
const archiveOn = `case when (select count(*) from due) = $3 then (select max(id) from due)
    else coalesce((select max(id) from (select t.id from settle.tasks t where t.id > $1 order by t.id limit $2) t), $1) end`

// archiveOver says that there are no rows behind those that were looked at.
const archiveOver = `(select count(*) from due) < $3
    and (select count(*) from (select from settle.tasks t where t.id > $1 order by t.id limit $2) t) < $2`

// forgetPages are the rows that one transaction looks at, and those that may go ($4: for how long nobody has heard of
// them, in microseconds).
const forgetPages = `page as materialized (
  select t.id from settle.tasks t where t.id > $1::bigint order by t.id limit $2::int
), old as materialized (
  select t.id from page p join settle.tasks t on t.id = p.id where ` + forgettable + ` order by t.id limit $3::int
)`

const forgettable = `t.status in ('finished', 'failed') and t.expires_at <= clock_timestamp()
    and greatest(t.finished_at, t.last_duplicate_at) + $4::bigint * interval '1 microsecond' <= clock_timestamp()
    and not exists (select from settle.outbox o where o.task_id = t.id)`

// forget deletes the rows of one page, and what belongs to them alone.
const forget = `/* settle:forget */
with ` + forgetPages + `, held as materialized (
  select t.id from old o join settle.tasks t on t.id = o.id
  where ` + forgettable + `
  order by t.id for update of t skip locked
), events as (
  delete from settle.task_events e using held h where e.task_id = h.id
), progress as (
  delete from settle.steps s using held h where s.task_id = h.id
), heavy as (
  delete from settle.tasks_archive r using held h where r.task_id = h.id
), refused as (
  update settle.refusals r set task_id = null from held h where r.task_id = h.id
), gone as (
  delete from settle.tasks t using held h where t.id = h.id returning t.id
)
select (select count(*) from gone), ` + forgetOn

const forgetDry = `/* settle:forget-dry */
with ` + forgetPages + `
select (select count(*) from old), ` + forgetOn

const forgetOn = `  case when (select count(*) from old) = $3 then (select max(id) from old) else coalesce((select max(id) from page), $1) end,
  (select count(*) from page) < $2 and (select count(*) from old) < $3`

// sweepRefs: $1, $2 and $3 the place after which to look, $4 how many to look at.
const sweepRefs = `/* settle:sweep-refs */
with page as materialized (
  select r.name, r.value, r.task_id from settle.task_refs r where (r.name, r.value, r.task_id) > ($1::text, $2::text, $3::bigint)
  order by r.name, r.value, r.task_id limit $4::int
), gone as (
  delete from settle.task_refs r using page p
  where r.name = p.name and r.value = p.value and r.task_id = p.task_id
    and not exists (select from settle.tasks t where t.id = p.task_id)
  returning r.task_id
), last as (
  select * from page order by name desc, value desc, task_id desc limit 1
)
select (select count(*) from gone), coalesce((select name from last), $1), coalesce((select value from last), $2),
  coalesce((select task_id from last), $3), (select count(*) from page) < $4`

// restore: $1 task, $2 how long to keep it from now on, $3 actor, $4 reason, $5 trace id.
const restore = `/* settle:restore */
with held as materialized (
  select t.id, t.archived_at from settle.tasks t where t.id = $1 for update of t
), taken as (
  delete from settle.tasks_archive r using held h where r.task_id = h.id and h.archived_at is not null
  returning r.task_id, r.payload, r.result, r.answer
), back as (
  update settle.tasks t set payload = r.payload, payload_digest = null, result = r.result, answer = r.answer, archived_at = null,
    expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
  from taken r where t.id = r.task_id
  returning t.id, t.status, t.attempts
), noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, trace_id)
  select id, $3, attempts, status, status, 'restored from the archive: ' || $4::text, $5 from back
)
select exists (select from held), exists (select from held where archived_at is not null), exists (select from back)`
