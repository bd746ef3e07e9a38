package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// tenSteps is a kind whose jobs have ten records. Each writes a row, and then one of them does what a test says.
func tenSteps(at int, does func(ctx context.Context, tx pgx.Tx, run int) error) StepKind[payJob, int, string] {
	runs := new(atomic.Int32)
	note := noteKind()
	return StepKind[payJob, int, string]{
		Name: "test.note", Contract: note.Contract, Content: note.Content, Key: note.Key,
		Steps: func(payJob) []int { return []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 90} },
		Step: func(ctx context.Context, tx pgx.Tx, a *Attempt[payJob], i, record int) (string, error) {
			if record != 10*i {
				return "", fmt.Errorf("record %d is %d", i, record)
			}
			_, err := tx.Exec(ctx, `insert into public.notes values ($1, $2)`, fmt.Sprint("record ", i), a.Number)
			if err != nil || i != at {
				return "noted", err
			}
			return "noted", does(ctx, tx, int(runs.Add(1)))
		},
		Done: func(_ context.Context, _ pgx.Tx, _ *Attempt[payJob], results []StepResult) (string, error) {
			var aside []string
			for _, r := range results {
				if r.Outcome == SetAside {
					aside = append(aside, fmt.Sprint(r.Index, ": ", r.Reason))
				}
			}
			return fmt.Sprintf("%d records; set aside %q", len(results), aside), nil
		},
	}
}

func failsOnce(err error) func(context.Context, pgx.Tx, int) error {
	return func(_ context.Context, _ pgx.Tx, run int) error {
		if run == 1 {
			return err
		}
		return nil
	}
}

func failsAlways(err error) func(context.Context, pgx.Tx, int) error {
	return func(context.Context, pgx.Tx, int) error { return err }
}

func sqlOnce(sql string) func(context.Context, pgx.Tx, int) error {
	return func(ctx context.Context, tx pgx.Tx, run int) error {
		if run > 1 {
			return nil
		}
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// What becomes of a record that fails, and of the nine others.
func TestStepThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does     func(context.Context, pgx.Tx, int) error
		failures int
		aside    string // the reason; empty: it is done in the end
	}{
		"its own words":              {failsAlways(errors.New("no such article")), 0, "no such article"},
		"Refused":                    {failsAlways(Refused(errors.New("too late"))), 0, "too late"},
		"Conflict":                   {failsAlways(Conflict(errors.New("contradicts"))), 0, "contradicts"},
		"a panic":                    {func(context.Context, pgx.Tx, int) error { panic("x") }, 0, "panic"},
		"refused by the database":    {sqlOnce(`select 1 / 0`), 0, "division by zero"},
		"an error that it drops":     {func(ctx context.Context, tx pgx.Tx, _ int) error { _, _ = tx.Exec(ctx, `nonsense`); return nil }, 0, "its error was dropped"},
		"NotSent":                    {failsOnce(NotSent(errors.New("not now"))), 1, ""},
		"a mistake in its statement": {sqlOnce(`select from public.nowhere`), 1, ""},
		"over its deadline": {func(ctx context.Context, _ pgx.Tx, run int) error {
			if run == 1 {
				<-ctx.Done()
				return fmt.Errorf("too slow: %w", ctx.Err())
			}
			return nil
		}, 1, ""},
		"its session ended": {sqlOnce(`select pg_terminate_backend(pg_backend_pid())`), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			kind := tenSteps(4, c.does)
			kind.Policy.Deadline = 10 * time.Second
			if c.failures > 0 {
				kind.Policy.Deadline = time.Second
			}
			b.serve(kind)
			b.publish(`{"order":"1"}`)
			task := b.awaitStatus("pay_1", idemstore.Finished)
			b.awaitSettled()
			if task.Failures != c.failures || task.Attempt != c.failures+1 {
				t.Errorf("attempt %d, %d failures; want %d failures", task.Attempt, task.Failures, c.failures)
			}
			want, notes := "10 records; set aside []", 10
			if c.aside != "" {
				want, notes = `10 records; set aside [\"4: `, 9
			}
			if got := string(task.Result); !strings.HasPrefix(got, `"`+want) || !strings.Contains(got, c.aside) {
				t.Errorf("result %s, want %s and %s", got, want, c.aside)
			}
			if got := b.notes(); strings.Count(got, "record") != notes {
				t.Errorf("notes %s, want %d", got, notes)
			}
			for i := range 4 {
				if first := fmt.Sprintf("record %d 1", i); !strings.Contains(b.notes(), first) {
					t.Errorf("notes %s, want %s", b.notes(), first)
				}
			}
		})
	}
}

// A batch that fails as a whole again and again calls a person, and keeps what is done.
func TestStepsUseUpTheBudget(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	kind := tenSteps(4, failsAlways(NotSent(errors.New("not now"))))
	kind.Policy.MaxFailures = 2
	b.serve(kind)
	b.publish(`{"order":"1"}`)
	task := b.awaitStatus("pay_1", idemstore.NeedsReview)
	if p, err := b.store.Progress(t.Context(), task.TaskID); err != nil || p.Done != 4 || p.Total != 10 || task.LastError != "not now" {
		t.Errorf("progress %+v (%v), last error %q", p, err, task.LastError)
	}
}

func TestStepKindNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	_, err := Describe(Config{}, StepKind[payJob, int, string]{Name: "test.note"})
	for _, part := range []string{"Contract.Effect", "Done", "Key", "Step", "Steps"} {
		if err == nil || !strings.Contains(err.Error(), part+" is missing") {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	d, err := Describe(Config{}, tenSteps(0, nil))
	if err != nil || !d.Local || !d.HasSteps {
		t.Errorf("%+v (%v)", d, err)
	}
}

// Somebody takes the task right behind a record, and the worker has not heard of it: the fence is in the statement of the
// next record, so that none is committed.
func TestStepAfterTheTaskWasTaken(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	taken := make(chan struct{})
	e, _ := b.serve(tenSteps(4, func(ctx context.Context, tx pgx.Tx, _ int) error {
		defer close(taken)
		_, err := tx.Exec(ctx, `update settle.tasks set attempts = attempts + 1, token = gen_random_uuid()`)
		return err
	}))
	b.publish(`{"order":"1"}`)
	rig.Await(t, taken, 30*time.Second, "the task is taken")
	if !eventually(t, 30*time.Second, func() bool { return e.held.count() == 0 }) {
		t.Fatal("the worker goes on")
	}
	task, _ := b.find()
	if p, err := b.store.Progress(t.Context(), task.TaskID); err != nil || p.Done != 5 || task.Status != idemstore.Started || task.Attempt != 2 {
		t.Errorf("progress %+v (%v), %s, attempt %d; want 5 records, started, attempt 2", p, err, task.Status, task.Attempt)
	}
	if got := b.notes(); strings.Count(got, "record") != 5 {
		t.Errorf("notes %s, want 5", got)
	}
}

// A record that takes longer than AckWait and lease stays with its worker, done or set aside: its row is locked, its message kept.
func TestStepOutlastsItsClocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"done":      {nil, `10 records; set aside []`},
		"set aside": {errors.New("no such customer"), `10 records; set aside ["4: no such customer"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.conf.AckWait, b.conf.Lease, b.conf.Policy.Deadline = time.Second, time.Second, 10*time.Second
			var runs atomic.Int32
			k := tenSteps(4, func(context.Context, pgx.Tx, int) error {
				runs.Add(1)
				<-time.After(2500 * time.Millisecond)
				return c.err
			})
			b.serve(k)
			b.serve(k)
			b.publish(`{"order":"1"}`)
			task := b.awaitStatus("pay_1", idemstore.Finished)
			if want := strconv.Quote(c.want); string(task.Result) != want || task.Attempt != 1 || task.Failures != 0 || runs.Load() != 1 {
				t.Errorf("%s after %d attempts, %d failures, %d runs; want %s", task.Result, task.Attempt, task.Failures, runs.Load(), want)
			}
		})
	}
}

// What records are done cannot be called not done.
func TestCancelBesideSteps(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.conf.Policy.MaxFailures = 1
	k := tenSteps(4, failsAlways(NotSent(errors.New("away"))))
	b.serve(k)
	b.publish(`{"order":"1"}`)
	task := b.awaitStatus("pay_1", idemstore.NeedsReview)
	o, err := NewOperator(b.pool, Config{Policy: b.conf.Policy}, k)
	if err != nil {
		t.Fatal(err)
	}
	acted, err := o.Cancel(t.Context(), task, ActOptions{Actor: "anna", Reason: "no"})
	if err != nil || acted.Outcome != OutcomeRefused || !strings.Contains(acted.Message, "4 of its records are done") {
		t.Errorf("%+v (%v)", acted, err)
	}
}
