package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DueFilter selects a page of tasks for recovery.
type DueFilter struct {
	Kind  string
	After DueCursor // what the page before was answered with; zero: the first page
	Limit int       // 100
}

// DueCursor is a place in the order of due tasks, and the moment by which a task had to be due: what becomes due while
// the pages are read is left to the next time, so that they come to an end.
type DueCursor struct {
	at    time.Time // next_attempt_at of the last task
	id    int64
	until *time.Time
}

// Due returns tasks of a kind that are started or unknown, that nobody holds, and whose time has come: the longest due
// first, without those that somebody has locked right now. Only Fence, Kind, Key, Status, LeaseUntil, NextAttemptAt and
// OriginTrace are filled in. The cursor is for the next page; there is none after one that is not full.
//
// This only chooses: Claim decides, under the row's lock, and may find that somebody else came first.
func (s *Store) Due(ctx context.Context, f DueFilter) ([]Task, DueCursor, error) {
	var (
		found []Task
		next  = f.After
	)
	err := again(ctx, func(ctx context.Context) error {
		found = nil
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(planInOrder)
			b.Queue(due, f.Kind, f.After.at, f.After.id, f.After.until, limitOf(f.Limit))
		}, func(r pgx.BatchResults) error {
			rows, err := afterSetting(r)
			if err != nil {
				return err
			}
			var t Task
			_, err = pgx.ForEachRow(rows, []any{&t.TaskID, &t.Attempt, &t.Token, &t.Kind, &t.Key, &t.Status, &t.LeaseUntil, &t.OriginTrace,
				&t.NextAttemptAt, &next.until}, func() error {
				found = append(found, t)
				return nil
			})
			return err
		}))
	})
	if err != nil {
		return nil, f.After, fmt.Errorf("choose due tasks: %w", err)
	}
	if len(found) > 0 {
		last := found[len(found)-1]
		next.at, next.id = last.NextAttemptAt, last.TaskID
	}
	return found, next, nil
}

// afterSetting reads the answer to a setting and returns the rows that come after it.
func afterSetting(r pgx.BatchResults) (pgx.Rows, error) {
	if _, err := r.Exec(); err != nil {
		return nil, err
	}
	return r.Query()
}

// ParkedFilter selects tasks that wait for a person.
type ParkedFilter struct {
	Kind   string
	TaskID int64         // only this one; 0: any
	Again  time.Duration // they are not chosen again before this has passed
	Limit  int           // 100
}

// TakeParked chooses tasks of a kind that are parked only because budget or age was used up, the longest unasked first,
// and puts off their next time by f.Again in the same statement: whoever gets one is the only one who asks about it
// meanwhile. Nothing else of the row is changed, and nothing of it is held. It is not repeated when its answer is lost:
// those tasks are asked about later.
func (s *Store) TakeParked(ctx context.Context, f ParkedFilter) ([]Task, error) {
	var found []Task
	err := s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(planInOrder)
		b.Queue(takeParked, f.Kind, orNull(f.TaskID), f.Again.Microseconds(), limitOf(f.Limit))
	}, func(r pgx.BatchResults) error {
		rows, err := afterSetting(r)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scanTask)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("choose parked tasks: %w", err)
	}
	return found, nil
}

// RecoverableFilter selects what a recovery by hand is about.
type RecoverableFilter struct {
	Kinds             []string // started and unknown tasks of these kinds
	Asked             []string // and of these, which can be asked about, tasks that budget or age has parked
	OlderThan, Within time.Duration
	Limit             int // 100
}

// Recoverable is a task as a recovery by hand finds it.
type Recoverable struct {
	Task
	Now time.Time // by the database clock
}

// Recoverable lists tasks that are not settled and were created at least f.OlderThan and at most f.Within ago, the oldest
// first. It locks nothing and changes nothing, and includes tasks that somebody holds or that are not due.
func (s *Store) Recoverable(ctx context.Context, f RecoverableFilter) ([]Recoverable, error) {
	found, err := query(ctx, s, scanRecoverable, recoverable, f.Kinds, f.Asked, f.OlderThan.Microseconds(), f.Within.Microseconds(),
		limitOf(f.Limit))
	if err != nil {
		return nil, fmt.Errorf("list recoverable tasks: %w", err)
	}
	return found, nil
}

// scanRecoverable reads the clock, and then the task.
func scanRecoverable(row pgx.CollectableRow) (r Recoverable, err error) {
	r.Task, err = scanTask(behind{row, &r.Now})
	return r, err
}

// behind is a row with one column before those that the reader asks for.
type behind struct {
	pgx.CollectableRow
	first any
}

// Scan reads the first column as well.
func (b behind) Scan(dest ...any) error {
	return b.CollectableRow.Scan(append([]any{b.first}, dest...)...)
}

func limitOf(n int) int {
	if n <= 0 {
		return 100
	}
	return n
}
