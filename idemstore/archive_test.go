package idemstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// old makes a task's retention run out.
func (b bench) old(t *testing.T, id int64) {
	t.Helper()
	b.set(t, id, `finished_at = finished_at - interval '30 days', expires_at = clock_timestamp() - interval '1 second'`)
}

// oldFinal leaves a finished task whose retention is over.
func (b bench) oldFinal(t *testing.T, key string) int64 {
	t.Helper()
	f := b.performing(t, key)
	s := finished(f)
	s.Answer = "201 Created"
	b.save(t, s)
	b.old(t, f.TaskID)
	return f.TaskID
}

// by is anna, for a reason.
func by(reason string) idemstore.By { return idemstore.By{Actor: "anna", Reason: reason, Trace: trace} }

// archiveAll archives until there is no more, and returns what was done in how many calls.
func (b bench) archiveAll(t *testing.T, s idemstore.Slice) (sum idemstore.Archived, calls int) {
	t.Helper()
	for {
		got, err := b.Archive(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if calls++; calls > 1000 {
			t.Fatalf("the archive gets no further than %+v", got)
		}
		sum.Tasks, sum.Bytes, sum.Waiting = sum.Tasks+got.Tasks, sum.Bytes+got.Bytes, sum.Waiting+got.Waiting
		s.After = got.Through
		if got.Done {
			return sum, calls
		}
	}
}

func (b bench) archived(t *testing.T, id int64) bool {
	t.Helper()
	return query[bool](t, b.pool, `select archived_at is not null from settle.tasks where id = $1`, id)
}

// A7: what is old and final is slimmed, and nothing else; its memory stays whole.
func TestArchive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	done, failed := b.oldFinal(t, "done"), b.performing(t, "failed")
	s := finished(failed)
	s.Status = idemstore.Failed
	b.save(t, s)
	b.old(t, failed.TaskID)
	before := map[int64]idemstore.Task{done: b.task(t, done), failed.TaskID: b.task(t, failed.TaskID)}

	kept := map[string]int64{"started": b.performing(t, "started").TaskID, "young": b.performing(t, "young").TaskID}
	b.save(t, finished(b.task(t, kept["young"]).Fence))
	for name, change := range map[string]func(*idemstore.Save){
		"unknown":      func(*idemstore.Save) {},
		"needs_review": func(s *idemstore.Save) { s.Status = idemstore.NeedsReview },
	} {
		x := unknown(b.performing(t, name))
		change(&x)
		b.save(t, x)
		kept[name] = x.TaskID
		b.set(t, x.TaskID, `expires_at = clock_timestamp() - interval '1 year', created_at = clock_timestamp() - interval '1 year'`)
	}
	kept["with an event"] = b.oldFinal(t, "with an event")
	b.exec(t, `insert into settle.outbox (task_id, name, subject, key, payload) values ($1, 'n', 's', 'k', '{}')`, kept["with an event"])

	dry, _ := b.archiveAll(t, idemstore.Slice{Dry: true})
	if n := query[int](t, b.pool, `select count(*) from settle.tasks where archived_at is not null or payload_digest is not null`); n != 0 {
		t.Fatalf("a dry run archived %d tasks", n)
	}
	got, _ := b.archiveAll(t, idemstore.Slice{})
	want := idemstore.Archived{Tasks: 2, Bytes: got.Bytes, Waiting: 1}
	if got != want || dry != want || got.Bytes == 0 {
		t.Errorf("archived %+v, after %+v in a dry run; want %+v", got, dry, want)
	}
	for name, id := range kept {
		if b.archived(t, id) {
			t.Errorf("%s was archived", name)
		}
	}
	for id, was := range before {
		heavy := query[int](t, b.pool, `select octet_length(payload) + coalesce(octet_length(result), 0) + coalesce(octet_length(answer), 0)
			from settle.tasks where id = $1`, id)
		now := b.task(t, id)
		if !b.archived(t, id) || heavy != 0 || now.ArchivedAt == nil {
			t.Errorf("task %d: archived at %v, still has %d bytes", id, now.ArchivedAt, heavy)
		}
		if !bytes.Equal(now.Payload, was.Payload) || !bytes.Equal(now.Result, was.Result) || now.Answer != was.Answer || now.ExternalID != was.ExternalID {
			t.Errorf("task %d became %+v, was %+v", id, now, was)
		}
	}
	if again, _ := b.archiveAll(t, idemstore.Slice{}); again.Tasks != 0 || again.Waiting != 1 {
		t.Errorf("once more: %+v", again)
	}
}

// D-39: a key whose task is archived still stops a duplicate and tells it from a conflict, and replays the result.
func TestD39ArchivedKeysStillAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.oldFinal(t, "order_1")
	b.archiveAll(t, idemstore.Slice{})
	replayed := 0
	for _, c := range []struct {
		name   string
		change func(*idemstore.Claim)
		want   idemstore.Found
	}{
		{"its own message", func(*idemstore.Claim) {}, idemstore.Final},
		{"another message", func(c *idemstore.Claim) { c.Origin.Sequence = 99 }, idemstore.Final},
		{"other bytes of the same meaning", func(c *idemstore.Claim) { c.Payload, c.Origin.Sequence = []byte(`{ }`), 8 }, idemstore.Final},
		{"the same bytes, hashed by a new algorithm", func(c *idemstore.Claim) {
			c.HashAlgorithm, c.Hash, c.Origin.Sequence = "v2", []byte("new"), 8
		}, idemstore.Final},
		{"other bytes, hashed by a new algorithm", func(c *idemstore.Claim) {
			c.HashAlgorithm, c.Hash, c.Payload = "v2", []byte("new"), []byte(`{ }`)
		}, idemstore.Incomparable},
		{"other content", func(c *idemstore.Claim) { c.Payload, c.Hash, c.Origin.Sequence = []byte(`{ }`), []byte("new"), 8 }, idemstore.Conflicting},
		{"nothing, which is what the row holds now", func(c *idemstore.Claim) {
			c.Payload, c.Hash, c.Origin.Sequence = []byte{}, []byte("new"), 8
		}, idemstore.Conflicting},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := claimOf("order_1")
			c.change(&claim)
			got := b.expect(t, c.want, claim)
			if c.want == idemstore.Final {
				replayed++
				if string(got.Task.Result) != `{"id":"ch_1"}` || got.Task.ExternalID != "ch_1" || got.Task.Payload != nil {
					t.Errorf("replayed %+v", got.Task)
				}
			}
		})
	}
	if task := b.task(t, id); task.Duplicates != replayed || task.Attempt != 1 || task.ArchivedAt == nil {
		t.Errorf("%d duplicates of %d, %d attempts, archived at %v", task.Duplicates, replayed, task.Attempt, task.ArchivedAt)
	}
}

// An attempt that had lost its task brings proof after the task was archived: it is kept, and the task stays archived.
func TestLateProofForAnArchivedTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stale := b.performing(t, "order_1")
	b.expire(t, stale.TaskID)
	b.save(t, finished(b.expect(t, idemstore.Ask, claimOf("order_1")).Task.Fence))
	b.old(t, stale.TaskID)
	b.archiveAll(t, idemstore.Slice{})
	if err := b.SaveExternalID(t.Context(), stale, "ch_2", trace); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	if task := b.task(t, stale.TaskID); task.EvidenceID != "ch_2" || task.Status != idemstore.Finished || task.ArchivedAt == nil {
		t.Errorf("the task became %+v", task)
	}
}

// A task without its payload can never be made to run: not even by hand.
func TestArchivedTasksStayFinal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.oldFinal(t, "order_1")
	b.archiveAll(t, idemstore.Slice{})
	for _, change := range []string{
		`status = 'unknown', unsure = true, finished_at = null`, `status = 'needs_review', finished_at = null`,
	} {
		_, err := b.pool.Exec(t.Context(), `update settle.tasks set `+change+` where id = $1`, id)
		if state(err) != "23514" {
			t.Errorf("%s: %v, want a constraint that refuses it", change, err)
		}
	}
}

// Rows go in batches, in the order of their ids, and each of them once.
func TestArchiveInBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	manyTasks(t, b.pool, 5_250)
	b.exec(t, `update settle.tasks set expires_at = clock_timestamp() - interval '1 day' where id > 5000`)
	dry, _ := b.archiveAll(t, idemstore.Slice{Dry: true, Limit: 7})
	got, calls := b.archiveAll(t, idemstore.Slice{})
	if got.Tasks != 250 || dry.Tasks != 250 || calls < 4 {
		t.Errorf("archived %d in %d calls, %d in a dry run; want 250 in at least 4", got.Tasks, calls, dry.Tasks)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks t join settle.tasks_archive r on r.task_id = t.id
		where t.archived_at is not null and r.payload = '{}' and t.payload_digest = sha256('{}')`); n != 250 {
		t.Errorf("%d rows are whole", n)
	}
}

// A slim row that finds room on its page needs no new index entries. There is room for a few, and again once the old
// forms of those are gone.
func TestArchiveTakesFewRowsOfEachPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	manyTasks(t, b.pool, 300)
	b.exec(t, `update settle.tasks set expires_at = clock_timestamp() - interval '1 day'`)
	b.exec(t, `create table public.places as select id, (ctid::text::point)[0] as page, false as done from settle.tasks`)
	for s, done := (idemstore.Slice{}), false; !done; {
		got, err := b.Archive(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		s.After, done = got.Through, got.Done
		most := query[int](t, b.pool, `with now as (
				update public.places p set done = true from settle.tasks t where t.id = p.id and t.archived_at is not null and not done returning page)
			select coalesce(max(n), 0) from (select count(*) as n from now group by page) x`)
		if most > 4 {
			t.Errorf("%d rows of one page at once", most)
		}
	}
	if n := query[int](t, b.pool, `select count(*) from public.places where not done`); n != 0 {
		t.Errorf("%d rows were passed over", n)
	}
}

// However many rows a batch may have, it does not carry more than a few megabytes.
func TestArchiveOfLargePayloads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 5 {
		id := b.oldFinal(t, fmt.Sprint(i))
		b.set(t, id, `payload = decode(repeat('00', 3 * 1024 * 1024), 'hex')`)
	}
	var moved []int
	for s := (idemstore.Slice{}); ; {
		got, err := b.Archive(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		moved, s.After = append(moved, got.Tasks), got.Through
		if got.Done {
			break
		}
	}
	if fmt.Sprint(moved) != "[2 2 1]" {
		t.Errorf("batches of %v, want two of 3 MiB at most", moved)
	}
}

// D-22: the archive passes over rows that somebody holds, and whoever wants a row that it holds does not wait for long.
func TestD22NobodyWaitsForTheArchive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held, free := b.oldFinal(t, "held"), b.oldFinal(t, "free")
	unlock := b.lock(t, held)
	got, _ := b.archiveAll(t, idemstore.Slice{})
	if got.Tasks != 1 || got.Waiting != 1 || b.archived(t, held) || !b.archived(t, free) {
		t.Errorf("archived %+v beside a row that is held", got)
	}
	unlock()

	// The archive gets no further, with the row of "held" in its hands.
	b.exec(t, `create function public.stand_still() returns trigger language plpgsql as
		$$ begin perform pg_advisory_xact_lock(1); return new; end $$`)
	b.exec(t, `create trigger stand_still before insert on settle.tasks_archive for each row execute function public.stand_still()`)
	release := hold(t, b.pool, `select pg_advisory_xact_lock(1)`)
	archiving := async(func() (idemstore.Archived, error) { return b.Archive(t.Context(), idemstore.Slice{}) })
	b.awaitWaiting(t, 1)
	// The claim comes back although the archive can do nothing: the claim gets tired first, or the server does of the
	// archive's statement.
	if got := b.claim(t, claimOf("held")); got.Found != idemstore.Locked && got.Found != idemstore.Final {
		t.Errorf("a claim found %q", got.Found)
	}
	b.expect(t, idemstore.Final, claimOf("free"))
	b.expect(t, idemstore.Inserted, claimOf("new"))
	// Cut short once, it tries again; if the claim has the row just then, it passes it over.
	if r := <-archiving; state(r.err) != "57014" && (r.err != nil || r.value.Tasks != 0) {
		t.Errorf("the archive ended with %+v, %v; want to be cut short", r.value, r.err)
	}
	release()
	if got, _ := b.archiveAll(t, idemstore.Slice{}); got.Tasks != 1 {
		t.Errorf("archived %+v afterwards", got)
	}
	b.expect(t, idemstore.Final, claimOf("held"))
}

// Rows that stay in somebody's hands are left for another run, however many they are.
func TestArchivePassesOverRowsThatAreHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	manyTasks(t, b.pool, 10)
	b.exec(t, `update settle.tasks set expires_at = clock_timestamp() - interval '1 day'`)
	unlock := hold(t, b.pool, `select from settle.tasks where id <= 6 for update`)
	if got, _ := b.archiveAll(t, idemstore.Slice{}); got.Tasks != 4 || got.Waiting != 6 {
		t.Errorf("archived %+v", got)
	}
	unlock()
	if got, _ := b.archiveAll(t, idemstore.Slice{}); got.Tasks != 6 || got.Waiting != 0 {
		t.Errorf("afterwards %+v", got)
	}
}

// A claim races with archiving and restoring: it sees one of the two forms of the row, always with its result.
func TestClaimsRaceWithTheArchive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const many = 600
	var claims []idemstore.Claim
	for i := range many {
		claims = append(claims, claimOf(fmt.Sprintf("order_%04d", i)))
	}
	found, err := b.Claim(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	var saves []idemstore.Save
	for _, c := range found {
		saves = append(saves, finished(c.Task.Fence))
	}
	if _, err := b.Save(t.Context(), saves...); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `update settle.tasks set expires_at = clock_timestamp() - interval '1 second'`)

	stop := make(chan struct{})
	rounds := async(func() (n int, err error) {
		// The last keys of the group: a claim locks them long after it has taken its snapshot.
		for ids := []int64{many - 2, many - 1, many}; err == nil; n++ {
			select {
			case <-stop:
				return n, nil
			default:
			}
			if _, err = b.Archive(t.Context(), idemstore.Slice{After: ids[0] - 1}); err != nil {
				break
			}
			for _, id := range ids {
				if e := b.Restore(t.Context(), id, -time.Second, by("race")); e != nil && !errors.Is(e, idemstore.ErrNotArchived) {
					err = e
				}
			}
		}
		return n, err
	})
	answers := map[idemstore.Found]int{}
	for range 40 {
		for i := range claims {
			claims[i].Token = uuid.New()
		}
		got, err := b.Claim(t.Context(), claims...)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got {
			answers[c.Found]++
			if c.Found == idemstore.Final && string(c.Task.Result) != `{"id":"ch_1"}` {
				t.Fatalf("replayed %q", c.Task.Result)
			}
		}
	}
	close(stop)
	if r := <-rounds; r.err != nil || r.value == 0 {
		t.Errorf("archived and restored %d times: %v", r.value, r.err)
	}
	if answers[idemstore.Final]+answers[idemstore.Locked] != 40*many || answers[idemstore.Final] < 39*many {
		t.Errorf("found %v", answers)
	}
}
