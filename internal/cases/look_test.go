package cases

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// find returns the task of a job; ok is false if there is none.
func (s *stage) find(j job) (task idemstore.Task, ok bool) {
	s.t.Helper()
	task, err := s.store.Find(s.t.Context(), j.kind, j.key)
	if errors.Is(err, idemstore.ErrNotFound) {
		return task, false
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return task, true
}

// await waits until the task of a job satisfies holds, and returns it.
func (s *stage) await(j job, what string, holds func(idemstore.Task) bool) (task idemstore.Task) {
	s.t.Helper()
	rig.Eventually(s.t, soon, fmt.Sprintf("task %s is %s", j.key, what), func() bool {
		found, ok := s.find(j)
		task = found
		return ok && holds(task)
	})
	return task
}

func (s *stage) awaitStatus(j job, status idemstore.Status) idemstore.Task {
	s.t.Helper()
	return s.await(j, string(status), func(t idemstore.Task) bool { return t.Status == status })
}

// awaitSettled waits until the stream is empty: each message was acked or termed.
func (s *stage) awaitSettled() {
	s.t.Helper()
	rig.Eventually(s.t, soon, "every message is settled", func() bool { return rig.StreamMessages(s.t, s.js, "JOBS") == 0 })
}

// requests counts the requests with a job's key that reached the provider: W, and look-ups.
func (s *stage) requests(j job) (w, lookups int) {
	s.t.Helper()
	s.scan(`select count(*) filter (where method = 'POST'), count(*) filter (where method = 'GET')
		from provider.requests where key = $1`, []any{j.key}, &w, &lookups)
	return w, lookups
}

// effects are the ids of what the provider really did for a job's key. E is their number.
func (s *stage) effects(j job) []string {
	s.t.Helper()
	sql := `select charge_id from provider.charges where idempotency_key = $1 and status = 'succeeded'`
	if j.kind == reportKind {
		sql = `select report_id from provider.reports where idempotency_key = $1 and status = 'ready'`
	}
	return query[string](s, sql, j.key)
}

// allEffects is E of all keys together.
func (s *stage) allEffects() (e int) {
	s.t.Helper()
	s.scan(`select (select count(*) from provider.charges where status = 'succeeded')
		+ (select count(*) from provider.reports where status = 'ready')`, nil, &e)
	return e
}

func (s *stage) scan(sql string, args []any, into ...any) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(into...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](s *stage, sql string, args ...any) []T {
	s.t.Helper()
	rows, _ := s.pool.Query(s.t.Context(), sql, args...)
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func (s *stage) events(task idemstore.Task) []idemstore.Event {
	s.t.Helper()
	events, err := s.store.Events(s.t.Context(), task.TaskID)
	if err != nil {
		s.t.Fatal(err)
	}
	return events
}

// holds checks what has to be true when everything has come to rest: no message is left and no task is open, and
// each of the jobs is finished with exactly one effect, the one whose id is on its row.
func (s *stage) holds(jobs ...job) {
	s.t.Helper()
	s.awaitSettled()
	for _, j := range jobs {
		s.holdsFor(j)
	}
	if open := query[string](s, `select key || ' is ' || status from settle.tasks where status in ('started', 'unknown')`); len(open) > 0 {
		s.t.Errorf("still open: %q", open)
	}
	for _, kind := range []string{chargeKind, reportKind} {
		if standing := rig.ConsumerStanding(s.t, s.js, "JOBS", consumerOf(kind)); standing != (rig.Standing{}) {
			s.t.Errorf("consumer of %s: %+v", kind, standing)
		}
	}
}

// noneOpen checks that each task is finished.
func (s *stage) noneOpen() {
	s.t.Helper()
	if open := query[string](s, `select key || ' is ' || status from settle.tasks where status <> 'finished' limit 20`); len(open) > 0 {
		s.t.Errorf("still open: %q", open)
	}
}

// consumerOf is the name of a kind's durable consumer.
func consumerOf(kind string) string { return strings.ReplaceAll(kind, ".", "-") }

func (s *stage) holdsFor(j job) {
	s.t.Helper()
	task, ok := s.find(j)
	if !ok {
		s.t.Errorf("%s: there is no task", j.key)
		return
	}
	effects := s.effects(j)
	w, _ := s.requests(j)
	switch {
	case task.Status != idemstore.Finished:
		s.t.Errorf("%s is %s: %s", j.key, task.Status, task.LastError)
	case len(effects) != 1 || task.ExternalID != effects[0]:
		s.t.Errorf("%s: effects %q at the provider, want one; the row has %q", j.key, effects, task.ExternalID)
	case w < 1 || w > task.Attempt:
		s.t.Errorf("%s: W=%d in %d attempts", j.key, w, task.Attempt)
	}
	s.audited(task)
	if j.kind == chargeKind {
		s.booked(j, task)
	}
}

// audited compares the row's counts with its audit: every take-over is written down and cost one failure, and a
// task that went through in one attempt left nothing to tell.
func (s *stage) audited(task idemstore.Task) {
	s.t.Helper()
	events, takeOvers := s.events(task), 0
	for _, e := range events {
		if strings.HasPrefix(e.Reason, "taken over") {
			takeOvers++
		}
		if e.Attempt < 1 || e.Attempt > task.Attempt {
			s.t.Errorf("%s: audit of attempt %d, the row had %d: %s", task.Key, e.Attempt, task.Attempt, e.Reason)
		}
	}
	if takeOvers > task.Failures || task.Failures >= max(task.Attempt, 1) || task.Attempt == 1 && len(events) > 0 {
		s.t.Errorf("%s: %d attempts, %d failures, %d take-overs; audit %+v", task.Key, task.Attempt, task.Failures, takeOvers, events)
	}
}

// booked checks the local rows of a charge: they were committed with the result, once.
func (s *stage) booked(j job, task idemstore.Task) {
	s.t.Helper()
	var paid, payments int
	s.scan(`select (select count(*) from shop.orders where status = 'paid' and charge_id = $1),
		(select count(*) from shop.payments where charge_id = $1)`, []any{task.ExternalID}, &paid, &payments)
	events := s.eventsOf(task)
	if paid != 1 || payments != 1 || events != 1 {
		s.t.Errorf("%s: %d paid orders, %d payments, %d events; want one of each", j.key, paid, payments, events)
	}
}

// eventsOf counts the events of a task that were published.
func (s *stage) eventsOf(task idemstore.Task) (n int) {
	s.t.Helper()
	rig.Eventually(s.t, soon, "the outbox is empty", func() bool {
		state, err := s.store.OutboxState(s.t.Context())
		return err == nil && state.Rows == 0
	})
	stream, err := s.js.Stream(s.t.Context(), "EVENTS")
	if err != nil {
		s.t.Fatal(err)
	}
	state := stream.CachedInfo().State
	for at := state.FirstSeq; at <= state.LastSeq && state.Msgs > 0; at++ {
		m, err := stream.GetMsg(s.t.Context(), at)
		if err != nil {
			s.t.Fatal(err)
		}
		if m.Header.Get("Settle-Task") == fmt.Sprint(task.TaskID) {
			n++
		}
	}
	return n
}

// drained stops a worker the orderly way, which also proves that none of its deliveries is under way any more.
func drained(t *testing.T, w *rig.Worker) {
	t.Helper()
	rig.Eventually(t, soon, "the worker serves", func() bool { return strings.Contains(w.Output(), "msg=serving") })
	ended(t, w)
}

// ended is drained for a worker that serves and does not say so.
func ended(t *testing.T, w *rig.Worker) {
	t.Helper()
	w.Signal(syscall.SIGTERM)
	if e := w.Wait(soon); e != (rig.Exit{}) {
		t.Errorf("worker %d ended with %s, want exit code 0", w.PID(), e)
	}
}
