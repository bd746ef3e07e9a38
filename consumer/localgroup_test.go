package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// groupBench is a bench on which jobs a, b, … gather into one group: both lanes are kept busy until then.
type groupBench struct {
	*localBench
	does map[string]apply // by order; note where there is none
	runs chan string      // the orders, as they run

	patience time.Duration // of those that gather; 0: as it is
}

func newGroupBench(t *testing.T) *groupBench {
	t.Helper()
	g := &groupBench{localBench: newLocalBench(t), does: map[string]apply{}, runs: make(chan string, 100)}
	g.conf.Slots = 8
	g.local.Apply = func(ctx context.Context, tx pgx.Tx, a *Attempt[payJob]) (paid, error) {
		order, err := a.Job.Order.Text()
		if err != nil {
			return paid{}, err
		}
		g.runs <- order
		out, err := note(ctx, tx, a)
		if do := g.does[order]; do != nil && err == nil {
			return do(ctx, tx, a)
		}
		return out, err
	}
	return g
}

// gather lets jobs come while both lanes are busy, and returns once they wait as one group. The lanes go on with free.
func (g *groupBench) gather(orders ...string) (stop func(), free func()) {
	g.t.Helper()
	release := make(chan struct{})
	free = sync.OnceFunc(func() { close(release) })
	busy := func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { <-release; return paid{}, nil }
	g.does["lane1"], g.does["lane2"] = busy, busy
	e := g.engine(g.local)
	locals := e.kinds[0].locals
	locals.late, locals.bounds = 0, fixed(groupLimit, sizeLanes) // the lanes are not slow, they are kept busy
	locals.patience = or(g.patience, locals.patience)
	stop = g.runEngine(e)
	g.t.Cleanup(free)
	for _, lane := range []string{"lane1", "lane2"} {
		g.publish(fmt.Sprintf(`{"order":%q}`, lane))
		await(g.t, g.runs, "a lane is busy")
	}
	for _, order := range orders {
		g.publish(fmt.Sprintf(`{"order":%q}`, order))
	}
	gathered := func() bool {
		locals.mu.Lock()
		defer locals.mu.Unlock()
		return len(locals.waiting) == len(orders)
	}
	if !eventually(g.t, 10*time.Second, gathered) {
		g.t.Fatal("the jobs do not gather")
	}
	return stop, free
}

// finished waits for jobs to end with one note each, and returns in how many transactions that was.
func (g *groupBench) finished(orders ...string) (transactions int) {
	g.t.Helper()
	keys := make([]string, len(orders))
	for i, order := range orders {
		keys[i] = "pay_" + order
		g.awaitStatus(keys[i], idemstore.Finished)
	}
	var notes int
	if err := g.pool.QueryRow(g.t.Context(), `select count(*), count(distinct xmin::text) from public.notes where key = any($1)`,
		keys).Scan(&notes, &transactions); err != nil {
		g.t.Fatal(err)
	}
	if notes != len(orders) {
		g.t.Errorf("%d notes of %d jobs", notes, len(orders))
	}
	return transactions
}

func TestLocalJobsShareATransaction(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	_, free := g.gather("a", "b", "c", "d")
	free()
	if n := g.finished("a", "b", "c", "d"); n != 1 {
		t.Errorf("%d transactions", n)
	}
	g.awaitSettled()
	if n := g.deliveries(); n != 6 {
		t.Errorf("%d deliveries of 6 messages", n)
	}
}

// What is wrong with one job of a group is that job's alone.
func TestABadJobOfAGroupFailsAlone(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		does   apply
		status idemstore.Status
		note   bool
	}{
		"an error":               {failing(bad), idemstore.NeedsReview, false},
		"a panic":                {func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { panic("bad") }, idemstore.NeedsReview, false},
		"refused":                {failing(Refused(bad)), idemstore.Failed, false},
		"conflict":               {failing(Conflict(bad)), idemstore.NeedsReview, false},
		"a statement that fails": {sqlOf(`select 1 / 0`), idemstore.NeedsReview, false},
		"a statement whose error is dropped": {func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
			_, _ = tx.Exec(ctx, `select 1 / 0`)
			return paid{}, nil
		}, idemstore.NeedsReview, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroupBench(t)
			g.conf.Policy.MaxFailures = 1
			g.does["b"] = c.does
			_, free := g.gather("a", "b", "c")
			free()
			if n := g.finished("a", "c"); n != 2 {
				t.Errorf("%d transactions", n)
			}
			if task := g.awaitStatus("pay_b", c.status); task.Attempt != 1 {
				t.Errorf("attempt %d", task.Attempt)
			}
			g.finished("lane1", "lane2")
			if notes := g.notes(); notes != "pay_a 1, pay_c 1, pay_lane1 1, pay_lane2 1" {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}

// A deferred constraint speaks at the COMMIT of all.
func TestACommitThatOneJobOfAGroupSpoils(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	g.conf.Policy.MaxFailures = 1
	g.exec(`create table public.later (id int primary key deferrable initially deferred); insert into public.later values (1)`)
	g.does["b"] = sqlOf(`insert into public.later values (1)`)
	_, free := g.gather("a", "b", "c")
	free()
	g.finished("a", "c")
	g.awaitStatus("pay_b", idemstore.NeedsReview)
}

// A repeat among new jobs is answered from its row.
func TestARepeatInAGroup(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	g.publish(`{"order":"b"}`)
	_, stop := g.start()
	g.finished("b")
	stop()
	for range len(g.runs) {
		<-g.runs
	}
	_, free := g.gather("a", "b", "c")
	free()
	if n := g.finished("a", "c"); n != 1 {
		t.Errorf("%d transactions", n)
	}
	if task := g.await("pay_b", "the repeat is counted", func(x idemstore.Task) bool { return x.Duplicates == 1 }); task.Attempt != 1 {
		t.Errorf("attempt %d", task.Attempt)
	}
	g.finished("b")
}

// Who holds a lock that one job wants does not hold up the others.
func TestALockThatOneJobOfAGroupWants(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	g.exec(`create table public.shared (n int); insert into public.shared values (0)`)
	tx, err := g.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update public.shared set n = n`); err != nil {
		t.Fatal(err)
	}
	waits := make(chan string, 4)
	g.does["a"] = func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (out paid, err error) {
		var limit string
		err = tx.QueryRow(ctx, `select current_setting('lock_timeout')`).Scan(&limit)
		waits <- limit
		return out, err
	}
	g.does["b"] = sqlOf(`update public.shared set n = n + 1`)
	_, free := g.gather("a", "b", "c")
	free()
	g.finished("a", "c")
	if limit := await(t, waits, "a runs"); limit != "50ms" {
		t.Errorf("a group waits %s for a lock", limit)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.finished("b")
}

// The answer to the COMMIT of a group is lost, or the COMMIT itself.
func TestTheCommitOfAGroupIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut          func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot
		transactions int
	}{
		"answer lost": {(*rig.PostgresProxy).DropCommitAnswer, 1},
		"not sent":    {(*rig.PostgresProxy).CutBeforeCommit, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroupBench(t)
			proxy := rig.NewPostgresProxy(t, g.pool.Config().ConnString())
			direct := g.pool
			through, err := pgxpool.New(t.Context(), proxy.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(through.Close)
			g.pool = through
			shot := c.cut(proxy, rig.CommitCut{Containing: "/* settle:wait-shortly */"})
			stop, free := g.gather("a", "b", "c")
			g.pool = direct
			free()
			await(t, shot.Fired(), "the cut")
			if n := g.finished("a", "b", "c"); n != c.transactions {
				t.Errorf("%d transactions", n)
			}
			if n := g.count(`duplicates > 0`); n != 0 {
				t.Errorf("%d jobs pass for repeats of themselves", n)
			}
			g.awaitSettled()
			if n := g.deliveries(); n != 5 {
				t.Errorf("%d deliveries of 5 messages", n)
			}
			stop()
		})
	}
}

// A drain gives back those of a group that have not begun.
func TestAGroupThatWaitsAtADrain(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	g.slowBroker()
	stop, free := g.gather("a", "b")
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	if !eventually(t, 10*time.Second, func() bool { return g.waitingPulls() == 0 }) {
		t.Fatal("it goes on taking messages")
	}
	free()
	<-stopped
	if notes := g.notes(); notes != "pay_lane1 1, pay_lane2 1" || g.messages() != 2 {
		t.Errorf("notes %q, %d messages left", notes, g.messages())
	}
}

// Jobs that take long hold up no others, although two transactions are enough for quick ones.
func TestSlowLocalJobsHoldUpNobody(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	g.conf.AckWait, g.conf.Policy.Deadline = time.Minute, time.Minute
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	slow := func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { <-release; return paid{}, nil }
	g.does["slow0"], g.does["slow1"] = slow, slow
	g.start()
	t.Cleanup(free)
	for i := range sizeLanes {
		order := fmt.Sprint("slow", i)
		g.publish(fmt.Sprintf(`{"order":%q}`, order))
		await(t, g.runs, "a slow job begins")
	}
	g.publish(`{"order":"quick"}`)
	g.finished("quick")
	if n := g.deliveries(); n != sizeLanes+1 {
		t.Errorf("%d deliveries of %d messages", n, sizeLanes+1)
	}
	free()
	g.finished("slow0", "slow1")
}

// A group whose jobs turn out to be slow is given up after a second: alone they run at the same time.
func TestAGroupThatTurnsSlowIsGivenUp(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	g.conf.AckWait, g.conf.Policy.Deadline = time.Minute, time.Minute
	g.does["a"] = sqlOf(`select pg_sleep(1.1)`)
	_, free := g.gather("a", "b", "c")
	free()
	if n := g.finished("a", "b", "c"); n != 3 {
		t.Errorf("%d transactions", n)
	}
	g.awaitSettled()
	if n := g.deliveries(); n != 5 {
		t.Errorf("%d deliveries of 5 messages", n)
	}
}

// A job that never returns, whatever its context says, does not keep the others of its group.
func TestAJobThatNeverReturnsKeepsNobody(t *testing.T) {
	t.Parallel()
	g := newGroupBench(t)
	release := make(chan struct{})
	stuck := sync.OnceFunc(func() { close(release) })
	g.does["a"] = func(context.Context, pgx.Tx, *Attempt[payJob]) (paid, error) { <-release; return paid{}, nil }
	g.patience, g.conf.Policy.Deadline = 2*time.Second, 2*time.Second
	_, free := g.gather("a", "b", "c")
	t.Cleanup(stuck)
	free()
	g.finished("b", "c")
}
