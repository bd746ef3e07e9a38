package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A census counts what is not over. It is read often, by every worker, beside any number of final rows: so it reads partial
// indexes that those are not in, and stops at a limit. Beside three million final rows it takes a fifth of a millisecond where
// nothing is open, and a tenth of a second with more open tasks than the limit.

// censusLimit bounds what one census looks at: so many open tasks, parked ones, and rows of the outbox.
const censusLimit = 100_000

// Pile is how many there are of something, and how old the oldest is.
type Pile struct {
	Count  int
	Oldest time.Duration // by the database clock; 0 if there is none
}

// OpenTasksOf is where the tasks of a kind stand that are not over.
type OpenTasksOf struct {
	Started, Unknown, Parked Pile
	Held                     int // those of Started that an attempt holds
}

// Census is what is not over in the whole database.
type Census struct {
	Open                     map[string]OpenTasksOf // by kind; kinds with nothing open are left out
	OutboxJobs, OutboxEvents Pile

	// The limit was reached: counts and ages are lower bounds, and nothing is known of kinds that were not seen.
	OpenCut, ParkedCut bool
}

// census: $1 limit. Its two parts read tasks_open and tasks_parked, whatever else is in the table, each in the order of the
// index: of the open tasks those that are due first, of the parked ones the oldest.
var census = `/* settle:census */
select kind, status, count(*)::int, count(*) filter (where held)::int, ` + microseconds(`max(age)`) + `
from (select clock_timestamp() as at) as c cross join lateral (
  (select kind, status, c.at - created_at as age, lease_until > c.at and lease_until <= c.at + interval '1 day' as held
   from settle.tasks where status in ('started', 'unknown') order by next_attempt_at, id limit $1)
  union all
  (select kind, status, c.at - created_at, false from settle.tasks where status = 'needs_review' order by id limit $1)
) as t
group by kind, status`

// outboxCensus: $1 limit, $2 what the subjects of jobs begin with. Ids are given out in the order of age.
var outboxCensus = `/* settle:outbox-census */
select starts_with(subject, $2), count(*)::int, ` + microseconds(`clock_timestamp() - min(created_at)`) + `
from (select subject, created_at from settle.outbox order by id limit $1) as o
group by 1`

// byIndex holds for the transaction: statistics of a moment when most tasks were open would have the planner read them all, and
// it would rather sort 100,000 rows, in a file, than hash them into a few groups.
const byIndex = `/* settle:by-index */ select set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true)`

// Census counts what is not over. It looks at no more than 100,000 open tasks, as many parked ones, and as many rows of the
// outbox; a count that has reached that is a lower bound.
func (s *Store) Census(ctx context.Context) (*Census, error) {
	c := &Census{Open: map[string]OpenTasksOf{}}
	err := s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(byIndex)
		b.Queue(census, censusLimit)
		b.Queue(outboxCensus, censusLimit, "jobs.")
	}, c.read)
	if err != nil {
		return nil, fmt.Errorf("count what is not over: %w", err)
	}
	c.cut(censusLimit)
	return c, nil
}

// cut finds out whether a part of the census has reached the limit.
func (c *Census) cut(limit int) {
	open, parked := 0, 0
	for _, o := range c.Open {
		open, parked = open+o.Started.Count+o.Unknown.Count, parked+o.Parked.Count
	}
	c.OpenCut, c.ParkedCut = open >= limit, parked >= limit
}

// read takes the answers in, in the order of the statements.
func (c *Census) read(r pgx.BatchResults) error {
	if _, err := r.Exec(); err != nil {
		return err
	}
	for _, add := range []pgx.RowToFunc[struct{}]{c.addTasks, c.addOutbox} {
		rows, err := r.Query()
		if err == nil {
			_, err = pgx.CollectRows(rows, add)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Census) addTasks(row pgx.CollectableRow) (none struct{}, err error) {
	var (
		kind   string
		status Status
		p      Pile
		held   int
		oldest int64
	)
	if err := row.Scan(&kind, &status, &p.Count, &held, &oldest); err != nil {
		return none, err
	}
	p.Oldest = microsecondsOf(&oldest)
	o := c.Open[kind]
	//nolint:exhaustive // the others are over, and not asked for
	switch status {
	case Started:
		o.Started, o.Held = p, held
	case Unknown:
		o.Unknown = p
	case NeedsReview:
		o.Parked = p
	}
	c.Open[kind] = o
	return none, nil
}

func (c *Census) addOutbox(row pgx.CollectableRow) (none struct{}, err error) {
	var (
		jobs   bool
		p      Pile
		oldest int64
	)
	if err := row.Scan(&jobs, &p.Count, &oldest); err != nil {
		return none, err
	}
	p.Oldest = microsecondsOf(&oldest)
	if jobs {
		c.OutboxJobs = p
	} else {
		c.OutboxEvents = p
	}
	return none, nil
}
