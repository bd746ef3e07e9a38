package idemstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// flood adds n tasks in one statement.
func (b bench) flood(t *testing.T, kind, status string, n int) {
	t.Helper()
	b.exec(t, `insert into settle.tasks (kind, key, status, unsure, token, sending, give_up_at, payload, payload_hash, hash_algorithm, finished_at)
		select '`+kind+`', '`+status+` ' || n, '`+status+`', true, gen_random_uuid(), false, clock_timestamp(), '', '', 'v1',
			case when '`+status+`' in ('finished', 'failed') then clock_timestamp() end from generate_series(1, `+fmt.Sprint(n)+`) n`)
}

func (b bench) page(t *testing.T, l idemstore.Listing) idemstore.Page {
	t.Helper()
	p, err := b.Page(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is rare is found behind what is not, without one page that reads it all.
func TestAPageLooksAtABoundedPart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.flood(t, "rare", "failed", 3)
	b.flood(t, kind, "failed", 20_030)
	l := idemstore.Listing{Status: idemstore.Failed, Kind: "rare"}
	first := b.page(t, l)
	if len(first.Tasks) != 0 || first.Next == 0 {
		t.Fatalf("%d tasks, next %d", len(first.Tasks), first.Next)
	}
	l.After = first.Next
	if second := b.page(t, l); len(second.Tasks) != 3 || second.Next != 0 || second.Tasks[0].TaskID != 3 {
		t.Errorf("%d tasks, next %d", len(second.Tasks), second.Next)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks where status = 'failed'`); n != 20_033 {
		t.Fatal(n)
	}
	if failed, err := b.FailedOf(t.Context()); err != nil || failed[kind].Count != 20_030 || failed["rare"].Count != 3 {
		t.Errorf("%+v %v", failed, err)
	}
}

func TestPagesReadNoFinalRows(t *testing.T) {
	t.Parallel()
	pool := newPool(t, devtest.Database(t)) // one session, so that its counters are the ones looked at
	b := bench{idemstore.New(pool, time.Minute), pool}
	b.flood(t, kind, "unknown", 3000)
	b.exec(t, `analyze settle.tasks`)
	b.exec(t, `update settle.tasks set status = 'finished', finished_at = clock_timestamp()`)
	b.exec(t, `delete from settle.tasks where id <= 10`)
	b.exec(t, `vacuum settle.tasks`) // entries of the old versions are gone, and the statistics are as they were
	b.flood(t, kind, "failed", 2)
	b.insert(t, "unknown a")
	b.insert(t, "unknown b")
	b.insert(t, "parked", parkedBy(idemstore.CauseAge))
	for status, want := range map[idemstore.Status]int{idemstore.Failed: 2, idemstore.Unknown: 2, idemstore.NeedsReview: 1, idemstore.Started: 0} {
		before := b.reads(t)
		p := b.page(t, idemstore.Listing{Status: status})
		if n := b.reads(t) - before; n > 50 || len(p.Tasks) != want {
			t.Errorf("a page of %d %s tasks read %d rows and index entries", len(p.Tasks), status, n)
		}
	}
	before := b.reads(t)
	if _, err := b.FailedOf(t.Context()); err != nil || b.reads(t)-before > 50 {
		t.Errorf("counting failed tasks read %d rows and index entries (%v)", b.reads(t)-before, err)
	}
}

func TestAPageOfFinishedTasksIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := newBench(t).Page(t.Context(), idemstore.Listing{Status: idemstore.Finished}); err == nil {
		t.Error("finished tasks were listed")
	}
}
