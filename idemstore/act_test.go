package idemstore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// spent is what is on a row that has tried for long, in assignments.
const spent = `, failures = 5, give_up_at = clock_timestamp() - interval '1 hour', next_attempt_at = clock_timestamp() + interval '1 hour'`

func TestRetryLeaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		state string
		again bool // send again
		want  idemstore.Status
		found idemstore.Found // by the next claim
	}{
		{"review, unsure", false, idemstore.Unknown, idemstore.Ask},
		{"review, unsure", true, idemstore.Unknown, idemstore.Ask},
		{"review, not unsure", false, idemstore.Started, idemstore.Perform},
		{"unknown", true, idemstore.Unknown, idemstore.Ask},
		{"failed", false, idemstore.Unknown, idemstore.Ask},
	} {
		key := fmt.Sprint(c.state, c.again)
		t.Run(key, func(t *testing.T) {
			task, f := b.found(t, key, c.state)
			b.set(t, task.TaskID, `result = '{"of":"before"}'`+spent)
			got, err := b.Retry(t.Context(), task.Shown(), byAnna, idemstore.RetryTo{MaxAge: time.Hour, ResendOnce: c.again})
			if err != nil {
				t.Fatal(err)
			}
			row := b.task(t, task.TaskID)
			switch {
			case got.Token != row.Token, got.Status != row.Status:
				t.Errorf("answered %+v, the row is %+v", got, row)
			case row.Status != c.want, row.Unsure != (c.want == idemstore.Unknown), row.ResendOnce != c.again, row.Cause != "":
				t.Errorf("%+v", row)
			case row.Attempt != 2, row.Token == f.Token, row.FinishedAt != nil, row.Result != nil:
				t.Errorf("not a new start: %+v", row)
			case row.Failures != 0, !near(&row.GiveUpAt, time.Now().Add(time.Hour)), !near(&row.NextAttemptAt, time.Now()):
				t.Errorf("the budget is not given back: %d failures, until %v, next %v", row.Failures, row.GiveUpAt, row.NextAttemptAt)
			case row.Unsure && row.LastSentBy == nil:
				t.Error("an \"absent\" could never count: nothing says by when it was sent")
			}
			if got := b.reasons(t, task.TaskID); len(got) != 1 || got[0] != byAnna.Reason {
				t.Errorf("audit: %q", got)
			}
			b.expect(t, c.found, claimOf(key))
		})
	}
}

// What failed before it was ever sent is asked about like everything that failed, and then may rest on its key.
func TestRetryOfWhatWasNeverSent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task, _ := b.found(t, "order_1", "released")
	failed, err := b.Resolve(t.Context(), task.Shown(), byAnna, idemstore.Resolution{To: idemstore.Failed, Unsent: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Retry(t.Context(), failed.Shown(), byAnna, idemstore.RetryTo{MaxAge: time.Hour})
	if err != nil || got.Status != idemstore.Unknown || !near(got.FirstSentAt, time.Now()) || !near(got.LastSentBy, time.Now()) {
		t.Fatalf("%+v (%v)", got, err)
	}
	f := b.expect(t, idemstore.Ask, claimOf("order_1")).Task.Fence
	if _, err := b.Arm(t.Context(), armOf(f)); err != nil {
		t.Errorf("its key is taken for old: %v", err)
	}
}

func TestRetryRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for name, c := range map[string]struct {
		state, columns string
		again          bool
	}{
		"booked elsewhere":      {"review, unsure", `review_cause = 'not_booked', result = '{}'`, false},
		"sent, booked":          {"review, unsure", `review_cause = 'not_booked', result = '{}'`, true},
		"archived":              {"failed", `archived_at = clock_timestamp()`, false},
		"unknown, not again":    {"unknown", ``, false},
		"again, id known":       {"review, unsure", `external_id = 'ch_1'`, true},
		"again, late proof":     {"review, unsure", `evidence_id = 'ch_1'`, true},
		"again, never sent":     {"review, not unsure", ``, true},
		"again, failed":         {"failed", ``, true},
		"live":                  {"live", ``, false},
		"expired":               {"expired", ``, false},
		"released":              {"released", ``, false},
		"finished":              {"finished", ``, false},
		"again, finished":       {"finished", ``, true},
		"again, expired":        {"expired", ``, true},
		"again, known to be in": {"live", ``, true},
	} {
		t.Run(name, func(t *testing.T) {
			task, _ := b.found(t, name, c.state)
			if c.columns != "" {
				b.set(t, task.TaskID, c.columns)
			}
			b.refused(t, task.TaskID, idemstore.ErrChanged, func() (idemstore.Task, error) {
				return b.Retry(t.Context(), task.Shown(), byAnna, idemstore.RetryTo{MaxAge: time.Hour, ResendOnce: c.again})
			})
		})
	}
}

// A result that could not be stored whole is nothing to book from: the provider is asked for it again.
func TestRetryOfWhatCannotBeBooked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, columns := range map[string]string{
		"no result":      `review_cause = 'not_booked', external_id = 'ch_1'`,
		"altered result": `review_cause = 'not_booked', external_id = 'ch_1', result = '{"truncated":true}', result_altered = true`,
		"a refusal":      `review_cause = 'refusal_not_booked', external_id = 'ch_1'`,
	} {
		task, _ := b.found(t, name, "review, unsure")
		b.set(t, task.TaskID, columns)
		got, err := b.Retry(t.Context(), task.Shown(), byAnna, idemstore.RetryTo{MaxAge: time.Hour})
		if err != nil || got.Status != idemstore.Unknown || got.ExternalID != "ch_1" {
			t.Errorf("%s: %+v (%v)", name, got, err)
		}
	}
}

func another() idemstore.Another {
	payload := []byte(`{"order":"order_1","note":"corrected"}`)
	hash := sha256.Sum256(payload)
	return idemstore.Another{Payload: payload, Hash: hash[:], HashAlgorithm: "v1", MaxAge: time.Hour,
		Refs: []idemstore.Ref{{Name: "customer", Value: "c_9"}}}
}

func TestSupersedeLeaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task, _ := b.found(t, "order_1", "review, not unsure")
	b.set(t, task.TaskID, `last_error = 'amount differs', hash_algorithm = 'v0'`+spent)
	if _, err := b.Supersede(t.Context(), task.Shown(), byAnna, another()); err != nil {
		t.Fatal(err)
	}
	row, x := b.task(t, task.TaskID), another()
	switch {
	case string(row.Payload) != string(x.Payload), string(row.Hash) != string(x.Hash), row.HashAlgorithm != "v1":
		t.Errorf("the content: %+v", row)
	case row.Status != idemstore.Started, row.LeaseUntil != nil, row.Unsure, row.Attempt != 2, row.Failures != 0, row.Cause != "":
		t.Errorf("not released: %+v", row)
	case row.ProviderKey != task.ProviderKey, row.Origin != task.Origin:
		t.Errorf("whose it is: %+v", row)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.task_refs where name = 'customer' and value = 'c_9'`); n != 1 {
		t.Error("the task cannot be found by its new search terms")
	}
	old := claimOf("order_1") // the first message, should it come again
	b.expect(t, idemstore.Perform, old)
}

func TestSupersedeRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for state := range states {
		if state == "review, not unsure" {
			continue
		}
		t.Run(state, func(t *testing.T) {
			task, _ := b.found(t, state, state)
			b.refused(t, task.TaskID, idemstore.ErrChanged, func() (idemstore.Task, error) {
				return b.Supersede(t.Context(), task.Shown(), byAnna, another())
			})
		})
	}
}

// Records that are done belong to the content that they were taken from.
func TestSupersedeRefusedBesideSteps(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	task, _ := b.found(t, "order_1", "review, not unsure")
	b.exec(t, `insert into settle.steps (task_id, idx, total, outcome) values ($1, 0, 1, 'imported')`, task.TaskID)
	b.refused(t, task.TaskID, idemstore.ErrChanged, func() (idemstore.Task, error) {
		return b.Supersede(t.Context(), task.Shown(), byAnna, another())
	})
}

func TestNoteChangesNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for state := range states {
		task, _ := b.found(t, state, state)
		before := b.row(t, task.TaskID)
		for range 2 {
			if err := b.Note(t.Context(), task.TaskID, byAnna, "ch_7"); err != nil {
				t.Fatal(err)
			}
		}
		events, err := b.Events(t.Context(), task.TaskID)
		if err != nil || len(events) != 2 {
			t.Fatalf("%s: audit %+v (%v), want two lines", state, events, err)
		}
		e := events[1]
		e.At = time.Time{}
		if want := (idemstore.Event{Actor: "anna", Attempt: 1, OldStatus: task.Status, NewStatus: task.Status, Reason: byAnna.Reason,
			ExternalID: "ch_7", TraceID: "0af7651916cd43dd8448eb211c80319c"}); e != want || b.row(t, task.TaskID) != before {
			t.Errorf("%s: %+v, want %+v and nothing else changed", state, e, want)
		}
	}
}

// An act by somebody without Unicode manners can be stored, too.
func TestActsCleanWhatTheyStore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bad := idemstore.By{Actor: "an\x00na", Reason: "be\xffcause", Trace: "no trace"}
	task, _ := b.found(t, "order_1", "unknown")
	if err := b.Note(t.Context(), task.TaskID, bad, "\x00"); err != nil {
		t.Error(err)
	}
	r := settled()
	r.ExternalID, r.LastError = "ch_\x00", "\xff"
	if _, err := b.Resolve(t.Context(), task.Shown(), bad, r); err != nil {
		t.Error(err)
	}
}

func TestD18ActsNotAnswered(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*wire, idemstore.Task) (idemstore.Task, error){
		"retry": func(w *wire, task idemstore.Task) (idemstore.Task, error) {
			return w.cut.Retry(t.Context(), task.Shown(), byAnna, idemstore.RetryTo{MaxAge: time.Hour})
		},
		"supersede": func(w *wire, task idemstore.Task) (idemstore.Task, error) {
			return w.cut.Supersede(t.Context(), task.Shown(), byAnna, another())
		},
		"note": func(w *wire, task idemstore.Task) (idemstore.Task, error) {
			return task, w.cut.Note(t.Context(), task.TaskID, byAnna, "")
		},
	} {
		for _, fault := range faults {
			t.Run(name+", "+fault.name, func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				task, _ := w.found(t, "order_1", "review, not unsure")
				shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:" + name + " */"})
				got, err := do(w, task)
				rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
				if n := len(w.reasons(t, task.TaskID)); err != nil || n != 1 || got.Token != w.task(t, task.TaskID).Token {
					t.Errorf("%+v (%v), %d audit lines", got, err, n)
				}
			})
		}
	}
}

// An act that meets a row which somebody holds for long gives up like every other statement.
func TestActWaitsForALockOnlySoLong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	quick := idemstore.New(b.pool, 30*time.Millisecond)
	task, _ := b.found(t, "order_1", "unknown")
	unlock := b.lock(t, task.TaskID)
	_, err := quick.Resolve(t.Context(), task.Shown(), byAnna, settled())
	if err == nil || errors.Is(err, idemstore.ErrChanged) || state(err) != "55P03" {
		t.Errorf("%v, want the lock timeout", err)
	}
	unlock()
	if _, err := quick.Resolve(t.Context(), task.Shown(), byAnna, settled()); err != nil {
		t.Error(err)
	}
}
