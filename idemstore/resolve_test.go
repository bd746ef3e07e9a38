package idemstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

var byAnna = idemstore.By{Actor: "anna", Reason: "seen in the provider's own screen", Trace: trace}

// states are rows as an operator may find them: assignments to a row whose first attempt is performing.
var states = map[string]string{
	"live":               ``,
	"expired":            `lease_until = clock_timestamp() - interval '1 s'`,
	"released":           `lease_until = null, sending = false, first_sent_at = null`,
	"unknown":            `lease_until = null, sending = false, status = 'unknown', unsure = true`,
	"review, unsure":     `lease_until = null, sending = false, status = 'needs_review', unsure = true, review_cause = 'absent'`,
	"review, not unsure": `lease_until = null, sending = false, status = 'needs_review', first_sent_at = null, review_cause = 'conflict'`,
	"finished":           `lease_until = null, sending = false, status = 'finished', finished_at = clock_timestamp()`,
	"failed":             `lease_until = null, sending = false, status = 'failed', finished_at = clock_timestamp()`,
}

// found is a task in one of the states, and the fence of the attempt that had it.
func (b bench) found(t *testing.T, key, state string) (idemstore.Task, idemstore.Fence) {
	t.Helper()
	f := b.performing(t, key)
	if states[state] != "" {
		b.set(t, f.TaskID, states[state])
	}
	return b.task(t, f.TaskID), f
}

func settled() idemstore.Resolution {
	return idemstore.Resolution{To: idemstore.Finished, ExternalID: "ch_9", Result: []byte(`{"id":"ch_9"}`), Retention: week}
}

// refused runs an act that must be refused with want and must leave the row, its audit and all local rows alone.
func (b bench) refused(t *testing.T, id int64, want error, do func() (idemstore.Task, error)) {
	t.Helper()
	before, rows, lines := b.row(t, id), b.rows(t), len(b.reasons(t, id))
	got, err := do()
	if !errors.Is(err, want) {
		t.Errorf("%+v (%v), want %v", got, err, want)
	}
	if b.row(t, id) != before || b.rows(t) != rows || len(b.reasons(t, id)) != lines {
		t.Error("something was written")
	}
}

func TestResolveTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	type how struct{ force, unsent bool }
	allowed := map[string][]how{
		"live":               {{true, false}},
		"expired":            {{false, false}, {true, false}},
		"released":           {{false, true}, {true, true}},
		"unknown":            {{false, false}, {true, false}},
		"review, unsure":     {{false, false}, {true, false}},
		"review, not unsure": {{false, false}, {true, false}, {false, true}, {true, true}},
		"finished":           nil,
		"failed":             nil,
	}
	for state, ways := range allowed {
		for _, w := range []how{{false, false}, {false, true}, {true, false}, {true, true}} {
			t.Run(fmt.Sprintf("%s, %+v", state, w), func(t *testing.T) {
				name := fmt.Sprintf("%s %+v", state, w)
				task, _ := b.found(t, name, state)
				r := settled()
				r.Force, r.Unsent, r.Writes = w.force, w.unsent, []idemstore.Statement{local(name)}
				r.Emits = []idemstore.Emit{{Subject: "events.paid", Key: name, Payload: []byte(`{}`)}}
				do := func() (idemstore.Task, error) { return b.Resolve(t.Context(), task.Shown(), byAnna, r) }
				permitted := false
				for _, x := range ways {
					permitted = permitted || x == w
				}
				if !permitted {
					b.refused(t, task.TaskID, idemstore.ErrChanged, do)
					return
				}
				rows := b.rows(t)
				if _, err := do(); err != nil {
					t.Fatal(err)
				}
				if b.rows(t) != rows+2 {
					t.Error("local row and event did not commit with it")
				}
			})
		}
	}
}

func TestResolveLeaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task, f := b.found(t, "order_1", "live")
	b.set(t, task.TaskID, `absent_at = clock_timestamp(), resend_once = true`)
	r := settled()
	r.Force = true
	got, err := b.Resolve(t.Context(), task.Shown(), byAnna, r)
	if err != nil {
		t.Fatal(err)
	}
	row := b.task(t, task.TaskID)
	switch {
	case got.Token != row.Token, got.Status != row.Status, got.Attempt != row.Attempt:
		t.Errorf("answered %+v, the row is %+v", got, row)
	case row.Status != idemstore.Finished, row.FinishedAt == nil, row.LeaseUntil != nil, row.Sending, row.ResendOnce:
		t.Errorf("not finished: %+v", row)
	case row.Attempt != 2, row.Token == f.Token:
		t.Errorf("the fence is as before: %+v", row.Fence)
	case !row.Unsure, row.LastSentBy == nil, !row.LastSentBy.Equal(*task.LeaseUntil):
		t.Errorf("forgot that the attempt that was cut off may have sent: %+v", row)
	case row.ExternalID != "ch_9", string(row.Result) != `{"id":"ch_9"}`:
		t.Errorf("what was decided: %+v", row)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks where expires_at - finished_at between '6 d 23 h' and '7 d 1 h'`); n != 1 {
		t.Error("retention is not counted from the end")
	}
	if n := query[int](t, b.pool, `select count(*) from settle.task_refs where name = 'external_id' and value = 'ch_9'`); n != 1 {
		t.Error("the task cannot be found by its external id")
	}
	events, err := b.Events(t.Context(), task.TaskID)
	if err != nil || len(events) != 1 {
		t.Fatalf("audit: %+v (%v)", events, err)
	}
	e := events[0]
	e.At = time.Time{}
	if want := (idemstore.Event{Actor: "anna", Attempt: 2, OldStatus: idemstore.Started, NewStatus: idemstore.Finished,
		Reason: byAnna.Reason, ExternalID: "ch_9", TraceID: "0af7651916cd43dd8448eb211c80319c"}); e != want {
		t.Errorf("audit: %+v, want %+v", e, want)
	}
}

// An attempt that is still at work when a person decides changes nothing any more, in whatever way it ends.
func TestResolveCutsOffTheAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for name, late := range map[string]func(idemstore.Fence) error{
		"save": func(f idemstore.Fence) error {
			s := finished(f)
			s.Writes = []idemstore.Statement{local("late")}
			_, err := b.Save(t.Context(), s)
			return err
		},
		"release": func(f idemstore.Fence) error {
			_, err := b.Release(t.Context(), idemstore.Release{Fence: f})
			return err
		},
		"arm": func(f idemstore.Fence) error {
			_, err := b.Arm(t.Context(), idemstore.Arm{Fence: f, Lease: time.Minute, Provider: "provider-a", Permitted: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			task, f := b.found(t, name, "live")
			r := settled()
			r.To, r.Force = idemstore.Failed, true
			if _, err := b.Resolve(t.Context(), task.Shown(), byAnna, r); err != nil {
				t.Fatal(err)
			}
			b.refused(t, task.TaskID, idemstore.ErrLost, func() (idemstore.Task, error) { return idemstore.Task{}, late(f) })
		})
	}
}

func TestResolveWhatChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	task, _ := b.found(t, "order_1", "unknown")
	for name, shown := range map[string]idemstore.Shown{
		"other status":   {TaskID: task.TaskID, Status: idemstore.NeedsReview, Attempts: task.Attempt},
		"other attempts": {TaskID: task.TaskID, Status: task.Status, Attempts: task.Attempt + 1},
	} {
		t.Run(name, func(t *testing.T) {
			b.refused(t, task.TaskID, idemstore.ErrChanged, func() (idemstore.Task, error) {
				return b.Resolve(t.Context(), shown, byAnna, settled())
			})
		})
	}
	if _, err := b.Resolve(t.Context(), idemstore.Shown{TaskID: 99}, byAnna, settled()); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("no such task: %v", err)
	}
}

func TestResolveExternalIDIsWrittenOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for name, c := range map[string]struct {
		columns, given, want string
	}{
		"none known":                      {``, "ch_9", "ch_9"},
		"the same":                        {`external_id = 'ch_9'`, "ch_9", "ch_9"},
		"none given":                      {`external_id = 'ch_1'`, "", "ch_1"},
		"another":                         {`external_id = 'ch_1'`, "ch_9", ""},
		"the late proof":                  {`evidence_id = 'ch_9'`, "ch_9", "ch_9"},
		"not the late proof":              {`evidence_id = 'ch_1'`, "ch_9", ""},
		"two effects: the row's own":      {`external_id = 'ch_9', evidence_id = 'ch_1'`, "ch_9", "ch_9"},
		"two effects: that of late proof": {`external_id = 'ch_1', evidence_id = 'ch_9'`, "ch_9", ""},
		"longer than can be searched for": {``, strings.Repeat("9", 513), strings.Repeat("9", 513)},
	} {
		t.Run(name, func(t *testing.T) {
			task, _ := b.found(t, name, "unknown")
			if c.columns != "" {
				b.set(t, task.TaskID, c.columns)
			}
			r := settled()
			r.ExternalID = c.given
			do := func() (idemstore.Task, error) { return b.Resolve(t.Context(), task.Shown(), byAnna, r) }
			if c.want == "" {
				b.refused(t, task.TaskID, idemstore.ErrOtherExternalID, do)
				return
			}
			got, err := do()
			if err != nil || got.ExternalID != c.want {
				t.Errorf("external id %q (%v), want %q", got.ExternalID, err, c.want)
			}
		})
	}
}

func TestResolveRowsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for name, w := range map[string]idemstore.Statement{
		"by the database": local("refused"),
		"by the driver":   {SQL: `insert into public.rows (name) values ($1)`, Args: []any{struct{}{}}},
	} {
		t.Run(name, func(t *testing.T) {
			task, _ := b.found(t, name, "unknown")
			r := settled()
			r.Writes = []idemstore.Statement{local("before it"), w}
			b.refused(t, task.TaskID, nil, func() (idemstore.Task, error) {
				got, err := b.Resolve(t.Context(), task.Shown(), byAnna, r)
				var refused *idemstore.LocalRowsError
				if !errors.As(err, &refused) {
					t.Errorf("%v, want the rows refused", err)
				}
				return got, nil
			})
		})
	}
}

// Two people press at once: one of them decides, the other is told.
func TestResolveTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	task, _ := b.found(t, "order_1", "unknown")
	unlock := b.lock(t, task.TaskID)
	press := func(name string) <-chan result[idemstore.Task] {
		r := settled()
		r.Writes = []idemstore.Statement{local(name)}
		return async(func() (idemstore.Task, error) { return b.Resolve(t.Context(), task.Shown(), byAnna, r) })
	}
	first, second := press("first"), press("second")
	b.awaitWaiting(t, 2)
	unlock()
	var done, told int
	for _, c := range []<-chan result[idemstore.Task]{first, second} {
		switch r := rig.Await(t, c, soon, "the answer"); {
		case r.err == nil:
			done++
		case errors.Is(r.err, idemstore.ErrChanged):
			told++
		default:
			t.Error(r.err)
		}
	}
	if done != 1 || told != 1 || b.rows(t) != 1 || b.task(t, task.TaskID).Attempt != 2 || len(b.reasons(t, task.TaskID)) != 1 {
		t.Errorf("%d done, %d told, %d rows, %+v", done, told, b.rows(t), b.task(t, task.TaskID).Fence)
	}
}

func TestD18ResolveNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.makeRows(t)
			task, _ := w.found(t, "order_1", "unknown")
			r := settled()
			r.Writes = []idemstore.Statement{local("paid")}
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:resolve */"})
			got, err := w.cut.Resolve(t.Context(), task.Shown(), byAnna, r)
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if err != nil || got.Status != idemstore.Finished || got.Attempt != 2 || w.rows(t) != 1 || len(w.reasons(t, task.TaskID)) != 1 {
				t.Errorf("%+v (%v), %d rows, audit %q", got, err, w.rows(t), w.reasons(t, task.TaskID))
			}
		})
	}
}

// Between the lost answer and the second look somebody else decided.
func TestD18ResolveNotAnsweredAndOvertaken(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.makeRows(t)
	task, _ := w.found(t, "order_1", "unknown")
	if _, err := w.cut.FindByID(t.Context(), task.TaskID); err != nil { // the next connection is the second look's
		t.Fatal(err)
	}
	w.reconnect = func() {
		r := settled()
		r.To = idemstore.Failed
		_, _ = w.Resolve(context.WithoutCancel(t.Context()), task.Shown(), byAnna, r)
	}
	w.proxy.CutBeforeCommit(rig.CommitCut{Containing: "/* settle:resolve */"})
	got, err := w.cut.Resolve(t.Context(), task.Shown(), byAnna, settled())
	if !errors.Is(err, idemstore.ErrChanged) || w.task(t, task.TaskID).Status != idemstore.Failed {
		t.Errorf("%+v (%v), want to be told that it changed", got, err)
	}
}
