package idemstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func (b bench) census(t *testing.T) *idemstore.Census {
	t.Helper()
	c, err := b.Census(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACensusCountsWhatIsNotOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if c := b.census(t); len(c.Open) != 0 || c.OutboxEvents != (idemstore.Pile{}) {
		t.Errorf("in an empty database there is %+v", c)
	}
	old := columns{"created_at": anHourAgo}
	b.insert(t, "over", over)
	b.insert(t, "unknown", old)
	b.insert(t, "waits", untouched)
	b.insert(t, "lease over", leased(`clock_timestamp() - interval '1 second'`))
	b.insert(t, "held", leased(inAnHour), old)
	b.insert(t, "parked 1", parkedBy(idemstore.CauseAge), old)
	b.insert(t, "parked 2", parkedBy(idemstore.CauseBudget))
	b.insert(t, "of another kind", columns{"kind": `'other.kind'`})
	b.exec(t, `insert into settle.outbox (name, subject, payload, created_at) values
		('1', 'jobs.other', '', clock_timestamp()), ('2', 'events.done', '', `+anHourAgo+`), ('3', 'events.done', '', clock_timestamp())`)

	c := b.census(t)
	got := fmt.Sprint(shape(c.Open[kind].Started), " held ", c.Open[kind].Held, shape(c.Open[kind].Unknown), shape(c.Open[kind].Parked),
		shape(c.Open["other.kind"].Unknown), shape(c.OutboxJobs), shape(c.OutboxEvents))
	if want := " 3 old held 1 1 old 2 old 1 new 1 new 2 old"; got != want || len(c.Open) != 2 {
		t.Errorf("counted %s of %d kinds, want %s", got, len(c.Open), want)
	}
}

// shape says how many there are, and whether the oldest is an hour old.
func shape(p idemstore.Pile) string {
	switch {
	case p.Count == 0:
		return " none"
	case p.Oldest >= time.Hour && p.Oldest < 2*time.Hour:
		return fmt.Sprint(" ", p.Count, " old")
	}
	return fmt.Sprint(" ", p.Count, " new")
}

// However many final rows there are, and whatever the planner believes about them.
func TestACensusReadsNoFinalRows(t *testing.T) {
	t.Parallel()
	pool := newPool(t, devtest.Database(t)) // one session, so that its counters are the ones looked at
	b := bench{idemstore.New(pool, time.Minute), pool}
	b.exec(t, `insert into settle.tasks (kind, key, status, unsure, token, sending, give_up_at, payload, payload_hash, hash_algorithm)
		select '`+kind+`', 'key ' || n, 'unknown', true, gen_random_uuid(), false, clock_timestamp(), '', '', 'v1' from generate_series(1, 3000) n`)
	b.exec(t, `analyze settle.tasks`)
	b.exec(t, `update settle.tasks set status = 'finished', finished_at = clock_timestamp() where id > 5`)
	b.exec(t, `update settle.tasks set status = 'needs_review' where id < 3`)
	b.exec(t, `vacuum settle.tasks`) // entries of the old versions are gone, and the statistics are as they were
	before := b.reads(t)
	c := b.census(t)
	if n := b.reads(t) - before; n > 50 {
		t.Errorf("a census of %d tasks read %d rows and index entries", c.Open[kind].Unknown.Count+c.Open[kind].Parked.Count, n)
	}
	if c.Open[kind].Unknown.Count != 3 || c.Open[kind].Parked.Count != 2 {
		t.Errorf("counted %+v", c.Open[kind])
	}
}
