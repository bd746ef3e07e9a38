package idemstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// stepOf is one of ten steps.
func stepOf(f idemstore.Fence, index int) idemstore.Step {
	return idemstore.Step{Fence: f, Index: index, Total: 10, Lease: time.Minute}
}

// adding is a step's work: it leaves a row, which says that it was committed.
func adding(name string) func(pgx.Tx) (string, error) {
	return func(tx pgx.Tx) (string, error) {
		_, err := tx.Exec(context.Background(), `insert into public.rows values ($1)`, name)
		return "added", err
	}
}

func (b bench) wantRows(t *testing.T, want ...string) {
	t.Helper()
	rows, _ := b.pool.Query(t.Context(), `select name from public.rows order by name`)
	if got, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(got, want) {
		t.Errorf("rows %q (%v), want %q", got, err, want)
	}
}

func (b bench) wantStepsDone(t *testing.T, f idemstore.Fence, want ...int) {
	t.Helper()
	done, err := b.StepsDone(t.Context(), f.TaskID)
	slices.Sort(done)
	if err != nil || !slices.Equal(done, want) {
		t.Errorf("steps %v are recorded (%v), want %v", done, err, want)
	}
}

// The fence of a step is in its statement: whoever is not the current attempt records nothing and leaves no row behind, and
// nobody begins a step without a lease that runs. One that outlasted it may be set aside while nobody else has the task.
func TestStepNeedsTheFence(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for name, spoil := range map[string]func(idemstore.Fence) idemstore.Fence{
		"attempt before":   func(f idemstore.Fence) idemstore.Fence { f.Attempt--; return f },
		"token of another": func(f idemstore.Fence) idemstore.Fence { f.Token = uuid.New(); return f },
		"lease is over":    func(f idemstore.Fence) idemstore.Fence { b.expire(t, f.TaskID); return f },
		"task is finished": func(f idemstore.Fence) idemstore.Fence { b.save(t, finished(f)); return f },
	} {
		f := spoil(b.asking(t, name))
		if _, err := b.DoStep(t.Context(), stepOf(f, 0), time.Minute, adding(name)); !errors.Is(err, idemstore.ErrLost) {
			t.Errorf("%s: step gave %v, want ErrLost", name, err)
		}
		_, err := b.SetStepAside(t.Context(), stepOf(f, 1), "bad")
		if name == "lease is over" {
			if err != nil || !near(b.task(t, f.TaskID).LeaseUntil, query[time.Time](t, b.pool, `select clock_timestamp()`).Add(time.Minute)) {
				t.Errorf("%s: setting aside gave %v, and a lease until %v", name, err, b.task(t, f.TaskID).LeaseUntil)
			}
			b.wantStepsDone(t, f, 1)
			continue
		}
		if !errors.Is(err, idemstore.ErrLost) {
			t.Errorf("%s: setting aside gave %v, want ErrLost", name, err)
		}
		b.wantStepsDone(t, f)
	}
	b.wantRows(t)
}

// Steps, and those set aside, keep the row locked most of the time, so they move the lease on themselves: once half of it
// is over, and the worker is told.
func TestStepMovesTheLeaseOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	f := b.performing(t, "order_1")
	for name, step := range map[string]func(idemstore.Step) (bool, error){
		"done": func(x idemstore.Step) (bool, error) {
			return b.DoStep(t.Context(), x, time.Minute, adding(fmt.Sprint(x.Index)))
		},
		"set aside": func(x idemstore.Step) (bool, error) {
			x.Index += 5
			return b.SetStepAside(t.Context(), x, "bad")
		},
	} {
		for i, c := range []struct {
			left    string
			renewed bool
		}{{"45 seconds", false}, {"20 seconds", true}} {
			b.set(t, f.TaskID, `lease_until = clock_timestamp() + interval '`+c.left+`'`)
			renewed, err := step(stepOf(f, i))
			moved := query[bool](t, b.pool, `select lease_until > clock_timestamp() + interval '50 seconds' from settle.tasks where id = $1`, f.TaskID)
			if err != nil || renewed != c.renewed || moved != c.renewed {
				t.Errorf("%s with %s left: says %v, moved %v (%v)", name, c.left, renewed, moved, err)
			}
		}
	}
}

// A step is recorded once. What comes second is rolled back and counts as done.
func TestStepIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	f := b.performing(t, "order_1")
	for _, name := range []string{"first", "second"} {
		if _, err := b.DoStep(t.Context(), stepOf(f, 3), time.Minute, adding(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.SetStepAside(t.Context(), stepOf(f, 3), "bad"); err != nil {
		t.Errorf("set aside what is done: %v", err)
	}
	b.wantRows(t, "first")
	if p := b.progress(t, f); p.Done != 1 || p.SetAside != 0 || p.Total != 10 {
		t.Errorf("progress %+v, want 1 of 10 and none set aside", p)
	}
}

// The connection breaks under the work, which is no fault of the record: it is run again. That holds also where the work
// makes words of its own of the error, or keeps quiet about it.
func TestStepIsRunAgainWhereItsConnectionBreaks(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]func(error) error{
		"the driver's error": func(err error) error { return err },
		"words of its own":   func(err error) error { return errors.Join(errors.New("not imported"), err) },
		"nothing":            func(error) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.makeRows(t)
			f, runs := w.performing(t, "order_1"), 0
			_, err := w.cut.DoStep(t.Context(), stepOf(f, 0), time.Minute, func(tx pgx.Tx) (string, error) {
				if runs++; runs == 1 {
					w.proxy.Cut()
				}
				if _, err := adding("done")(tx); err != nil {
					return "added", says(err)
				}
				return "added", nil
			})
			if err != nil || runs != 2 {
				t.Errorf("%d runs, error %v; want 2 and none", runs, err)
			}
			w.wantRows(t, "done")
			w.wantStepsDone(t, f, 0)
		})
	}
}

func TestD18StepNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.makeRows(t)
			f, runs := w.performing(t, "order_1"), 0
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:add-step */"})
			_, err := w.cut.DoStep(t.Context(), stepOf(f, 0), time.Minute, func(tx pgx.Tx) (string, error) {
				runs++
				return adding("done")(tx)
			})
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if want := map[bool]int{true: 1, false: 2}[fault.committed]; err != nil || runs != want {
				t.Errorf("%d runs, error %v; want %d and none", runs, err, want)
			}
			shot = fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:add-step */"})
			if _, err := w.cut.SetStepAside(t.Context(), stepOf(f, 1), "bad"); err != nil {
				t.Errorf("set aside: %v", err)
			}
			rig.Await(t, shot.Fired(), soon, "the second cut around COMMIT")
			w.wantRows(t, "done")
			w.wantStepsDone(t, f, 0, 1)
		})
	}
}

// What is said of the work's own error: it is handed back and nothing is committed.
func TestStepThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRefusingTables(t)
	f := b.performing(t, "order_1")
	for name, c := range map[string]struct {
		sql   string
		about bool // the record
	}{
		"unique":             {`insert into public.rows values ('there already')`, true},
		"NUL":                {`insert into public.rows values (E'a\x00b')`, true},
		"too long":           {`insert into public.rows select string_agg(md5(i::text), '') from generate_series(1, 2000) i`, true},
		"raised":             {`insert into public.guarded values (1)`, true},
		"deferred":           {`insert into public.late values (1), (1)`, true},
		"no such table":      {`insert into public.nowhere values ('x')`, false},
		"statement too slow": {`select pg_sleep(60)`, false},
	} {
		limit := time.Minute
		if name == "statement too slow" {
			limit = time.Second // also of how long the session may do nothing
		}
		_, err := b.DoStep(t.Context(), stepOf(f, 0), limit, func(tx pgx.Tx) (string, error) {
			_, err := tx.Exec(t.Context(), c.sql)
			return "added", err
		})
		var failed *idemstore.WorkError
		if !errors.As(err, &failed) || idemstore.AboutData(failed.Err) != c.about {
			t.Errorf("%s: %v; want an error of the work, about the record: %v", name, err, c.about)
		}
	}
	b.wantRows(t, "there already")
	b.wantStepsDone(t, f)
}

func (b bench) progress(t *testing.T, f idemstore.Fence) idemstore.Progress {
	t.Helper()
	p, err := b.Progress(t.Context(), f.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Progress counts from the rows; what was set aside can be listed, with a limit or without.
func TestProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	f := b.performing(t, "order_1")
	if p := b.progress(t, f); p != (idemstore.Progress{}) {
		t.Errorf("before the first step: %+v", p)
	}
	for i, name := range []string{"a", "", "c", ""} {
		_, err := b.SetStepAside(t.Context(), stepOf(f, i), "bad \x00 name")
		if name != "" {
			_, err = b.DoStep(t.Context(), stepOf(f, 4+i), time.Minute, adding(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.exec(t, `update settle.steps set at = at - interval '1 hour' where task_id = $1`, f.TaskID)
	p := b.progress(t, f)
	if p.Done != 6 || p.SetAside != 4 || p.Total != 10 || p.Quiet < time.Hour || p.Quiet > 2*time.Hour {
		t.Errorf("progress %+v, want 6 of 10, 4 set aside, an hour ago", p)
	}
	for limit, want := range map[int]int{0: 4, 3: 3, 10: 4} {
		aside, err := b.StepsSetAside(t.Context(), f.TaskID, limit)
		if err != nil || len(aside) != want {
			t.Fatalf("limit %d: %d of them (%v), want %d", limit, len(aside), err, want)
		}
		if aside[2].Index != 2 || aside[2].Outcome != idemstore.SetAside || aside[2].Reason != "bad \ufffd name" {
			t.Errorf("third %+v", aside[2])
		}
	}
}
