package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CheckIn asks for a worker's part of what a provider may be given by all workers together.
type CheckIn struct {
	Provider string
	Worker   uuid.UUID // one run of an engine

	Rate, Flights int // what all workers together may have: parts of the rate, requests in flight. 0: that is not capped

	// What the worker may use of each at this moment, or does use, whichever is more. It keeps counting as the
	// worker's until the next check-in, so that nobody else is given it meanwhile.
	HoldsRate, HoldsFlights int

	Lease time.Duration // how long the others leave it what it is granted, if it does not check in again
}

// Grant is a worker's part. The worker may use it for one lease, counted from before it asked, minus the time that
// requests take which it begins at the end of that.
type Grant struct {
	Rate, Flights int
	Workers       int // that share the provider now, this one included
}

// lockWorkers makes check-ins for one provider ($1) come one after the other: each sees what the one before it was
// granted.
const lockWorkers = `/* settle:lock-workers */
select pg_advisory_xact_lock(hashtextextended('settle.workers ' || $1, 0))`

// checkIn grants worker $2 of provider $1 its fair part of rate $3 and flights $4, as far as the others leave it; the
// remainder goes to the first ones by id. The row holds what the worker uses already ($5, $6) as well, until it says
// that it uses less. So the rows that are live never add up to more than the cap, unless a worker that had vanished
// comes back with requests still in flight; nobody sends more until those have ended.
const checkIn = `/* settle:check-in */
with others as materialized (
  select count(*)::int as n, count(*) filter (where id < $2)::int as earlier,
    coalesce(sum(rate), 0)::int as rate, coalesce(sum(flights), 0)::int as flights
  from settle.workers where provider = $1 and id <> $2 and until > clock_timestamp()
), grants as (
  select n + 1 as workers,
    greatest(0, least($3::int / (n + 1) + (earlier < $3::int % (n + 1))::int, $3::int - rate)) as rate,
    greatest(0, least($4::int / (n + 1) + (earlier < $4::int % (n + 1))::int, $4::int - flights)) as flights
  from others
), gone as (
  delete from settle.workers where provider = $1 and id <> $2 and until <= clock_timestamp()
), mine as (
  insert into settle.workers (provider, id, rate, flights, until)
  select $1, $2, greatest(rate, $5::int), greatest(flights, $6::int), clock_timestamp() + $7::bigint * interval '1 microsecond'
  from grants
  on conflict (provider, id) do update
    set rate = excluded.rate, flights = excluded.flights, until = excluded.until, seen_at = clock_timestamp()
)
select rate, flights, workers from grants`

// checkOut leaves what a worker had to the others, a second after it: the second that a rate is counted in.
const checkOut = `/* settle:check-out */
update settle.workers set until = least(until, clock_timestamp() + interval '1 second') where id = $1`

// CheckIn asks for a worker's part of a provider's cap. It blocks for one round trip, and up to the lock timeout for
// other workers that check in. After an error nothing was granted, and what was granted before still holds for its time.
func (s *Store) CheckIn(ctx context.Context, c CheckIn) (g Grant, err error) {
	err = s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(lockWorkers, c.Provider)
		b.Queue(checkIn, c.Provider, c.Worker, c.Rate, c.Flights, c.HoldsRate, c.HoldsFlights, c.Lease.Microseconds())
	}, func(r pgx.BatchResults) error {
		if _, err := r.Exec(); err != nil {
			return err
		}
		return r.QueryRow().Scan(&g.Rate, &g.Flights, &g.Workers)
	})
	if err != nil {
		return Grant{}, fmt.Errorf("check in: %w", err)
	}
	return g, nil
}

// CheckOut gives back what a worker was granted at all providers. Without it the others wait for the end of its lease.
func (s *Store) CheckOut(ctx context.Context, worker uuid.UUID) error {
	err := again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) { b.Queue(checkOut, worker) }, func(r pgx.BatchResults) error {
			_, err := r.Exec()
			return err
		}))
	})
	if err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	return nil
}
