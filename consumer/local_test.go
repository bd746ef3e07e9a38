package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// The first delivery is one transaction: nobody sees a claim before the rows and the result.
func TestLocalFirstDelivery(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	seen := make(chan bool, 1)
	b.local.Apply = func(ctx context.Context, tx pgx.Tx, a *Attempt[payJob]) (paid, error) {
		_, there := b.find()
		seen <- there
		if a.MaySend() == nil {
			t.Error("a local job may send")
		}
		return note(ctx, tx, a)
	}
	b.start()
	b.publish(plainJob)
	b.finishes(1, 0)
	if await(t, seen, "the job runs") {
		t.Error("the claim was committed before the job")
	}
	var together bool
	if err := b.pool.QueryRow(t.Context(), `select n.xmin = t.xmin from public.notes n, settle.tasks t`).Scan(&together); err != nil || !together {
		t.Errorf("row and result are two transactions (%v)", err)
	}
}

// What a job that fails leaves: one failure on the task, and no rows. Its next delivery commits the claim first.
func TestLocalFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run   apply
		class string
		text  string
	}{
		"an error":              {failing(errors.New("no such page")), "unknown", "no such page"},
		"a panic":               {func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { panic("secret") }, "panic", "panicked"},
		"refused by Postgres":   {sqlOf(`select 1 / 0`), "unknown", "22012"},
		"a broken connection":   {sqlOf(`select pg_terminate_backend(pg_backend_pid())`), "unknown", ""},
		"refused at the commit": {sqlOf(`insert into public.late values (1)`), "unknown", "23505"},
		"an error dropped": {func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
			_, _ = tx.Exec(ctx, `select 1 / 0`)
			return paid{}, nil
		}, "unknown", "its error was dropped"},
		"rows left unread": {func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
			_, err := tx.Query(ctx, `select generate_series(1, 100000)`) //nolint:gocritic,rowserrcheck,sqlclosecheck // the mistake
			return paid{}, err
		}, "unknown", "left unread"},
		"ended by the job": {sqlOf(`rollback`), "unknown", "ended by the job"},
		"a commit": {func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
			return paid{}, tx.Commit(ctx)
		}, "unknown", "the engine's to end"},
		"a rollback": {func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
			return paid{}, tx.Rollback(ctx)
		}, "unknown", "the engine's to end"},
		"another outcome": {failing(NotSent(errors.New("not today"))), "not_sent", "not today"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.exec(`create table public.late (x int unique deferrable initially deferred)`)
			b.exec(`insert into public.late values (1)`)
			held := make(chan idemstore.Task, 1)
			b.inTurn(c.run, func(_ context.Context, _ pgx.Tx, a *Attempt[payJob]) (paid, error) {
				task, _ := b.find()
				held <- task
				return paid{ID: fmt.Sprint("note of attempt ", a.Number)}, nil
			})
			b.start()
			b.publish(plainJob)
			before := await(t, held, "the job runs again")
			if before.Status != idemstore.Started || before.Attempt != 2 || before.LeaseUntil == nil || before.Failures != 1 {
				t.Errorf("the claim of the redelivery is not committed: %s, attempt %d, lease %v, failures %d", before.Status, before.Attempt, before.LeaseUntil, before.Failures)
			}
			if before.ErrorClass != c.class || !strings.Contains(before.LastError, c.text) || strings.Contains(before.LastError, "secret") {
				t.Errorf("error class %s, %q", before.ErrorClass, before.LastError)
			}
			task := b.finishes(2, 1)
			if events, err := b.store.Events(t.Context(), task.TaskID); err != nil || len(events) != 1 || events[0].Reason != "the job failed and was rolled back" {
				t.Errorf("audit: %+v (%v)", events, err)
			}
		})
	}
}

// A job that fails each time waits for a person once its budget is used up, with its last error.
func TestLocalBudget(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.conf.Policy.MaxFailures = 3
	runs := b.inTurn(slices.Repeat([]apply{failing(errors.New("never"))}, 10)...)
	b.start()
	b.publish(plainJob)
	task := b.awaitStatus("pay_1", idemstore.NeedsReview)
	b.awaitSettled()
	if task.Failures != 3 || task.Attempt != 3 || runs.Load() != 3 || task.LastError != "never" || task.Unsure || len(task.Result) > 0 {
		t.Errorf("%d failures, attempt %d, %d runs, error %q, unsure %v, result %s", task.Failures, task.Attempt, runs.Load(), task.LastError, task.Unsure, task.Result)
	}
	if notes := b.notes(); notes != "" {
		t.Errorf("rows are left: %s", notes)
	}
}

// What a job says for good, on its first delivery and on a later one.
func TestLocalFinalErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status idemstore.Status
		result string
	}{
		"refused":  {Refused(errors.New("closed")), idemstore.Failed, `{"id":"nothing"}`},
		"conflict": {Conflict(errors.New("contradiction")), idemstore.NeedsReview, ""},
	} {
		for before, runs := range map[string][]apply{"first delivery": nil, "later": {failing(errors.New("again"))}} {
			t.Run(name+", "+before, func(t *testing.T) {
				t.Parallel()
				b := newLocalBench(t)
				n := b.inTurn(append(runs, failing(c.err))...)
				b.start()
				b.publish(plainJob)
				task := b.awaitStatus("pay_1", c.status)
				b.awaitSettled()
				if want := len(runs) + 1; task.Attempt != want || int(n.Load()) != want || task.Failures != len(runs) || task.Unsure {
					t.Errorf("attempt %d, %d runs, %d failures, unsure %v", task.Attempt, n.Load(), task.Failures, task.Unsure)
				}
				if string(task.Result) != c.result || task.LastError != c.err.Error() || b.notes() != "" {
					t.Errorf("result %s, error %q, notes %q", task.Result, task.LastError, b.notes())
				}
			})
		}
	}
}

// What passes a moment later is run again inside the attempt, from the beginning.
func TestLocalRunsAgain(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]string{"serialization failure": "40001", "deadlock": "40P01", "lock not available": "55P03"} {
		for before, first := range map[string][]apply{"first delivery": nil, "later": {failing(errors.New("again"))}} {
			t.Run(name+", "+before, func(t *testing.T) {
				t.Parallel()
				b := newLocalBench(t)
				raise := sqlOf(`do $$ begin raise exception 'passing' using errcode = '` + state + `'; end $$`)
				runs := b.inTurn(append(first, raise, raise)...)
				b.start()
				b.publish(plainJob)
				b.finishes(len(first)+1, len(first))
				if got := int(runs.Load()); got != len(first)+3 {
					t.Errorf("%d runs", got)
				}
			})
		}
	}
}

// A run that is to be repeated can find that another worker has the key by now: the message is handed back, not acked.
func TestLocalRunsAgainAndFindsAnother(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Minute, time.Hour
	b.exec(`create function public.refuse() returns trigger language plpgsql as $$ begin raise 'passing' using errcode = '40001'; end $$`)
	b.exec(`create constraint trigger refuse after insert on public.notes deferrable initially deferred for each row execute function public.refuse()`)
	other := make(chan idemstore.Claimed, 1)
	b.inTurn(func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) {
		// Whoever comes now waits for this transaction, and gets at the key once the commit has failed.
		go func() {
			c := b.claim()
			for ; c.Found == idemstore.Locked; c = b.claim() {
			}
			other <- c
		}()
		if !eventually(t, 10*time.Second, b.waitsForLock) {
			t.Error("the other never waited")
		}
		return paid{}, nil
	})
	heard := b.listen()
	b.start()
	b.publish(plainJob)
	taken := await(t, other, "the other claims")
	if !eventually(t, 10*time.Second, func() bool { return len(heard.about(1)) > 0 }) {
		t.Error("the message was not handed back")
	}
	if task, _ := b.find(); task.Fence != taken.Task.Fence || task.Status != idemstore.Started || b.messages() != 1 || b.notes() != "" {
		t.Errorf("%s, attempt %d, %d messages, notes %q", task.Status, task.Attempt, b.messages(), b.notes())
	}
}

func TestLocalDuplicates(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	runs := b.inTurn()
	b.start()
	b.publish(plainJob)
	b.finishes(1, 0)
	b.publish(plainJob)
	b.publish(`{"order":1}`)
	b.publish(`{"order":"1","note":"other"}`)
	b.awaitSettled()
	if task := b.finishes(1, 0); task.Duplicates != 2 || runs.Load() != 1 {
		t.Errorf("%d duplicates, %d runs", task.Duplicates, runs.Load())
	}
	var refused string
	if err := b.pool.QueryRow(t.Context(), `select string_agg(reason, ',') from settle.refusals`).Scan(&refused); err != nil || refused != "conflict" {
		t.Errorf("refused %q (%v)", refused, err)
	}
}

// Two workers get the same job at the same moment: one runs it, the other hands it back and then replays.
func TestLocalTwoWorkers(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	entered, release := make(chan struct{}, 2), make(chan struct{})
	runs := b.inTurn(func(ctx context.Context, tx pgx.Tx, a *Attempt[payJob]) (paid, error) {
		entered <- struct{}{}
		<-release
		return paid{ID: "note of attempt 1"}, nil
	})
	b.conf.Slots = 1
	heard := b.listen()
	b.start()
	b.publish(plainJob)
	await(t, entered, "the first worker is at it")
	b.start()
	b.publish(plainJob)
	if !eventually(t, 10*time.Second, func() bool { return len(heard.about(2)) > 0 }) {
		t.Error("the second worker never handed the job back")
	}
	close(release)
	if task := b.finishes(1, 0); task.Duplicates != 1 || runs.Load() != 1 {
		t.Errorf("%d duplicates, %d runs", task.Duplicates, runs.Load())
	}
}

// The answer to COMMIT is lost, or the COMMIT itself.
func TestLocalCommitCut(t *testing.T) {
	t.Parallel()
	type cut = func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot
	for name, c := range map[string]struct {
		cut        cut
		first      []apply
		runs       int
		deliveries uint64
	}{
		"answer lost, first delivery": {(*rig.PostgresProxy).DropCommitAnswer, nil, 1, 1},
		"answer lost, later":          {(*rig.PostgresProxy).DropCommitAnswer, []apply{failing(errors.New("again"))}, 2, 2},
		"not sent, first delivery":    {(*rig.PostgresProxy).CutBeforeCommit, nil, 2, 1},
		"not sent, later":             {(*rig.PostgresProxy).CutBeforeCommit, []apply{failing(errors.New("again"))}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			proxy := rig.NewPostgresProxy(t, b.pool.Config().ConnString())
			direct := b.pool
			through, err := pgxpool.New(t.Context(), proxy.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(through.Close)
			runs := b.inTurn(c.first...)
			shot := c.cut(proxy, rig.CommitCut{Containing: "/* settle:guard-apply */"})
			b.pool = through
			_, stop := b.start()
			b.pool = direct
			b.publish(plainJob)
			await(t, shot.Fired(), "the cut")
			b.finishes(len(c.first)+1, len(c.first))
			if int(runs.Load()) != c.runs || b.deliveries() != c.deliveries {
				t.Errorf("%d runs, %d deliveries", runs.Load(), b.deliveries())
			}
			stop()
		})
	}
}

// A job that takes longer than AckWait and lease stays with its worker: its row is locked, its message kept.
func TestLocalOutlastsItsClocks(t *testing.T) {
	t.Parallel()
	for name, first := range map[string][]apply{"first delivery": nil, "later": {failing(errors.New("again"))}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.conf.AckWait, b.conf.Lease, b.conf.Policy.Deadline = time.Second, time.Second, 10*time.Second
			runs := b.inTurn(append(first, func(_ context.Context, _ pgx.Tx, a *Attempt[payJob]) (paid, error) {
				<-time.After(2500 * time.Millisecond)
				return paid{ID: fmt.Sprint("note of attempt ", a.Number)}, nil
			})...)
			b.start()
			b.start()
			b.publish(plainJob)
			b.finishes(len(first)+1, len(first))
			if n := len(first) + 1; int(runs.Load()) != n || int(b.deliveries()) != n { //nolint:gosec // a few
				t.Errorf("%d runs, %d deliveries", runs.Load(), b.deliveries())
			}
		})
	}
}

// The total time of one attempt.
func TestLocalDeadline(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.conf.Policy.Deadline = time.Second
	cause := make(chan error, 2)
	late := func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
		_, err := tx.Exec(ctx, `select pg_sleep(60)`)
		cause <- context.Cause(ctx)
		return paid{}, err
	}
	b.inTurn(late, late)
	b.start()
	b.publish(plainJob)
	for range 2 {
		if err := await(t, cause, "the deadline"); !errors.Is(err, ErrDeadline) {
			t.Errorf("cause %v", err)
		}
	}
	if task := b.finishes(3, 2); task.ErrorClass != "timeout" {
		t.Errorf("class %s", task.ErrorClass)
	}
}

// A process that stands still in mid-job must not keep its key for ever: the server ends its session. What it does
// when it wakes up changes nothing.
func TestLocalFrozen(t *testing.T) {
	t.Parallel()
	for name, first := range map[string][]apply{"first delivery": nil, "later": {failing(errors.New("again"))}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.conf.Policy.Deadline, b.conf.Policy.BackoffMax = time.Second, time.Second
			b.slowBroker()
			b.conf.Lease = time.Second
			entered, release := make(chan struct{}), make(chan struct{})
			b.inTurn(append(first, func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) {
				close(entered)
				<-release
				return paid{ID: "late"}, nil
			})...)
			_, stop := b.start()
			b.publish(plainJob)
			await(t, entered, "the job begins")
			var taken idemstore.Claimed
			if !eventually(t, 20*time.Second, func() bool {
				taken = b.claim()
				return taken.Found == idemstore.Inserted || taken.Found == idemstore.Perform
			}) {
				t.Fatalf("the key stayed locked: %s", taken.Found)
			}
			close(release)
			b.await("pay_1", "left alone", func(idemstore.Task) bool { return true })
			stop()
			if task, _ := b.find(); task.Fence != taken.Task.Fence || task.Status != idemstore.Started || b.notes() != "" {
				t.Errorf("the late job changed the task: %s attempt %d, notes %q", task.Status, task.Attempt, b.notes())
			}
		})
	}
}
