package idemstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Version says which of two events of one entity is the newer one. At least one part is there. A number counts more
// than a time, for clocks are set.
type Version struct {
	Number *int64
	Time   string // UTC without a zone, no zeros at its end: 2026-11-29T10:00:00.25 sorts as the times do
}

// Entity is the thing that a job is an event of, and the version that the event brings.
type Entity struct {
	Kind    string
	ID      string // unique within the kind; 1 to 512 bytes
	Version Version
}

// Guard asks whether a task may send its event now.
type Guard struct {
	Entity
	TaskID int64
}

// GuardFound says what a guard came to. consumer's decideGuard is the table.
type GuardFound string

// What a guard may come to. Only GuardTaken permits a send.
const (
	GuardTaken   GuardFound = "taken"   // the task holds the guard
	GuardStale   GuardFound = "stale"   // this version or a newer one was applied by another task
	GuardHeld    GuardFound = "held"    // another task holds it
	GuardUnclear GuardFound = "unclear" // nothing can tell this version from the one that was applied
	GuardLocked  GuardFound = "locked"  // somebody is at the row right now
)

// Guarded is the answer to a Guard.
type Guarded struct {
	Found     GuardFound
	Applied   Version // the newest that is known to be applied
	AppliedBy int64   // the task that brought it; 0 if there is none
	Holder    int64   // the task that holds the guard
	// Wait is for GuardHeld: until the holder is due, or as long as it has been overdue or waiting for a person. Zero
	// while an attempt is at work on it. By the database clock.
	Wait time.Duration
}

// guardInsert makes the rows of entities that were never seen: $1 kinds, $2 entities.
const guardInsert = `/* settle:guard-insert */
insert into settle.entities (kind, entity)
select kind, entity from unnest($1::text[], $2::text[]) as u(kind, entity)
order by kind collate "C", entity collate "C"
on conflict (kind, entity) do nothing`

// guardLock takes the rows until the end of the transaction: $1 kinds, $2 entities. It is a statement of its own, because
// what is decided under the lock rests on the holders' rows as they are after the wait for it.
const guardLock = `/* settle:guard-lock */
select from settle.entities e
join unnest($1::text[], $2::text[]) as u(kind, entity) on e.kind = u.kind and e.entity = u.entity
order by e.kind, e.entity
for update of e`

// guardDecide decides and takes guards whose rows are locked: $1 kinds, $2 entities, $3 tasks, $4 numbers, $5 times. The
// holders' rows are read without a lock, and a save locks its task before the entity; so the two never wait for each
// other. A holder that is over, released or parked now can send again only after it has taken the guard anew.
var guardDecide = `/* settle:guard-decide */
with want as (
  select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])
    with ordinality as u(kind, entity, task_id, number, moment, n)
), facts as materialized (
  select w.*, e.version_number, e.version_time, e.applied_by, e.holder,
    ` + orderTo(`e.version_number`, `e.version_time`) + ` as applied,
    ` + orderTo(`e.holder_number`, `e.holder_time`) + ` as held,
    h.status, h.lease_until, h.unsure, h.next_attempt_at, h.updated_at
  from want w
    join settle.entities e on e.kind = w.kind and e.entity = w.entity
    left join settle.tasks h on h.id = e.holder and h.id <> w.task_id
), decided as materialized (
  select f.*,
    case
      when applied = 'older' or (applied = 'same' and applied_by is distinct from task_id) then 'stale'
      when status = 'unknown' or (status = 'started' and (lease_until is not null or unsure)) then 'held'
      when applied = 'unclear' then 'unclear'
      when status = 'needs_review' and unsure and held <> 'newer' then 'held'
      else 'taken'
    end as found
  from facts f
), taken as (
  update settle.entities e set holder = d.task_id, holder_number = d.number, holder_time = d.moment,
    updated_at = clock_timestamp()
  from decided d
  where d.found = 'taken' and e.kind = d.kind and e.entity = d.entity
)
select found, version_number, version_time, applied_by, holder,
  case
    when status = 'unknown' then abs(` + microseconds(`next_attempt_at - clock_timestamp()`) + `)
    when status = 'started' then greatest(0, ` + microseconds(`clock_timestamp() - lease_until`) + `)
    when status = 'needs_review' then greatest(0, ` + microseconds(`clock_timestamp() - updated_at`) + `)
    else 0
  end
from decided order by n`

// orderTo says how the version of w stands to another one.
func orderTo(number, moment string) string {
	compare := func(ours, theirs string) string {
		return `case when ` + ours + ` > ` + theirs + ` then 'newer' when ` + ours + ` = ` + theirs + ` then 'same' else 'older' end`
	}
	return `case when ` + number + ` is null and ` + moment + ` is null then 'none'
      when w.number is not null and ` + number + ` is not null then ` + compare(`w.number`, number) + `
      when w.moment is not null and ` + moment + ` is not null then ` + compare(`w.moment`, moment) + `
      else 'unclear' end`
}

// applyVersion rides with the save of a job whose effect is there: $1 kind, $2 entity, $3 number, $4 time, $5 task. Each
// part of the version only grows, so that an outcome that is learnt late takes nothing back; the task holds nothing
// any more. The row is made if there is none: the task may be older than its kind's guard.
const applyVersion = `/* settle:apply-version */
insert into settle.entities as e (kind, entity, version_number, version_time, applied_by)
values ($1::text, $2::text, $3::bigint, $4::text, $5::bigint)
on conflict (kind, entity) do update set
  version_number = greatest(e.version_number, excluded.version_number),
  version_time = greatest(e.version_time, excluded.version_time),
  applied_by = case when greatest(e.version_number, excluded.version_number) is distinct from e.version_number
                      or greatest(e.version_time, excluded.version_time) is distinct from e.version_time
                    then excluded.applied_by else e.applied_by end,
  holder = nullif(e.holder, excluded.applied_by),
  holder_number = case when e.holder is distinct from excluded.applied_by then e.holder_number end,
  holder_time = case when e.holder is distinct from excluded.applied_by then e.holder_time end,
  updated_at = clock_timestamp()`

// Guard takes the order guard for events that are about to be sent, each in one of the ways of GuardFound, in one
// transaction that is committed before it returns. An entity may appear once per call. The answers are in the order
// of the guards.
//
// It blocks for one round trip, longer only while the server lets nobody in. Guards that were taken stay taken, and
// taking one again is harmless, so it is repeated after a lost answer; on an error nothing may be sent.
func (s *Store) Guard(ctx context.Context, guards ...Guard) ([]Guarded, error) {
	var out []Guarded
	err := again(ctx, func(ctx context.Context) (err error) {
		out, err = s.guardOnce(ctx, guards)
		if sqlState(err) != lockTimeoutState {
			return repeatable(err)
		}
		if len(guards) > 1 { // one by one costs those less that nobody is in the way of
			return &notCommitted{err, false}
		}
		out = []Guarded{{Found: GuardLocked}}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return out, nil
}

func (s *Store) guardOnce(ctx context.Context, guards []Guard) (out []Guarded, err error) {
	var kinds, entities []string
	var tasks []int64
	var numbers []*int64
	var times []*string
	for _, g := range guards {
		kinds, entities, tasks = append(kinds, g.Kind), append(entities, g.ID), append(tasks, g.TaskID)
		numbers, times = append(numbers, g.Version.Number), append(times, orNull(g.Version.Time))
	}
	err = s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(guardInsert, kinds, entities)
		b.Queue(guardLock, kinds, entities)
		b.Queue(guardDecide, kinds, entities, tasks, numbers, times)
	}, func(r pgx.BatchResults) (err error) {
		out, err = readGuarded(r, len(guards))
		return err
	})
	return out, err
}

// readGuarded reads the answers to n guards.
func readGuarded(r pgx.BatchResults, n int) ([]Guarded, error) {
	for range 2 { // insert, lock
		if _, err := r.Exec(); err != nil {
			return nil, err
		}
	}
	rows, err := r.Query()
	if err != nil {
		return nil, err
	}
	out, err := pgx.CollectRows(rows, scanGuarded)
	if err == nil && len(out) != n {
		err = fmt.Errorf("%d answers to %d guards", len(out), n)
	}
	return out, err
}

func scanGuarded(row pgx.CollectableRow) (Guarded, error) {
	var (
		g          Guarded
		moment     *string
		by, holder *int64
		wait       int64
	)
	err := row.Scan(&g.Found, &g.Applied.Number, &moment, &by, &holder, &wait)
	g.Applied.Time, g.AppliedBy, g.Holder, g.Wait = value(moment), value(by), value(holder), microsecondsOf(&wait)
	return g, err
}

// queueVersions queues what the saves say about their entities, in the order in which guards are locked.
func queueVersions(b *pgx.Batch, saves []Save) {
	for _, x := range withVersions(saves) {
		b.Queue(applyVersion, x.Applied.Kind, clean(x.Applied.ID), x.Applied.Version.Number, orNull(clean(x.Applied.Version.Time)), x.TaskID)
	}
}

// readVersions reads the answers to queueVersions.
func readVersions(r pgx.BatchResults, saves []Save) error {
	for range withVersions(saves) {
		if _, err := r.Exec(); err != nil {
			return err
		}
	}
	return nil
}

func withVersions(saves []Save) (out []Save) {
	for _, x := range saves {
		if x.Applied != nil {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(x, y Save) int {
		return cmp.Or(cmp.Compare(x.Applied.Kind, y.Applied.Kind), cmp.Compare(x.Applied.ID, y.Applied.ID))
	})
	return out
}
