package idemstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// Statistics taken at a quiet moment tempt the planner to read whole small indexes; a busy moment later they are large.
// The statements of the main path find their rows by key, whatever the statistics say.
func TestRowsAreFoundByKey(t *testing.T) {
	t.Parallel()
	pool := newPool(t, devtest.Database(t)) // one session, so that its plans and counters are the ones looked at
	b := bench{idemstore.New(pool, time.Minute), pool}
	fill := func(status, finished, lease string, rows int) {
		b.exec(t, fmt.Sprintf(`insert into settle.tasks (kind, key, status, token, sending, lease_until, give_up_at, payload,
			payload_hash, hash_algorithm, finished_at)
			select '%s', '%s ' || n, '%s', gen_random_uuid(), true, %s, clock_timestamp() + interval '1 hour', '', '', 'v1', %s
			from generate_series(1, %d) n`, kind, status, status, lease, finished, rows))
	}
	fill("finished", `clock_timestamp()`, `null`, 3000)
	b.exec(t, `analyze settle.tasks`)
	fill("started", `null`, `clock_timestamp() + interval '1 minute'`, 1000)
	before := b.reads(t)
	var fences []idemstore.Fence
	for i := range 10 {
		got, err := b.ClaimNew(t.Context(), claimOf(fmt.Sprint("new ", i)))
		if err != nil {
			t.Fatal(err)
		}
		fences = append(fences, got[0].Task.Fence, b.performing(t, fmt.Sprint("other ", i)))
	}
	for i, f := range fences {
		if _, err := b.Renew(t.Context(), idemstore.Renewal{Fence: f, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		s := finished(f)
		s.Strict = i%2 == 1
		b.save(t, s)
	}
	b.expect(t, idemstore.Final, claimOf("new 1"))
	if n := b.reads(t) - before; n > 300 {
		t.Errorf("%d rows and index entries were read for 20 tasks", n)
	}
}

// reads counts rows and index entries that were read in settle.tasks.
func (b bench) reads(t *testing.T) int {
	t.Helper()
	b.exec(t, `select pg_stat_force_next_flush()`)
	return query[int](t, b.pool, `select (select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where relname = 'tasks')
		+ (select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where relname = 'tasks')`)
}
