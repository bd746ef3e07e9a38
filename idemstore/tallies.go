package idemstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Tally is what workers came to with the tasks of one kind.
type Tally struct {
	Kind                                               string
	Finished, Failed, NeedsReview, Unknown, Duplicates int64
}

// Pulse is what a worker says of one kind, with what it has counted since it last did.
type Pulse struct {
	Tally
	Recovered   *time.Duration // how long ago recovery last chose among its tasks here; nil: it has not
	BreakerOpen bool           // of its provider
}

// addTallies adds to the minute that it is: $1 kinds in their order, $2 finished, $3 failed, $4 needs_review, $5 unknown,
// $6 duplicates, $7 microseconds since a recovery or null, $8 whether the breaker is open. The order keeps workers from
// waiting for each other in a circle.
const addTallies = `/* settle:add-tallies */
insert into settle.tallies as t (kind, minute, finished, failed, needs_review, unknown, duplicates, seen_at, recovered_at, breaker_at)
select x.kind, date_trunc('minute', c.at), x.finished, x.failed, x.needs_review, x.unknown, x.duplicates, c.at,
  c.at - x.recovered * interval '1 microsecond', case when x.breaker then c.at end
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[])
    as x (kind, finished, failed, needs_review, unknown, duplicates, recovered, breaker)
  cross join (select clock_timestamp() as at) c
order by x.kind
on conflict (kind, minute) do update set
  finished = t.finished + excluded.finished, failed = t.failed + excluded.failed,
  needs_review = t.needs_review + excluded.needs_review, unknown = t.unknown + excluded.unknown,
  duplicates = t.duplicates + excluded.duplicates, seen_at = greatest(t.seen_at, excluded.seen_at),
  recovered_at = greatest(t.recovered_at, excluded.recovered_at), breaker_at = greatest(t.breaker_at, excluded.breaker_at)`

// dropTallies drops those of these kinds ($1) that no chart shows. Rows that another worker is dropping are left to it.
const dropTallies = `/* settle:drop-tallies */
delete from settle.tallies where (kind, minute) in (
  select kind, minute from settle.tallies where kind = any($1) and minute < clock_timestamp() - interval '25 hours'
  for update skip locked)`

// AddTallies adds what was counted to the minute that it is by the database clock, and drops what is older than a day and an
// hour. The kinds are in ascending order, each once. An error leaves open whether it was added.
func (s *Store) AddTallies(ctx context.Context, pulses []Pulse) error {
	n := len(pulses)
	kinds, counts, recovered, open := make([]string, n), [5][]int64{}, make([]*int64, n), make([]bool, n)
	for i := range counts {
		counts[i] = make([]int64, n)
	}
	for i, p := range pulses {
		kinds[i], open[i] = p.Kind, p.BreakerOpen
		for j, c := range []int64{p.Finished, p.Failed, p.NeedsReview, p.Unknown, p.Duplicates} {
			counts[j][i] = c
		}
		if p.Recovered != nil {
			us := p.Recovered.Microseconds()
			recovered[i] = &us
		}
	}
	err := s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(addTallies, kinds, counts[0], counts[1], counts[2], counts[3], counts[4], recovered, open)
		b.Queue(dropTallies, kinds)
	}, func(r pgx.BatchResults) error {
		_, err := r.Exec()
		_, dropErr := r.Exec()
		return errors.Join(err, dropErr)
	})
	if err != nil {
		return fmt.Errorf("add what was counted: %w", err)
	}
	return nil
}

// Bar is what workers came to within one stretch of time.
type Bar struct {
	Ago int // stretches: 0 is the one up to now
	Tally
}

// tallied sums up by kind and stretches: $1 microseconds of a stretch, $2 how many of them.
const tallied = `/* settle:tallied */
select kind, floor(date_part('epoch', c.at - minute) * 1000000 / $1)::int as ago, sum(finished)::bigint, sum(failed)::bigint,
  sum(needs_review)::bigint, sum(unknown)::bigint, sum(duplicates)::bigint
from settle.tallies cross join (select clock_timestamp() as at) c
where minute > c.at - $1::bigint * $2::int * interval '1 microsecond' and minute <= c.at
group by 1, 2 order by 2, 1`

// Tallied gives what workers came to in the last n stretches, the latest first and within one by kind; those in which nothing
// was counted are left out. They are as exact as minutes are.
func (s *Store) Tallied(ctx context.Context, stretch time.Duration, n int) ([]Bar, error) {
	bars, err := query(ctx, s, func(row pgx.CollectableRow) (b Bar, err error) {
		err = row.Scan(&b.Kind, &b.Ago, &b.Finished, &b.Failed, &b.NeedsReview, &b.Unknown, &b.Duplicates)
		return b, err
	}, tallied, stretch.Microseconds(), n)
	if err != nil {
		return nil, fmt.Errorf("read what was counted: %w", err)
	}
	return bars, nil
}

// Served is how a kind was served in the last day.
type Served struct {
	Kind        string
	Seen        time.Duration  // since a worker last said something of it
	Recovered   *time.Duration // since recovery last chose among its tasks; nil: it did not
	BreakerOpen bool           // a worker said so within the last half minute
}

const served = `/* settle:served */
select kind, (date_part('epoch', c.at - max(seen_at)) * 1000000)::bigint, (date_part('epoch', c.at - max(recovered_at)) * 1000000)::bigint,
  coalesce(max(breaker_at) > c.at - interval '30 seconds', false)
from settle.tallies cross join (select clock_timestamp() as at) c
group by kind, c.at order by kind`

// ServedKinds gives the kinds that workers served in the last day, by name.
func (s *Store) ServedKinds(ctx context.Context) ([]Served, error) {
	all, err := query(ctx, s, func(row pgx.CollectableRow) (k Served, err error) {
		var seen int64
		var recovered *int64
		err = row.Scan(&k.Kind, &seen, &recovered, &k.BreakerOpen)
		k.Seen = microsecondsOf(&seen)
		if recovered != nil {
			d := microsecondsOf(recovered)
			k.Recovered = &d
		}
		return k, err
	}, served)
	if err != nil {
		return nil, fmt.Errorf("read which kinds are served: %w", err)
	}
	return all, nil
}
