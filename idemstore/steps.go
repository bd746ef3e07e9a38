package idemstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Steps of resumable jobs: each record with its progress row in one transaction, under the fence.

// holdStep is holdRow for one step ($1 id, $2 attempt, $3 token). The lease must still run, for whoever lost it may be followed
// by another attempt at the same step; but not ($4) where a step that outlasted it is only set aside: that the task is still
// this attempt's is enough, for under the lock nobody else begins.
const holdStep = `/* settle:hold-step */
with held as materialized (
  select t.id, t.lease_until from settle.tasks t
  where t.id = $1 and t.attempts = $2 and t.token = $3 and t.status = 'started' for update of t
)
select settle.fence(exists (select from held where $4::boolean or lease_until > clock_timestamp()), $1)`

// renewStep moves the lease on ($2, microseconds) at the end of a step, when half of it is over or all: a heartbeat rarely gets
// at a row that steps have locked, and not at all while one of them lasts longer than the lease.
const renewStep = `/* settle:renew-step */
update settle.tasks set lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond', updated_at = clock_timestamp()
where id = $1 and lease_until < clock_timestamp() + ($2::bigint / 2) * interval '1 microsecond'`

// addStep keeps what became of a step, and of how many there are, so that progress can be read without knowing the job.
const addStep = `/* settle:add-step */
insert into settle.steps (task_id, idx, total, outcome, reason) values ($1, $2, $3, $4, $5)`

const steps = `/* settle:steps */
select idx, outcome, coalesce(reason, '') from settle.steps where task_id = $1 order by idx`

const stepsDone = `/* settle:steps-done */ select idx from settle.steps where task_id = $1`

const stepsSetAside = `/* settle:steps-set-aside */
select idx, outcome, coalesce(reason, '') from settle.steps where task_id = $1 and outcome = '` + SetAside + `' order by idx limit $2`

// progress has one row, also of a task without steps.
const progress = `/* settle:progress */
select count(*), count(*) filter (where outcome = '` + SetAside + `'), coalesce(max(total), 0),
       coalesce(extract(epoch from clock_timestamp() - max(at)), 0)::float8
from settle.steps where task_id = $1`

const hasStep = `/* settle:has-step */ select 1 from settle.steps where task_id = $1 and idx = $2`

// StepResult is what became of one step.
type StepResult struct {
	Index   int
	Outcome string // the handler's word, or SetAside
	Reason  string // why it was set aside
}

// SetAside is the outcome of a step that could not be done. It does not stop the others.
const SetAside = "set aside"

// Step is one step of an attempt.
type Step struct {
	Fence
	Index int // from 0
	Total int // number of steps that the task has
	Lease time.Duration
}

// StepsDone returns which of a task's steps are recorded, done or set aside, in no order.
func (s *Store) StepsDone(ctx context.Context, taskID int64) ([]int, error) {
	found, err := query(ctx, s, pgx.RowTo[int], stepsDone, taskID)
	if err != nil {
		return nil, fmt.Errorf("list steps: %w", err)
	}
	return found, nil
}

// StepsIn returns what is recorded of a task's steps, in their order, within a transaction.
func StepsIn(ctx context.Context, tx pgx.Tx, taskID int64) ([]StepResult, error) {
	rows, err := tx.Query(ctx, steps, taskID)
	if err != nil {
		return nil, fmt.Errorf("list steps: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[StepResult])
}

// StepsSetAside returns the steps of a task that were set aside, in their order; limit <= 0 is all.
func (s *Store) StepsSetAside(ctx context.Context, taskID int64, limit int) ([]StepResult, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[StepResult], stepsSetAside, taskID, orNull(max(limit, 0)))
	if err != nil {
		return nil, fmt.Errorf("list steps set aside: %w", err)
	}
	return found, nil
}

// Progress is how far a resumable job has come. Zero: no step of it is recorded.
type Progress struct {
	Done     int           // steps that are recorded; those set aside are among them
	SetAside int           // steps that could not be done
	Total    int           // of the job
	Quiet    time.Duration // since the last of them, by the clock of the database
}

// Progress counts the steps of a task.
func (s *Store) Progress(ctx context.Context, taskID int64) (Progress, error) {
	found, err := query(ctx, s, func(row pgx.CollectableRow) (p Progress, err error) {
		var seconds float64
		err = row.Scan(&p.Done, &p.SetAside, &p.Total, &seconds)
		p.Quiet = time.Duration(seconds * float64(time.Second))
		return p, err
	}, progress, taskID)
	if err != nil {
		return Progress{}, fmt.Errorf("count steps: %w", err)
	}
	return found[0], nil
}

// DoStep runs work and records its outcome in one transaction, under the fence and a lease that still runs when it begins:
// it may last longer, for its row is locked. It says whether the lease was moved on at its end.
//
// Errors and repetitions are those of ApplyHeld: a *WorkError means that nothing of it was committed, ErrLost that the
// attempt has lost the task. A connection that breaks under the work says nothing about the work, so that is run again.
// Where the answer to COMMIT is lost it finds out whether the step is recorded. A step that is recorded stays as it is.
func (s *Store) DoStep(ctx context.Context, x Step, limit time.Duration, work func(pgx.Tx) (outcome string, err error)) (renewed bool, err error) {
	worked := false
	err = again(ctx, func(ctx context.Context) error {
		var outcome string
		worked, renewed = false, false
		return s.inTx(ctx, limit, func(conn *pgx.Conn, tx pgx.Tx) (err error) {
			var held bool
			if err := tx.QueryRow(ctx, holdStep, x.TaskID, x.Attempt, x.Token, false).Scan(&held); err != nil {
				return err
			}
			worked = true
			outcome, err = work(lent{tx})
			return judgeStep(conn, err)
		}, func(conn *pgx.Conn, _ pgx.Tx) (err error) {
			renewed, err = x.commit(ctx, conn, outcome)
			return err
		})
	})
	switch {
	case err == nil:
		return renewed, nil
	case isRecorded(err):
		return false, nil
	case sqlState(err) == fenceState && !worked:
		return false, fmt.Errorf("step: %w", ErrLost)
	case isNotCommitted(err):
		return false, fmt.Errorf("step: %w", blame(err, worked))
	}
	return s.stepAgain(ctx, x, limit, work, err)
}

// judgeStep says whether what a step did can be committed.
func judgeStep(conn *pgx.Conn, err error) error {
	if err == nil {
		err = leftOpen(conn.PgConn())
	}
	switch {
	case err == nil:
		return nil
	case conn.IsClosed():
		return &notCommitted{err, true}
	}
	return &WorkError{err}
}

// commit records the outcome, moves the lease on and ends the transaction, in one round trip.
func (x Step) commit(ctx context.Context, conn *pgx.Conn, outcome string) (renewed bool, err error) {
	b := &pgx.Batch{}
	b.Queue(addStep, x.TaskID, x.Index, x.Total, clean(outcome), nil)
	b.Queue(renewStep, x.TaskID, x.Lease.Microseconds()).Exec(func(tag pgconn.CommandTag) error {
		renewed = tag.RowsAffected() > 0
		return nil
	})
	b.Queue(commitTx)
	err = conn.SendBatch(ctx, b).Close() // calls back
	return renewed, err
}

// isRecorded reports whether a step was refused because it is recorded already. The row that says so was committed by
// this attempt, whose answer was lost, or before it.
func isRecorded(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SchemaName == "settle" && pg.ConstraintName == "steps_pkey"
}

// stepAgain finds out whether a step was committed whose COMMIT was not answered, and does it again if it was not.
func (s *Store) stepAgain(ctx context.Context, x Step, limit time.Duration, work func(pgx.Tx) (string, error), cause error) (bool, error) {
	found, err := query(ctx, s, pgx.RowTo[int], hasStep, x.TaskID, x.Index)
	switch {
	case err != nil || ctx.Err() != nil:
		return false, fmt.Errorf("step: %w: %w", ErrCommitUnanswered, errors.Join(cause, err))
	case len(found) > 0:
		return false, nil
	}
	return s.DoStep(ctx, x, limit, work) // waits for the row, if the server is still at that commit
}

// SetStepAside records that a step could not be done, under the fence, and says whether the lease was moved on. A step
// that is recorded stays as it is.
func (s *Store) SetStepAside(ctx context.Context, x Step, reason string) (renewed bool, err error) {
	err = again(ctx, func(ctx context.Context) error {
		renewed = false
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(holdStep, x.TaskID, x.Attempt, x.Token, true)
			b.Queue(addStep, x.TaskID, x.Index, x.Total, SetAside, clean(reason))
			b.Queue(renewStep, x.TaskID, x.Lease.Microseconds())
		}, func(r pgx.BatchResults) error {
			var held bool
			if err := r.QueryRow().Scan(&held); err != nil {
				return err
			}
			if _, err := r.Exec(); err != nil {
				return err
			}
			tag, err := r.Exec()
			renewed = tag.RowsAffected() > 0
			return err
		}))
	})
	switch {
	case err == nil:
		return renewed, nil
	case isRecorded(err):
		return false, nil
	case sqlState(err) == fenceState:
		err = ErrLost
	}
	return false, fmt.Errorf("set step aside: %w", err)
}

// AboutData reports whether an error of a handler is about what it was given: its own words, or the database's about a
// value or a row. Anything else, from a broken connection to a mistake in a statement, would befall the next record too.
func AboutData(err error) bool {
	state := sqlState(err)
	if state == "" {
		return true
	}
	return len(state) == 5 && refusals[state[:2]]
}
