package cases

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// demote makes the stage's database read-only for every session of a worker, as a failover does that leaves its
// pool connected to the old primary. promote makes new sessions writable again and leaves the old ones as they are:
// a worker that keeps one never writes again.
func (s *stage) demote() {
	s.exec(alterDatabase("set default_transaction_read_only = on"))
	s.exec(fmt.Sprintf(`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name = '%s'`, workerName))
}

func (s *stage) promote() { s.exec(alterDatabase("reset default_transaction_read_only")) }

func alterDatabase(how string) string {
	return fmt.Sprintf(`do $$ begin execute format('alter database %%I %s', current_database()); end $$`, how)
}

// replaced waits until a worker has given up n connections and opened others.
func (w *inProcess) replaced(t *testing.T, n int64) {
	t.Helper()
	before := w.pool.Stat().NewConnsCount()
	rig.Eventually(t, soon, "connections to the read-only server are dropped",
		func() bool { return w.pool.Stat().NewConnsCount() >= before+n })
}

// The database is read-only before the claim: nothing is sent, the message goes back with a delay, and the worker
// recovers without a restart.
func TestD19ReadOnlyBeforeTheClaim(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.settings.Config.Lease, s.settings.Config.AckWait = 3*time.Second, 3*time.Second // more than the tries of one claim take
	broker := s.throughNATS()
	w := s.serve(referenceKinds)
	first, j := charge("1"), charge("2")
	s.publish(first)
	s.awaitStatus(first, idemstore.Finished)

	s.demote()
	s.publish(j)
	w.replaced(t, 3)
	rig.Eventually(t, soon, "the message is given back with a delay", func() bool { return settled(broker, rig.Publication.IsNak) > 0 })
	if w, lookups := s.requests(j); w != 0 || lookups != 0 {
		t.Errorf("W=%d and %d look-ups without a claim", w, lookups)
	}
	s.promote()
	s.holds(first, j)
	s.sent(j, 1, 1)
}

// The database is read-only after the effect: the result is stored as soon as that is possible again, and the
// message is not acked before.
func TestD19ReadOnlyBeforeTheResult(t *testing.T) {
	t.Parallel()
	other := newStage(t) // the provider's database stays as it is
	s := newCalmStage(t)
	s.settings.ProviderURL = other.settings.ProviderURL
	w := s.serve(referenceKinds)
	j := report(1)
	demoted := other.at(provider.AfterCommit, func(context.Context) { s.demote() })
	s.publish(j)
	rig.Await(t, demoted, soon, "the effect is there")

	w.replaced(t, 3)
	if task, _ := s.find(j); task.Status != idemstore.Started {
		t.Errorf("%s while nothing can be stored", task.Status)
	}
	if n := rig.StreamMessages(t, s.js, "JOBS"); n != 1 {
		t.Errorf("%d messages while nothing is stored, want 1", n)
	}
	s.promote()
	task := s.awaitStatus(j, idemstore.Finished)
	s.awaitSettled()
	if w, _ := other.requests(j); w != 1 || task.Attempt != 1 {
		t.Errorf("W=%d in %d attempts", w, task.Attempt)
	}
	if e := other.effects(j); len(e) != 1 || e[0] != task.ExternalID {
		t.Errorf("effects %q, the row has %q", e, task.ExternalID)
	}
}

// The worker dies before the database is writable again: the next attempt finds the effect by asking for it.
func TestD19LeaseEndsWhileReadOnly(t *testing.T) {
	t.Parallel()
	other := newStage(t)
	s := newCalmStage(t) // the first worker has to come to its save within its lease
	s.settings.ProviderURL = other.settings.ProviderURL
	database := s.throughPostgres()
	first := s.startWorker()
	j := report(1)
	demoted := other.at(provider.AfterCommit, func(context.Context) { s.demote(); database.Cut() })
	s.publish(j)
	rig.Await(t, demoted, soon, "the effect is there")
	rig.Eventually(t, soon, "the result cannot be stored", func() bool { return strings.Contains(first.Output(), "save failed") })
	first.Signal(syscall.SIGKILL)
	first.Wait(soon)
	s.promote()

	second := s.startWorker()
	task := s.awaitStatus(j, idemstore.Finished)
	s.awaitSettled()
	drained(t, second)
	w, lookups := other.requests(j)
	if e := other.effects(j); w != 1 || lookups != 1 || task.Attempt != 2 || len(e) != 1 || e[0] != task.ExternalID {
		t.Errorf("W=%d, %d look-ups, %d attempts, effects %q, the row has %q", w, lookups, task.Attempt, e, task.ExternalID)
	}
}
