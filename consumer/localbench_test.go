package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// localBench is a bench for one local kind, whose jobs write one row each.
type localBench struct {
	*bench
	local LocalKind[payJob, paid]
}

func newLocalBench(t *testing.T) *localBench {
	t.Helper()
	b := &localBench{bench: newBench(t), local: noteKind()}
	b.kind.Name = b.local.Name // what the bench publishes and finds
	b.exec(`create table public.notes (key text, attempt int)`)
	return b
}

func noteKind() LocalKind[payJob, paid] {
	return LocalKind[payJob, paid]{
		Name: "test.note", Contract: Contract{Effect: "a note"}, Content: Content{IDs: []string{"order"}},
		Key: func(j payJob) (string, error) {
			text, err := j.Order.Text()
			return "pay_" + text, err
		},
		Apply: note,
	}
}

// note writes the job's row.
func note(ctx context.Context, tx pgx.Tx, a *Attempt[payJob]) (paid, error) {
	_, err := tx.Exec(ctx, `insert into public.notes values ($1, $2)`, a.Key, a.Number)
	return paid{ID: fmt.Sprint("note of attempt ", a.Number)}, err
}

type apply = func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error)

// inTurn runs one function per run of Apply, and note when they are used up. It always writes the row first.
func (b *localBench) inTurn(runs ...apply) *atomic.Int32 {
	n := new(atomic.Int32)
	b.local.Apply = func(ctx context.Context, tx pgx.Tx, a *Attempt[payJob]) (paid, error) {
		i := int(n.Add(1)) - 1
		out, err := note(ctx, tx, a)
		if err != nil || i >= len(runs) {
			return out, err
		}
		return runs[i](ctx, tx, a)
	}
	return n
}

func failing(err error) apply {
	return func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { return paid{ID: "nothing"}, err }
}

func sqlOf(sql string) apply {
	return func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
		_, err := tx.Exec(ctx, sql)
		return paid{}, err
	}
}

func (b *localBench) start() (e *Engine, stop func()) {
	b.t.Helper()
	return b.serve(b.local)
}

// notes are the rows that jobs have left, as "key attempt".
func (b *localBench) notes() string {
	b.t.Helper()
	rows, err := b.pool.Query(context.WithoutCancel(b.t.Context()), `select key || ' ' || attempt from public.notes order by 1`)
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(out, ", ")
}

// find is the task of the plain job, or false.
func (b *localBench) find() (idemstore.Task, bool) {
	b.t.Helper()
	task, err := b.store.Find(context.WithoutCancel(b.t.Context()), b.local.Name, "pay_1")
	if err != nil && !errors.Is(err, idemstore.ErrNotFound) {
		b.t.Fatal(err)
	}
	return task, err == nil
}

// finishes waits for the end of the plain job and compares what it left.
func (b *localBench) finishes(attempt, failures int) idemstore.Task {
	b.t.Helper()
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	task, _ := b.find()
	if task.Attempt != attempt || task.Failures != failures || task.LeaseUntil != nil || task.Unsure || task.FirstSentAt != nil {
		b.t.Errorf("attempt %d, %d failures, lease %v, unsure %v, sent %v", task.Attempt, task.Failures, task.LeaseUntil, task.Unsure, task.FirstSentAt)
	}
	if got, want := string(task.Result), fmt.Sprintf(`{"id":"note of attempt %d"}`, attempt); got != want {
		b.t.Errorf("result %s, want %s", got, want)
	}
	if got, want := b.notes(), fmt.Sprint("pay_1 ", attempt); got != want {
		b.t.Errorf("notes %q, want %q", got, want)
	}
	return task
}

// waitsForLock reports whether a session waits for another's transaction.
func (b *bench) waitsForLock() (waiting bool) {
	err := b.pool.QueryRow(context.WithoutCancel(b.t.Context()), `select exists (select from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting)
	return err == nil && waiting
}

// claim is another worker that asks for the plain job.
func (b *localBench) claim() idemstore.Claimed {
	b.t.Helper()
	d, err := b.local.define()
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := d.read([]byte(plainJob), maxBody)
	if err != nil {
		b.t.Fatal(err)
	}
	found, err := b.store.Claim(b.t.Context(), idemstore.Claim{Kind: b.local.Name, Key: j.key, Token: uuid.New(), Payload: j.payload, Hash: j.hash,
		HashAlgorithm: hashAlgorithm, Lease: time.Hour, MaxAge: time.Hour, MaxFailures: 9, Local: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return found[0]
}
