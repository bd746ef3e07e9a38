package idemstore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// columns are columns of a row and their SQL.
type columns map[string]string

const (
	anHourAgo = `clock_timestamp() - interval '1 hour'`
	inAnHour  = `clock_timestamp() + interval '1 hour'`
)

// insert writes a task by hand, over the columns of one that an attempt left as unknown a moment ago.
func (b bench) insert(t *testing.T, key string, changes ...columns) (id int64) {
	t.Helper()
	all := columns{"kind": "'" + kind + "'", "key": "'" + key + "'", "status": `'unknown'`, "unsure": `true`, "sending": `false`,
		"token": `gen_random_uuid()`, "first_sent_at": `clock_timestamp()`, "last_sent_by": `clock_timestamp()`, "next_attempt_at": anHourAgo,
		"give_up_at": inAnHour, "payload": `'{}'`, "payload_hash": `'\x01'`, "hash_algorithm": `'unheard of'`}
	for _, c := range changes {
		maps.Copy(all, c)
	}
	names := slices.Sorted(maps.Keys(all))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = all[n]
	}
	return query[int64](t, b.pool, `insert into settle.tasks (`+strings.Join(names, ", ")+`) values (`+strings.Join(values, ", ")+`) returning id`)
}

var (
	untouched = columns{"status": `'started'`, "unsure": `false`, "first_sent_at": `null`, "last_sent_by": `null`}
	over      = columns{"status": `'finished'`, "finished_at": anHourAgo}
)

// leased is a task with a lease, held by an attempt that may send.
func leased(until string) columns {
	return columns{"status": `'started'`, "unsure": `false`, "sending": `true`, "lease_until": until, "last_sent_by": `null`}
}

func parkedBy(c idemstore.Cause) columns {
	return columns{"status": `'needs_review'`, "review_cause": "'" + string(c) + "'"}
}

func keysOf(tasks []idemstore.Task) string {
	var out []string
	for _, t := range tasks {
		out = append(out, t.Key)
	}
	return strings.Join(out, " ")
}

func (b bench) due(t *testing.T, f idemstore.DueFilter) (string, idemstore.DueCursor) {
	t.Helper()
	f.Kind = kind
	tasks, next, err := b.Due(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return keysOf(tasks), next
}

// What nobody holds and is due is chosen, the longest due first.
func TestDueChooses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `alter table settle.tasks drop constraint tasks_lease_at_most_a_day`)
	b.insert(t, "unknown")
	b.insert(t, "released", untouched)
	b.insert(t, "expired", leased(anHourAgo))
	b.insert(t, "absurd", leased(`'2999-01-01'`))
	b.insert(t, "oldest", columns{"next_attempt_at": `clock_timestamp() - interval '2 hours'`})
	b.insert(t, "early", columns{"next_attempt_at": inAnHour})
	b.insert(t, "held", leased(inAnHour))
	b.insert(t, "final", over)
	b.insert(t, "parked", parkedBy(idemstore.CauseAge))
	b.insert(t, "foreign", columns{"kind": `'test.other'`})
	locked := b.insert(t, "locked")
	unlock := b.lock(t, locked)
	if got, _ := b.due(t, idemstore.DueFilter{}); got != "oldest unknown released expired absurd" {
		t.Errorf("chosen: %s", got)
	}
	unlock()
	if got, _ := b.due(t, idemstore.DueFilter{}); got != "oldest unknown released expired absurd locked" {
		t.Errorf("chosen after the lock: %s", got)
	}
}

// A page goes on behind the one before, whether or not that one's tasks were claimed, and what becomes due meanwhile is not
// in it: the pages end.
func TestDuePages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 5 {
		b.insert(t, fmt.Sprint(i), columns{"next_attempt_at": anHourAgo + fmt.Sprintf(` + interval '%d seconds'`, i/2)}) // some alike
	}
	f := idemstore.DueFilter{Limit: 2}
	var got []string
	for len(got) < 5 {
		page, next := b.due(t, f)
		got = append(got, page)
		if !strings.Contains(page, " ") {
			break
		}
		b.insert(t, fmt.Sprint("new", len(got)), columns{"next_attempt_at": `clock_timestamp()`})
		f.After = next
	}
	if fmt.Sprint(got) != "[0 1 2 3 4]" || len(got) != 3 {
		t.Errorf("pages %q", got)
	}
	if page, _ := b.due(t, idemstore.DueFilter{}); page != "0 1 2 3 4 new1 new2" {
		t.Errorf("the next time: %s", page)
	}
}

func TestDueSaysWhatAClaimNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.insert(t, "one", columns{"attempts": `7`, "origin_trace": "'" + trace + "'"})
	tasks, _, err := b.Due(t.Context(), idemstore.DueFilter{Kind: kind})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("%d tasks (%v)", len(tasks), err)
	}
	row, got := b.task(t, id), tasks[0]
	if got.Fence != row.Fence || got.Attempt != 7 || got.Kind != kind || got.Status != idemstore.Unknown || got.OriginTrace != trace ||
		!got.NextAttemptAt.Equal(row.NextAttemptAt) {
		t.Errorf("chosen %+v, the row is %+v", got, row)
	}
}

// recovery is a claim without a message.
func recovery(key string) idemstore.Claim {
	return idemstore.Claim{Kind: kind, Key: key, Token: uuid.New(), Provider: "provider-a", ProviderKey: "pay_" + key, Trace: trace,
		Lease: time.Minute, MaxAge: time.Hour, MaxFailures: 5, Recovery: true, Actor: "anna", Note: "ticket 7"}
}

// A claim without a message changes only what it takes.
func TestRecoveryChangesOnlyWhatItTakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for key, want := range map[string]idemstore.Found{"final": idemstore.Final, "parked": idemstore.Parked, "held": idemstore.Busy, "early": idemstore.NotDue} {
		id := b.insert(t, key, map[string]columns{"final": over, "parked": parkedBy(idemstore.CauseBudget), "held": leased(inAnHour),
			"early": {"next_attempt_at": inAnHour}}[key])
		before := b.row(t, id)
		b.expect(t, want, recovery(key))
		if after := b.row(t, id); after != before {
			t.Errorf("%s: the row was\n%s\nand is\n%s", key, before, after)
		}
		if lines := b.reasons(t, id); len(lines) > 0 {
			t.Errorf("%s: audit %q", key, lines)
		}
	}
	b.expect(t, idemstore.Locked, recovery("gone"))
	if n := query[int](t, b.pool, `select count(*) from settle.tasks`); n != 4 {
		t.Errorf("%d rows: one was made without a message", n)
	}
}

// It takes what a message would take, whatever the content was hashed by, and says who wanted it and why.
func TestRecoveryTakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for key, c := range map[string]struct {
		row   columns
		found idemstore.Found
		line  string
	}{
		"unknown":  {nil, idemstore.Ask, "unknown → started: taken up without its message; ticket 7"},
		"released": {untouched, idemstore.Perform, "started → started: taken up without its message; ticket 7"},
		"expired":  {leased(anHourAgo), idemstore.Ask, "started → started: taken over: the lease of attempt 1 ran out; ticket 7"},
		"spent":    {columns{"failures": "5"}, idemstore.Spent, "unknown → needs_review: parked: 5 failures, the budget is used up; ticket 7"},
	} {
		id := b.insert(t, key, c.row)
		got := b.expect(t, c.found, recovery(key))
		if c.found != idemstore.Spent && string(got.Task.Payload) != "{}" {
			t.Errorf("%s: payload %q", key, got.Task.Payload)
		}
		events, err := b.Events(t.Context(), id)
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: audit %+v (%v)", key, events, err)
		}
		e := events[0]
		if line := fmt.Sprintf("%s → %s: %s", e.OldStatus, e.NewStatus, e.Reason); line != c.line || e.Actor != "anna" || e.Attempt != 2 || e.TraceID != trace[3:35] {
			t.Errorf("%s: audit %+v", key, e)
		}
		if row := b.task(t, id); row.Duplicates != 0 {
			t.Errorf("%s: counted as a duplicate", key)
		}
	}
	// Without a note the audit tells only what it would tell anyway.
	id := b.insert(t, "quiet")
	c := recovery("quiet")
	c.Note = ""
	b.expect(t, idemstore.Ask, c)
	if lines := b.reasons(t, id); len(lines) > 0 {
		t.Errorf("audit %q", lines)
	}
}

// A recovery and messages in one group: each finds its own.
func TestRecoveryInAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.insert(t, "stuck")
	b.insert(t, "final", over)
	found, err := b.Claim(t.Context(), claimOf("a new one"), recovery("final"), recovery("gone"), recovery("stuck"))
	if err != nil {
		t.Fatal(err)
	}
	var got []idemstore.Found
	for _, f := range found {
		got = append(got, f.Found)
	}
	if want := []idemstore.Found{idemstore.Inserted, idemstore.Final, idemstore.Locked, idemstore.Ask}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// Every line of the audit names the actor of its statement.
func TestTheAuditNamesTheActor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, actor := range []string{"", "anna"} {
		saved := b.insert(t, "saved"+actor)
		claim := recovery("saved" + actor)
		claim.Actor = actor
		f := b.expect(t, idemstore.Ask, claim).Task.Fence
		if _, err := b.Arm(t.Context(), idemstore.Arm{Fence: f, Lease: time.Minute, Provider: "provider-a", Permitted: true, Reason: "armed", Actor: actor}); err != nil {
			t.Fatal(err)
		}
		s := unknown(f)
		s.Actor = actor
		b.save(t, s)
		given := b.insert(t, "given"+actor)
		claim = recovery("given" + actor)
		claim.Actor = actor
		f = b.expect(t, idemstore.Ask, claim).Task.Fence
		if _, err := b.Release(t.Context(), idemstore.Release{Fence: f, Reason: "given back", Actor: actor}); err != nil {
			t.Fatal(err)
		}
		want := actor
		if want == "" {
			want = "worker"
		}
		for id, lines := range map[int64]int{saved: 3, given: 2} {
			events, err := b.Events(t.Context(), id)
			if err != nil || len(events) != lines {
				t.Fatalf("audit %+v (%v)", events, err)
			}
			for _, e := range events {
				if e.Actor != want {
					t.Errorf("%q did: %s", e.Actor, e.Reason)
				}
			}
		}
	}
}

func (b bench) takeParked(t *testing.T, f idemstore.ParkedFilter) string {
	t.Helper()
	f.Kind, f.Again = kind, time.Hour
	tasks, err := b.TakeParked(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return keysOf(tasks)
}

// Of what waits for a person only that is chosen which the provider may still settle, and not again for an hour.
func TestTakeParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.insert(t, "age", parkedBy(idemstore.CauseAge))
	b.insert(t, "budget", parkedBy(idemstore.CauseBudget))
	for _, c := range []idemstore.Cause{idemstore.CauseConflict, idemstore.CauseContradictory, idemstore.CauseTwoEffects, idemstore.CauseNotBooked,
		idemstore.CauseRefusalUnbooked, idemstore.CauseAbsent, idemstore.CauseVanished, idemstore.CauseNoLookup, idemstore.CauseReplayedError, idemstore.CauseSkipUnbooked} {
		b.insert(t, string(c), parkedBy(c))
	}
	b.insert(t, "unknown")
	b.insert(t, "early", parkedBy(idemstore.CauseAge), columns{"next_attempt_at": inAnHour})
	b.insert(t, "foreign", parkedBy(idemstore.CauseAge), columns{"kind": `'test.other'`})
	locked := b.insert(t, "locked", parkedBy(idemstore.CauseAge))
	unlock := b.lock(t, locked)
	before := query[string](t, b.pool, `select string_agg((to_jsonb(t) - 'next_attempt_at')::text, ' ' order by id) from settle.tasks t`)
	if got := b.takeParked(t, idemstore.ParkedFilter{}); got != "age budget" {
		t.Errorf("chosen: %s", got)
	}
	if got := b.takeParked(t, idemstore.ParkedFilter{}); got != "" {
		t.Errorf("chosen twice: %s", got)
	}
	unlock()
	if got := b.takeParked(t, idemstore.ParkedFilter{TaskID: locked + 1}); got != "" {
		t.Errorf("chosen although another was asked for: %s", got)
	}
	if got := b.takeParked(t, idemstore.ParkedFilter{TaskID: locked}); got != "locked" {
		t.Errorf("chosen: %s", got)
	}
	if after := query[string](t, b.pool, `select string_agg((to_jsonb(t) - 'next_attempt_at')::text, ' ' order by id) from settle.tasks t`); after != before {
		t.Errorf("more than the next time changed:\n%s\nis now\n%s", before, after)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks where next_attempt_at between `+inAnHour+` - interval '1 minute' and `+inAnHour); n != 4 {
		t.Errorf("%d tasks are due in an hour, want 3 and the early one", n)
	}
}

// Whoever chooses at the same time gets others.
func TestTakeParkedTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 40
	for i := range n {
		b.insert(t, fmt.Sprint("key", i), parkedBy(idemstore.CauseAge))
	}
	var answers []<-chan result[[]idemstore.Task]
	for range 8 {
		answers = append(answers, async(func() ([]idemstore.Task, error) {
			return b.TakeParked(t.Context(), idemstore.ParkedFilter{Kind: kind, Again: time.Hour, Limit: n})
		}))
	}
	seen := map[string]int{}
	for _, a := range answers {
		r := <-a
		if r.err != nil {
			t.Fatal(r.err)
		}
		for _, task := range r.value {
			seen[task.Key]++
		}
	}
	for key, times := range seen {
		if times > 1 {
			t.Errorf("%s was chosen %d times", key, times)
		}
	}
	for range n { // what one had locked when another looked is left for the next
		if task := b.takeParked(t, idemstore.ParkedFilter{Limit: 1}); task != "" {
			seen[task]++
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d were chosen", len(seen), n)
	}
}

// A list for a person has everything that is not settled, also what somebody holds; and it changes nothing.
func TestRecoverable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hours := func(n int) columns {
		return columns{"created_at": fmt.Sprintf(`clock_timestamp() - interval '%d hours'`, n)}
	}
	b.insert(t, "too old", hours(9))
	b.insert(t, "unknown", hours(5))
	b.insert(t, "released", untouched, hours(6))
	b.insert(t, "held", leased(inAnHour), hours(4))
	b.insert(t, "early", columns{"next_attempt_at": inAnHour}, hours(3))
	b.insert(t, "age", parkedBy(idemstore.CauseAge), hours(7))
	b.insert(t, "absent", parkedBy(idemstore.CauseAbsent), hours(5))
	b.insert(t, "final", over, hours(5))
	b.insert(t, "new")
	b.insert(t, "mute", parkedBy(idemstore.CauseAge), columns{"kind": `'test.mute'`}, hours(5))
	b.insert(t, "mute unknown", columns{"kind": `'test.mute'`}, hours(5))
	b.insert(t, "foreign", columns{"kind": `'test.other'`}, hours(5))
	all := `select string_agg(t::text, ' ' order by id) from settle.tasks t`
	before := query[string](t, b.pool, all)
	unlock := b.lock(t, query[int64](t, b.pool, `select id from settle.tasks where key = 'held'`))
	f := idemstore.RecoverableFilter{Kinds: []string{kind, "test.mute"}, Asked: []string{kind}, OlderThan: 2 * time.Hour, Within: 8 * time.Hour}
	list := func() string {
		t.Helper()
		found, err := b.Recoverable(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		var tasks []idemstore.Task
		for _, r := range found {
			tasks = append(tasks, r.Task)
			if now := query[time.Time](t, b.pool, `select clock_timestamp()`); !near(&r.Now, now) || len(r.Payload) == 0 {
				t.Errorf("%s: the clock says %v, payload %q", r.Key, r.Now, r.Payload)
			}
		}
		return keysOf(tasks)
	}
	if got := list(); got != "age released unknown mute unknown held early" {
		t.Errorf("found: %s", got)
	}
	if f.Limit = 2; list() != "age released" {
		t.Errorf("the first two: %s", list())
	}
	unlock()
	if after := query[string](t, b.pool, all); after != before {
		t.Errorf("the rows were\n%s\nand are\n%s", before, after)
	}
}

// A page costs what is on it, however many tasks are due, and though the table was never analyzed.
func TestAPageIsReadFromTheIndex(t *testing.T) {
	t.Parallel()
	pool := newPool(t, devtest.Database(t)) // one session, so that its counters are the ones looked at
	b := bench{idemstore.New(pool, time.Minute), pool}
	b.exec(t, `insert into settle.tasks (kind, key, status, review_cause, token, sending, unsure, first_sent_at, give_up_at, payload,
			payload_hash, hash_algorithm, next_attempt_at, finished_at)
		select $1, n::text, status, case when status = 'needs_review' then 'age' end, gen_random_uuid(), false, true, clock_timestamp(),
			`+inAnHour+`, '', '', 'v1', clock_timestamp() - n * interval '1 second', case when status = 'finished' then clock_timestamp() end
		from generate_series(1, 12000) n, lateral (select (array['unknown', 'needs_review', 'finished'])[n % 3 + 1]) s(status)`, kind)
	before := b.reads(t)
	f := idemstore.DueFilter{Limit: 20}
	for range 3 {
		page, next := b.due(t, f)
		if len(strings.Fields(page)) != 20 {
			t.Fatalf("page %q", page)
		}
		f.After = next
	}
	for range 3 {
		if page := b.takeParked(t, idemstore.ParkedFilter{Limit: 20}); len(strings.Fields(page)) != 20 {
			t.Fatalf("page %q", page)
		}
	}
	if n := b.reads(t) - before; n > 600 {
		t.Errorf("%d rows and index entries were read for 6 pages of 20", n)
	}
}
