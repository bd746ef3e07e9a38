package idemstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

func number(n int64) *int64 { return &n }

// version n of the entity "c_1".
func version(n int64) idemstore.Entity {
	return idemstore.Entity{Kind: kind, ID: "c_1", Version: idemstore.Version{Number: number(n)}}
}

func guardOf(task int64, e idemstore.Entity) idemstore.Guard {
	return idemstore.Guard{Entity: e, TaskID: task}
}

// guard runs one guard that must be answered.
func (b bench) guard(t *testing.T, g idemstore.Guard) idemstore.Guarded {
	t.Helper()
	out, err := b.Guard(t.Context(), g)
	if err != nil || len(out) != 1 {
		t.Fatalf("guard: %+v (%v)", out, err)
	}
	return out[0]
}

// guarded runs one guard that must come to what is given.
func (b bench) guarded(t *testing.T, want idemstore.GuardFound, task int64, e idemstore.Entity) idemstore.Guarded {
	t.Helper()
	g := b.guard(t, guardOf(task, e))
	if g.Found != want {
		t.Fatalf("the guard is %q, want %q: %+v", g.Found, want, g)
	}
	return g
}

// entity is the row of "c_1": the version that was applied and by whom, the holder and its version.
func (b bench) entity(t *testing.T) string {
	t.Helper()
	return query[string](t, b.pool, `select format('%s %s by %s, held by %s with %s %s', version_number, version_time, applied_by,
		holder, holder_number, holder_time) from settle.entities where kind = $1 and entity = 'c_1'`, kind)
}

// applied is a finished save that brings a version.
func applied(f idemstore.Fence, e idemstore.Entity) idemstore.Save {
	s := finished(f)
	s.Applied = &e
	return s
}

func TestGuardPassesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	seven, eight := b.performing(t, "v7"), b.performing(t, "v8")
	b.guarded(t, idemstore.GuardTaken, seven.TaskID, version(7))
	b.guarded(t, idemstore.GuardTaken, seven.TaskID, version(7)) // taking it again is harmless
	if g := b.guarded(t, idemstore.GuardHeld, eight.TaskID, version(8)); g.Holder != seven.TaskID || g.Wait != 0 || g.AppliedBy != 0 {
		t.Errorf("held: %+v", g)
	}
	b.save(t, applied(seven, version(7)))
	if got := b.entity(t); got != fmt.Sprintf("7  by %d, held by  with  ", seven.TaskID) {
		t.Errorf("after the save: %s", got)
	}
	b.guarded(t, idemstore.GuardTaken, eight.TaskID, version(8))
	b.save(t, applied(eight, version(8)))
	six := b.performing(t, "v6")
	if g := b.guarded(t, idemstore.GuardStale, six.TaskID, version(6)); g.AppliedBy != eight.TaskID || *g.Applied.Number != 8 {
		t.Errorf("stale: %+v", g)
	}
}

// What a holder's own row says is all that counts, and how long it has to be waited for.
func TestGuardOfEachHolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, row string
		want      idemstore.GuardFound
		wait      time.Duration
	}{
		{"at work", ``, idemstore.GuardHeld, 0},
		{"died", `lease_until = clock_timestamp() - interval '10 min'`, idemstore.GuardHeld, 10 * time.Minute},
		{"unknown", `status = 'unknown', unsure = true, lease_until = null, next_attempt_at = clock_timestamp() + interval '1 h'`, idemstore.GuardHeld, time.Hour},
		{"unknown, overdue", `status = 'unknown', unsure = true, lease_until = null, next_attempt_at = clock_timestamp() - interval '1 h'`, idemstore.GuardHeld, time.Hour},
		{"released", `lease_until = null, sending = false, first_sent_at = null`, idemstore.GuardTaken, 0},
		{"finished", `status = 'finished', lease_until = null, finished_at = clock_timestamp()`, idemstore.GuardTaken, 0},
		{"parked, may have been applied", `status = 'needs_review', unsure = true, lease_until = null, updated_at = clock_timestamp() - interval '2 h'`, idemstore.GuardHeld, 2 * time.Hour},
		{"parked, not applied", `status = 'needs_review', lease_until = null`, idemstore.GuardTaken, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			holder := b.performing(t, "v7")
			b.guarded(t, idemstore.GuardTaken, holder.TaskID, version(7))
			if c.row != "" {
				b.set(t, holder.TaskID, c.row)
			}
			other := b.performing(t, "other").TaskID
			if g := b.guarded(t, c.want, other, version(6)); (g.Wait-c.wait).Abs() > time.Minute || g.Holder != holder.TaskID {
				t.Errorf("wait %s for task %d, want %s for task %d", g.Wait, g.Holder, c.wait, holder.TaskID)
			}
			if c.name == "parked, may have been applied" { // a newer event does not have to wait for the person
				b.guarded(t, idemstore.GuardTaken, other, version(8))
			}
		})
	}
}

// The version never goes back, whatever order outcomes are learnt in, and each of its parts is kept.
func TestVersionOnlyGrows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const early, late = "2026-11-29T10:00:00", "2026-11-29T10:00:00.5"
	var tasks []int64
	for i, c := range []struct {
		version idemstore.Version
		want    string
		by      int // which of the events is shown as the one that brought it
	}{
		{idemstore.Version{Number: number(8)}, "8 ", 0},
		{idemstore.Version{Number: number(7)}, "8 ", 0},
		{idemstore.Version{Number: number(8)}, "8 ", 0},
		{idemstore.Version{Time: late}, "8 " + late, 3},
		{idemstore.Version{Time: early}, "8 " + late, 3},
		{idemstore.Version{Number: number(9), Time: early}, "9 " + late, 5},
		{idemstore.Version{Number: number(-9223372036854775808)}, "9 " + late, 5},
	} {
		f := b.performing(t, fmt.Sprint("event ", i))
		tasks = append(tasks, f.TaskID)
		b.save(t, applied(f, idemstore.Entity{Kind: kind, ID: "c_1", Version: c.version}))
		if got, want := b.entity(t), fmt.Sprintf("%s by %d, held by  with  ", c.want, tasks[c.by]); got != want {
			t.Errorf("after event %d: %s, want %s", i, got, want)
		}
	}
}

// Only the commit of a current attempt moves the version: a stale one's save, and one whose local rows are refused,
// leave the entity as it was.
func TestVersionMovesWithTheSaveOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	stale := b.performing(t, "v9")
	b.guarded(t, idemstore.GuardTaken, stale.TaskID, version(9))
	b.expire(t, stale.TaskID)
	current := b.expect(t, idemstore.Ask, claimOf("v9")).Task.Fence
	good := b.performing(t, "another")
	before := b.entity(t)

	if _, err := b.Save(t.Context(), applied(stale, version(9))); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("a stale attempt's save: %v", err)
	}
	if _, err := b.Save(t.Context(), finished(good), applied(stale, version(9))); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("a group with a stale attempt: %v", err)
	}
	refused := applied(current, version(9))
	refused.Writes = []idemstore.Statement{local("refused")}
	var local *idemstore.LocalRowsError
	if _, err := b.Save(t.Context(), refused); !errors.As(err, &local) {
		t.Errorf("refused rows: %v", err)
	}
	other := applied(current, version(9))
	b.set(t, current.TaskID, `external_id = 'ch_other', unsure = true`)
	if _, err := b.Save(t.Context(), other); !errors.Is(err, idemstore.ErrOtherExternalID) {
		t.Errorf("another id: %v", err)
	}
	if got := b.entity(t); got != before {
		t.Errorf("the entity moved from %s to %s", before, got)
	}
	b.save(t, unknown(current))
	if got := b.entity(t); got != before {
		t.Errorf("an unknown outcome moved the entity to %s", got)
	}
}

// Many tasks of one entity at once, on two pools: one gets it.
func TestGuardsInParallel(t *testing.T) {
	t.Parallel()
	url := devtest.Database(t)
	var benches []bench
	for range 2 {
		pool := newPool(t, url, func(c *pgxpool.Config) { c.MaxConns = 6 })
		benches = append(benches, bench{idemstore.New(pool, time.Minute), pool})
	}
	var answers []<-chan result[[]idemstore.Guarded]
	for i := range 24 {
		b := benches[i%2]
		id := b.performing(t, fmt.Sprint("event ", i)).TaskID
		answers = append(answers, async(func() ([]idemstore.Guarded, error) { return b.Guard(t.Context(), guardOf(id, version(int64(i)))) }))
	}
	taken := 0
	for _, a := range answers {
		r := <-a
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.value[0].Found == idemstore.GuardTaken {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("%d tasks hold the guard at once", taken)
	}
}

// The holder's row is read after the wait for the lock: a holder that was released when the wait began, and that has
// taken the guard again when it ends, is at work.
func TestGuardSeesTheHolderAsItIsUnderTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.performing(t, "v7")
	b.guarded(t, idemstore.GuardTaken, holder.TaskID, version(7))
	if _, err := b.Release(t.Context(), idemstore.Release{Fence: holder}); err != nil {
		t.Fatal(err)
	}
	other := b.performing(t, "v8").TaskID
	unlock := hold(t, b.pool, `select from settle.entities for update`)
	got := async(func() ([]idemstore.Guarded, error) { return b.Guard(t.Context(), guardOf(other, version(8))) })
	b.awaitWaiting(t, 1)
	b.expect(t, idemstore.Perform, claimOf("v7"))
	unlock()
	if r := rig.Await(t, got, soon, "the guard is answered"); r.err != nil || r.value[0].Found != idemstore.GuardHeld {
		t.Errorf("%+v (%v), want it held", r.value, r.err)
	}
}

// A row that somebody sits on is not waited for again and again, and in a group it is in nobody else's way.
func TestGuardOfLockedEntity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	impatient := bench{idemstore.New(b.pool, 300*time.Millisecond), b.pool}
	one, two := b.performing(t, "v7").TaskID, b.performing(t, "other").TaskID
	b.guarded(t, idemstore.GuardTaken, one, version(7))
	unlock := hold(t, b.pool, `select from settle.entities for update`)
	free := guardOf(two, idemstore.Entity{Kind: kind, ID: "c_2", Version: version(1).Version})
	if out, err := impatient.Guard(t.Context(), free, guardOf(one, version(7))); err == nil {
		t.Errorf("a group with a locked entity: %+v, want an error", out)
	}
	impatient.guarded(t, idemstore.GuardLocked, one, version(7))
	if g := impatient.guard(t, free); g.Found != idemstore.GuardTaken {
		t.Errorf("the other entity: %+v", g)
	}
	unlock()
	impatient.guarded(t, idemstore.GuardTaken, one, version(7))
}

// Guards and saves of the same entities, in groups and in any order, never wait for each other in a circle.
func TestGuardsAndSavesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	var seen deadlocks
	pool := newPool(t, devtest.Database(t), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.Tracer = 8, &seen
		c.ConnConfig.RuntimeParams["deadlock_timeout"] = "10ms" // else the lock timeout ends it first
	})
	b := bench{idemstore.New(pool, time.Minute), pool}
	b.exec(t, `create function public.linger() returns trigger language plpgsql as $$ begin perform pg_sleep(0.002); return new; end $$`)
	b.exec(t, `create trigger linger before insert on settle.entities for each row execute function public.linger()`)
	const workers, rounds, entities = 6, 15, 5
	for r := range rounds { // of entities that are new
		var groups [workers][]idemstore.Save
		for w := range workers {
			for _, e := range rand.Perm(entities) {
				f := b.performing(t, fmt.Sprint(w, "/", r, "/", e))
				groups[w] = append(groups[w], applied(f, idemstore.Entity{Kind: kind, ID: fmt.Sprintf("C%d é%d", r, e), Version: version(int64(w)).Version}))
			}
		}
		var running sync.WaitGroup
		for _, group := range groups {
			running.Go(func() { b.guardAndSave(t, group) })
		}
		running.Wait()
	}
	if n := query[int](t, pool, `select count(*) from settle.entities where version_number = $1`, workers-1); n != rounds*entities {
		t.Errorf("%d of %d entities ended with the newest version", n, rounds*entities)
	}
	if n := seen.Load(); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// guardAndSave asks for the guards of the saves, in another order, and then saves.
func (b bench) guardAndSave(t *testing.T, group []idemstore.Save) {
	var guards []idemstore.Guard
	for _, i := range rand.Perm(len(group)) {
		guards = append(guards, guardOf(group[i].TaskID, *group[i].Applied))
	}
	if _, err := b.Guard(t.Context(), guards...); err != nil {
		t.Error(err)
	}
	if _, err := b.Save(t.Context(), group...); err != nil {
		t.Error(err)
	}
}

// deadlocks counts those that the server ended.
type deadlocks struct{ atomic.Int64 }

func (d *deadlocks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (d *deadlocks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (d *deadlocks) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (d *deadlocks) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (d *deadlocks) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if state(data.Err) == "40P01" {
		d.Add(1)
	}
}

// D-18: a guard whose COMMIT was not answered is taken again, or for the first time.
func TestD18GuardNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			id := w.performing(t, "v7").TaskID
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:guard-insert */"})
			out, err := w.cut.Guard(t.Context(), guardOf(id, version(7)))
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if err != nil || out[0].Found != idemstore.GuardTaken {
				t.Errorf("%+v (%v)", out, err)
			}
			w.guarded(t, idemstore.GuardHeld, w.performing(t, "v8").TaskID, version(8))
		})
	}
}
