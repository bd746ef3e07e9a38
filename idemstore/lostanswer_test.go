package idemstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

// Here the connection breaks around a COMMIT (D-18): after the server ran it, or before it arrived.

// wire is a bench whose store has one connection, through a proxy; the bench itself goes past it.
type wire struct {
	bench
	cut   *idemstore.Store
	pool1 *pgxpool.Pool
	proxy *rig.PostgresProxy
	// reconnect, if set, runs before each new connection of the store.
	reconnect func()
}

func newWire(t *testing.T) *wire {
	t.Helper()
	url := devtest.Database(t)
	direct := newPool(t, url, func(c *pgxpool.Config) { c.MaxConns = 4 })
	w := &wire{bench: bench{idemstore.New(direct, time.Minute), direct}, proxy: rig.NewPostgresProxy(t, url)}
	w.pool1 = newPool(t, w.proxy.URL(), func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if w.reconnect != nil {
				w.reconnect()
			}
			return nil
		}
	})
	w.cut = idemstore.New(w.pool1, time.Minute)
	return w
}

// faults are the two ways in which an answer to COMMIT is lost.
var faults = []struct {
	name      string
	arm       func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot
	committed bool
}{
	{"server ran it", (*rig.PostgresProxy).DropCommitAnswer, true},
	{"never arrived", (*rig.PostgresProxy).CutBeforeCommit, false},
}

func TestD18ClaimNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		for _, want := range []idemstore.Found{idemstore.Inserted, idemstore.Ask, idemstore.Perform} {
			t.Run(fault.name+", "+string(want), func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				if want != idemstore.Inserted {
					prepareFor(t, w.bench, want)
				}
				c := claimOf("order_" + string(want))
				shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:claim-insert */"})
				got, err := w.cut.Claim(t.Context(), c)
				rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
				if !fault.committed {
					if !errors.Is(err, idemstore.ErrCommitUnanswered) {
						t.Fatalf("found %+v (%v), want ErrCommitUnanswered", got, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				task := got[0].Task
				if got[0].Found != want || task.Token != c.Token || string(task.Payload) != string(c.Payload) || task.ProviderKey == "" {
					t.Errorf("found again: %q %+v, want %q", got[0].Found, task, want)
				}
				if _, err := w.cut.Save(t.Context(), finished(task.Fence)); err != nil {
					t.Errorf("the claim that was found again cannot be used: %v", err)
				}
			})
		}
	}
}

func TestD18ParkingClaimNotAnswered(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	f := w.performing(t, "order_1")
	w.set(t, f.TaskID, `lease_until = clock_timestamp() - interval '1 s', failures = 4`)
	w.proxy.DropCommitAnswer(rig.CommitCut{})
	got, err := w.cut.Claim(t.Context(), claimOf("order_1"))
	if err != nil || got[0].Found != idemstore.Spent || got[0].Task.Status != idemstore.NeedsReview {
		t.Errorf("found %+v (%v), want it parked", got, err)
	}
}

// A group whose answer is lost is claimed one by one with the same tokens: who had taken something finds it again.
func TestD18GroupClaimNotAnswered(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	prepareFor(t, w.bench, idemstore.Final)
	prepareFor(t, w.bench, idemstore.Ask)
	claims := []idemstore.Claim{claimOf("order_final"), claimOf("order_new"), claimOf("order_ask")}
	w.proxy.DropCommitAnswer(rig.CommitCut{})
	if got, err := w.cut.Claim(t.Context(), claims...); !errors.Is(err, idemstore.ErrCommitUnanswered) {
		t.Fatalf("found %+v (%v), want ErrCommitUnanswered", got, err)
	}
	for i, want := range []idemstore.Found{idemstore.Final, idemstore.Inserted, idemstore.Ask} {
		got := w.expect(t, want, claims[i])
		if attempt := want != idemstore.Final; attempt != (got.Task.Token == claims[i].Token) || attempt != (string(got.Task.Payload) == string(claims[i].Payload)) {
			t.Errorf("%q: %+v", want, got.Task)
		}
		if want != idemstore.Final && got.Task.Attempt != map[idemstore.Found]int{idemstore.Inserted: 1, idemstore.Ask: 2}[want] {
			t.Errorf("%q: attempt %d", want, got.Task.Attempt)
		}
	}
	for _, key := range []string{"order_new", "order_ask"} {
		w.expect(t, idemstore.Busy, claimOf(key))
	}
}

// A claim that was found again, released or saved meanwhile, gives no second attempt to whoever repeats it.
func TestClaimRepeatedAfterItsAttemptIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := claimOf("order_1")
	f := b.expect(t, idemstore.Inserted, c).Task.Fence
	if _, err := b.Release(t.Context(), idemstore.Release{Fence: f}); err != nil {
		t.Fatal(err)
	}
	b.expect(t, idemstore.Locked, c)
	other := claimOf("order_2")
	b.save(t, finished(b.expect(t, idemstore.Inserted, other).Task.Fence))
	b.expect(t, idemstore.Locked, other)
}

func TestD18SaveNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.makeRows(t)
			f := w.performing(t, "order_1")
			s := finished(f)
			s.Strict = true
			s.Writes = []idemstore.Statement{local("paid")}
			s.Emits = []idemstore.Emit{{Subject: "events.paid", Key: "1", Payload: []byte(`{}`)}}
			before := query[int](t, w.pool1, `select pg_backend_pid()`)
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:save */"})
			saved, err := w.cut.Save(t.Context(), s)
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if err != nil || saved[0].Status != idemstore.Finished {
				t.Fatalf("saved %+v (%v)", saved, err)
			}
			row := w.task(t, f.TaskID)
			if row.Status != idemstore.Finished || row.ExternalID != "ch_1" || string(row.Result) != `{"id":"ch_1"}` || w.rows(t) != 2 {
				t.Errorf("row %+v, %d local rows and events", row, w.rows(t))
			}
			if after := query[int](t, w.pool1, `select pg_backend_pid()`); after == before {
				t.Error("the broken connection is used again")
			}
		})
	}
}

// A group whose answer is lost is saved one by one: what was committed is known, the rest is made.
func TestD18GroupSaveNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.makeRows(t)
			one, other := finished(w.performing(t, "order_1")), unknown(w.performing(t, "order_2"))
			one.Writes, other.Writes = []idemstore.Statement{local("one")}, []idemstore.Statement{local("other")}
			fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:save */"})
			if saved, err := w.cut.Save(t.Context(), one, other); err == nil {
				t.Fatalf("saved %+v, although nobody heard so", saved)
			}
			first, err := w.cut.Save(t.Context(), one)
			if err != nil || first[0].Status != idemstore.Finished {
				t.Errorf("saved %+v (%v)", first, err)
			}
			second, err := w.cut.Save(t.Context(), other)
			if err != nil || second[0].Status != idemstore.Unknown || second[0].Failures != 1 {
				t.Errorf("saved %+v (%v)", second, err)
			}
			if w.rows(t) != 2 {
				t.Errorf("%d local rows, want 2", w.rows(t))
			}
		})
	}
}

// Whoever comes back to a task that was taken over meanwhile must not write.
func TestD18TakenOverBeforeTheSecondLook(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.makeRows(t)
	f := w.performing(t, "order_1")
	s := finished(f)
	s.Writes = []idemstore.Statement{local("paid by the stale attempt")}
	shot := w.proxy.CutBeforeCommit(rig.CommitCut{Containing: "/* settle:save-final */"})
	if err := w.pool1.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var second idemstore.Claimed
	w.reconnect = func() {
		w.reconnect = nil
		rig.Await(t, shot.Fired(), soon, "the cut before COMMIT")
		w.expire(t, f.TaskID)
		second = w.expect(t, idemstore.Ask, claimOf("order_1"))
	}
	if saved, err := w.cut.Save(t.Context(), s); !errors.Is(err, idemstore.ErrLost) {
		t.Fatalf("saved %+v (%v), want ErrLost", saved, err)
	}
	if row := w.task(t, f.TaskID); row.Fence != second.Task.Fence || row.Status != idemstore.Started || row.ExternalID != "" || w.rows(t) != 0 {
		t.Errorf("the stale attempt wrote: %+v, %d local rows", row, w.rows(t))
	}
}

// A COMMIT may also arrive after the second look, when its session waited for a lock while its client was gone.
// The save that is made again then finds its own work done.
func TestD18CommitArrivesLate(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.makeRows(t)
	f := w.performing(t, "order_1")
	s := finished(f)
	s.Writes = []idemstore.Statement{local("paid"), {SQL: `select public.wait_at_gate()`}}
	w.exec(t, `create table public.gate (open boolean)`)
	w.exec(t, `create function public.wait_at_gate() returns void language plpgsql as $$
	begin
		loop
			begin -- around all of it, the lock included: the driver sends a cancel request, and it may come at any moment
				perform pg_advisory_xact_lock_shared(1);
				while not exists (select from public.gate) loop
					perform pg_sleep(0.01);
				end loop;
				exit;
			exception when query_canceled then -- as if it had got lost
			end;
		end loop; end $$`)
	done := async(func() ([]idemstore.Saved, error) { return w.cut.Save(t.Context(), s) })
	rig.Eventually(t, soon, "the save is at the gate", func() bool {
		return query[int](t, w.pool, `select count(*) from pg_locks where locktype = 'advisory' and objid = 1
			and database = (select oid from pg_database where datname = current_database())`) == 1
	})
	w.proxy.Cut()
	w.awaitWaiting(t, 1) // the save that is made again waits for the first one, which is still open
	w.exec(t, `insert into public.gate values (true)`)
	r := <-done
	if r.err != nil || r.value[0].Status != idemstore.Finished {
		t.Errorf("saved %+v (%v), want to be told that it is finished", r.value, r.err)
	}
	if row := w.task(t, f.TaskID); row.Status != idemstore.Finished || w.rows(t) != 1 {
		t.Errorf("row %+v, %d local rows", row, w.rows(t))
	}
}

func TestD18ReleaseNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			f := w.performing(t, "order_1")
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:release */"})
			status, err := w.cut.Release(t.Context(), idemstore.Release{Fence: f, Reason: "drained"})
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if err != nil || status != idemstore.Started {
				t.Errorf("released as %q (%v)", status, err)
			}
			if row := w.task(t, f.TaskID); row.LeaseUntil != nil || len(w.reasons(t, f.TaskID)) != 1 {
				t.Errorf("row %+v, audit %q", row, w.reasons(t, f.TaskID))
			}
		})
	}
}

func TestD18ExternalIDNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			f := w.performing(t, "order_1")
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:save-external-id */"})
			err := w.cut.SaveExternalID(t.Context(), f, "ch_1", trace)
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if row := w.task(t, f.TaskID); err != nil || row.ExternalID != "ch_1" || row.EvidenceID != "" {
				t.Errorf("external id %q, evidence %q (%v)", row.ExternalID, row.EvidenceID, err)
			}
		})
	}
}

// An attempt whose arming was not answered does not know whether it may send, so it must not.
func TestD18ArmNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			f := w.asking(t, "order_1")
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:arm */"})
			if armed, err := w.cut.Arm(t.Context(), armOf(f)); err == nil {
				t.Errorf("armed: %+v", armed)
			}
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT") // from here its session holds no lock
			// The next attempt asks whatever became of this one.
			w.expire(t, f.TaskID)
			w.expect(t, idemstore.Ask, claimOf("order_1"))
		})
	}
}

func TestD18RefusalNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:refuse */"})
			err := w.cut.Refuse(t.Context(), refusalOf("{"))
			if n := query[int](t, w.pool, `select count(*) from settle.refusals`); err != nil || n != 1 {
				t.Errorf("%d lines (%v), want 1", n, err)
			}
		})
	}
}

func TestD18PrefixNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:own-prefix */"})
			err := w.cut.OwnPrefix(t.Context(), idemstore.Prefix{Provider: "p", Prefix: "order_", Kind: "a"})
			if n := query[int](t, w.pool, `select count(*) from settle.key_prefixes`); err != nil || n != 1 {
				t.Errorf("%d prefixes (%v), want 1", n, err)
			}
		})
	}
}
