package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// gather makes the saves of an engine that does not run yet go in groups that a test knows: one by itself in each lane,
// and all others as one group behind them. flying is closed when the lanes are taken; sizes says what went together.
func gather(t *testing.T, e *Engine, others int) (flying <-chan struct{}, sizes func() []int) {
	taken, together := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var groups []int
	next := func(size int) int {
		mu.Lock()
		defer mu.Unlock()
		groups = append(groups, size)
		return len(groups)
	}
	e.saves.late = 0 // the lanes are not slow, they are kept busy
	run := e.saves.run
	e.saves.run = func(ctx context.Context, saves []idemstore.Save) []outcomeOf[idemstore.Saved] {
		switch n := next(len(saves)); {
		case n < groupLanes:
			select { // until then one lane alone takes from those that wait
			case <-together:
			case <-ctx.Done():
			}
		case n == groupLanes:
			close(taken)
			if !eventually(t, 20*time.Second, func() bool { return waitingIn(e.saves) == others }) {
				t.Errorf("never were %d saves waiting", others)
			}
		case n == groupLanes+1:
			close(together)
		}
		return run(ctx, saves)
	}
	return taken, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(groups)
	}
}

func waitingIn[Q, A any](g *group[Q, A]) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// One job of a full group cannot be booked. It alone is parked; for the others nothing has happened.
func TestOneBadMemberOfAGroupIsParkedAlone(t *testing.T) {
	t.Parallel()
	const jobs, bad = 20, "pay_7"
	b := newBench(t)
	b.exec(`create table public.paid (key text primary key check (key <> '` + bad + `'), id text not null)`)
	b.conf.Slots = jobs
	b.kind.Policy.Deadline = time.Minute // all of them wait for one another, also on a slow machine
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Exec(`insert into public.paid values ($1, $2)`, f.Key, f.ExternalID)
		w.Emit("events.test.paid", f.Key, f.Result)
		return nil
	}
	var (
		flying <-chan struct{}
		sizes  func() []int
		aboard atomic.Int32
	)
	lanes, perform := make(chan struct{}, groupLanes), b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		select { // who takes the lanes is chosen among the good ones; the others wait for that
		case lanes <- struct{}{}:
			if a.Key != bad { // one after the other, or they would share a lane
				before := int(aboard.Add(1)) - 1
				eventually(t, 20*time.Second, func() bool { return len(sizes()) >= before })
				return perform(ctx, a)
			}
			<-lanes
		default:
		}
		select {
		case <-flying:
		case <-ctx.Done():
			return paid{}, context.Cause(ctx)
		}
		return perform(ctx, a)
	}
	e := b.engine(b.kind)
	flying, sizes = gather(t, e, jobs-groupLanes)
	for i := range jobs {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	stop := b.runEngine(e)
	for i := range jobs {
		key, want := fmt.Sprintf("pay_%d", i), idemstore.Finished
		if key == bad {
			want = idemstore.NeedsReview
		}
		if task := b.awaitStatus(key, want); task.Attempt != 1 || (task.ErrorClass == "not_booked") != (key == bad) {
			t.Errorf("%s: attempt %d, class %q", key, task.Attempt, task.ErrorClass)
		}
	}
	b.awaitSettled()
	stop()
	if got := sizes(); len(got) <= groupLanes || got[groupLanes] != jobs-groupLanes {
		t.Errorf("groups of %v, want the third to be of %d", got, jobs-groupLanes)
	}
	var booked int
	if err := b.pool.QueryRow(t.Context(), `select count(*) from public.paid`).Scan(&booked); err != nil {
		t.Fatal(err)
	}
	events := len(b.published())
	if _, effects, _ := b.pay.counts(); effects != jobs || booked != jobs-1 || events != jobs-1 {
		t.Errorf("%d effects, %d booked, %d events; want %d, and one less twice", effects, booked, events, jobs)
	}
}

// An attempt that has lost its task is saved in one group with one that has not: it is told so, and nothing of it is
// seen, while the other is saved.
func TestAStaleMemberOfAGroupIsTurnedAwayAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`create table public.paid (key text)`)
	e := b.engine(b.kind)
	claim := func(key string, lease time.Duration) idemstore.Fence {
		claimed, err := b.store.Claim(t.Context(), idemstore.Claim{Kind: b.kind.Name, Key: key, Token: uuid.New(), Payload: []byte(plainJob),
			Hash: make([]byte, 32), HashAlgorithm: hashAlgorithm, Lease: lease, MaxAge: time.Hour, MaxFailures: 9})
		if err != nil {
			t.Fatal(err)
		}
		return claimed[0].Task.Fence
	}
	saveOf := func(key string, f idemstore.Fence) idemstore.Save {
		return idemstore.Save{Fence: f, Kind: b.kind.Name, Key: key, Status: idemstore.Finished, MayBeApplied: true, MaxFailures: 9,
			Writes: []idemstore.Statement{{SQL: `insert into public.paid values ($1)`, Args: []any{key}}},
			Emits:  []idemstore.Emit{{Subject: "events.test.paid", Key: key, Payload: []byte(`{}`)}}}
	}
	stale := claim("stale", time.Microsecond)
	current := claim("current", time.Hour)
	successor := claim("stale", time.Hour)
	if successor.TaskID != stale.TaskID || successor.Attempt != 2 {
		t.Fatalf("the stale attempt %+v is followed by %+v", stale, successor)
	}
	out := e.saves.run(t.Context(), []idemstore.Save{saveOf("current", current), saveOf("stale", stale)})
	if out[0].err != nil || out[0].answer.Status != idemstore.Finished || !errors.Is(out[1].err, idemstore.ErrLost) {
		t.Errorf("current: %+v; stale: %+v", out[0], out[1])
	}
	var seen string
	if err := b.pool.QueryRow(t.Context(), `select concat_ws(', ', (select string_agg(key, '+') from public.paid),
		(select string_agg(key, '+') from settle.outbox))`).Scan(&seen); err != nil || seen != "current, current" {
		t.Errorf("rows and events of %q (%v), want those of the current attempt", seen, err)
	}
	if task, err := b.store.FindByID(t.Context(), stale.TaskID); err != nil || task.Status != idemstore.Started || task.Fence != successor {
		t.Errorf("the successor's task is %s, %+v (%v)", task.Status, task.Fence, err)
	}
}

// A group that hangs, at a lock or at a slow server, holds up none but its own jobs.
func TestAGroupThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for what, hang := range map[string]func(e *Engine, until <-chan struct{}) (hangs <-chan struct{}){
		"claim": func(e *Engine, until <-chan struct{}) <-chan struct{} { return hangOnce(e.newClaims, until) },
		"save":  func(e *Engine, until <-chan struct{}) <-chan struct{} { return hangOnce(e.saves, until) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.conf.AckWait, b.conf.Lease = time.Minute, time.Minute
			e := b.engine(b.kind)
			until := make(chan struct{})
			free := sync.OnceFunc(func() { close(until) })
			hangs := hang(e, until)
			b.runEngine(e)
			t.Cleanup(free)
			b.publish(`{"order":"1"}`)
			await(t, hangs, "the first group hangs")
			b.publish(`{"order":"2"}`)
			b.awaitStatus("pay_2", idemstore.Finished)
			free()
			b.awaitStatus("pay_1", idemstore.Finished)
			b.awaitSettled()
		})
	}
}

// hangOnce keeps the first group of an engine that does not run yet until a channel is closed.
func hangOnce[Q, A any](g *group[Q, A], until <-chan struct{}) (hangs <-chan struct{}) {
	begun, run := make(chan struct{}), g.run
	var hung atomic.Bool
	g.run = func(ctx context.Context, requests []Q) []outcomeOf[A] {
		if hung.CompareAndSwap(false, true) {
			close(begun)
			<-until
		}
		return run(ctx, requests)
	}
	return begun
}
