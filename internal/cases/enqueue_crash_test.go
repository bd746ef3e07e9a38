package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// callVariable is the call that a caller makes, as JSON in its environment.
const callVariable = "SETTLE_CASES_CALL"

// call is one transaction of a service of somebody else: a row of its own, and a job. Body is the job of a charge.
type call struct {
	Body     string
	SQL      bool // by SQL alone, over the simple protocol: as psql does it
	RollBack bool
}

// caller is the main function of a service that is no worker: it makes one call, and ends.
func caller(ctx context.Context) error {
	var (
		s settings
		c call
	)
	err := errors.Join(json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s), json.Unmarshal([]byte(os.Getenv(callVariable)), &c))
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	conn, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if c.SQL {
		return c.bySQL(ctx, conn)
	}
	return c.byPublishTx(ctx, conn, s)
}

func (c call) bySQL(ctx context.Context, conn *pgx.Conn) error {
	end := "commit"
	if c.RollBack {
		end = "rollback"
	}
	for _, sql := range []string{"begin", "insert into public.carts (done) values (true)",
		`select settle.enqueue('payment.charge', '` + c.Body + `')`, end} {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

var errRollBack = errors.New("rolled back")

func (c call) byPublishTx(ctx context.Context, conn *pgx.Conn, s settings) error {
	api, err := handlers.NewClient(handlers.ClientOptions{URL: s.ProviderURL})
	if err != nil {
		return err
	}
	defer api.Close()
	var j handlers.ChargeJob
	if err := json.Unmarshal([]byte(c.Body), &j); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into public.carts (done) values (true)"); err != nil {
			return err
		}
		if err := consumer.PublishTx(ctx, tx, chargeOf(api, s), j); err != nil {
			return err
		}
		if c.RollBack {
			return errRollBack
		}
		return nil
	})
	if errors.Is(err, errRollBack) {
		return nil
	}
	return err
}

// startCaller starts a service that makes one call.
func (s *stage) startCaller(c call) *rig.Worker {
	s.t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.start(rig.WorkerOptions{Name: "caller", Env: []string{callVariable + "=" + string(text)}})
}

// A job that is enqueued in the caller's transaction exists if, and only if, that commits, whether or not the caller
// lives to see it. Nobody but the caller knows of the transaction, and the caller does not come back.
func TestEnqueueCrash(t *testing.T) {
	t.Parallel()
	before, after := (*rig.PostgresProxy).CutBeforeCommit, (*rig.PostgresProxy).DropCommitAnswer
	type attempt struct {
		call
		arm    func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot // nil: nothing happens to the caller
		exists bool
	}
	cases := map[string]attempt{}
	for name, sql := range map[string]bool{"PublishTx": false, "SQL": true} {
		c := call{Body: charge("1").body, SQL: sql}
		cases[name+"/committed"] = attempt{c, nil, true}
		cases[name+"/dead before its commit"] = attempt{c, before, false}
		cases[name+"/dead after its commit"] = attempt{c, after, true}
		c.RollBack = true
		cases[name+"/rolled back"] = attempt{c, nil, false}
	}
	each(t, cases, func(t *testing.T, c attempt) {
		s := newChain(t, 0)
		s.settings.Config.Lease = 5 * time.Second
		if _, err := s.pool.Exec(t.Context(), `create table public.carts (done boolean not null)`); err != nil {
			t.Fatal(err)
		}
		s.play(c.call, c.arm)
		want := []string{"2"}
		if c.exists {
			want = []string{"1", "2"}
		}
		if carts := query[bool](s, `select done from public.carts`); len(carts) != len(want)-1 || len(s.waiting()) != len(want)-1 {
			t.Errorf("%d rows of the caller, %q in the outbox; want %d of each", len(carts), s.waiting(), len(want)-1)
		}
		w := s.startChain()
		s.publish(charge("2")) // what was not committed never comes, whoever waits for it
		s.chained(1, want...)
		drained(t, w)
		if _, found := s.find(charge("1")); found != c.exists {
			t.Errorf("the job of the caller exists: %v", found)
		}
	})
}

// play runs a caller to its end, or to its death around its commit.
func (s *stage) play(c call, arm func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot) {
	s.t.Helper()
	if arm == nil {
		if e := s.startCaller(c).Wait(soon); e != (rig.Exit{}) {
			s.t.Fatalf("the caller ended with %s", e)
		}
		return
	}
	direct := s.settings
	p := s.throughPostgres()
	var doomed *rig.Worker
	started := make(chan struct{})
	shot := arm(p, rig.CommitCut{Do: func() { <-started; kill(doomed) }})
	doomed = s.startCaller(c)
	close(started)
	rig.Await(s.t, shot.Fired(), soon, "the caller commits")
	died(s.t, doomed)
	s.settings = direct
}

// A job that is enqueued twice, by a caller that does not know whether its first transaction committed, is one charge.
func TestEnqueuedTwiceIsOneJob(t *testing.T) {
	t.Parallel()
	s := newChain(t, 0)
	s.settings.Config.Lease = 5 * time.Second
	if _, err := s.pool.Exec(t.Context(), `create table public.carts (done boolean not null)`); err != nil {
		t.Fatal(err)
	}
	c := call{Body: charge("1").body}
	s.play(c, (*rig.PostgresProxy).DropCommitAnswer)
	s.play(c, nil)
	w := s.startChain()
	s.chained(1, "1")
	drained(t, w)
	if task, _ := s.find(charge("1")); task.Status != idemstore.Finished || task.Duplicates != 1 {
		t.Errorf("%s with %d duplicates, want finished with one", task.Status, task.Duplicates)
	}
}
