package idemstore_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// What ClaimNew answers for a row that it made is what the row says.
func TestClaimNewAnswersWithTheRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, local := range []bool{false, true} {
		c := claimOf(map[bool]string{false: "order_1", true: "order_2"}[local])
		c.Reply, c.OriginTrace, c.Local = "_INBOX.x", trace, local
		c.Refs = []idemstore.Ref{{Name: "customer", Value: "c_17"}, {Name: "order", Value: "1"}, {Name: "order", Value: "1"}}
		got, err := b.ClaimNew(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		task, row := got[0].Task, b.task(t, got[0].Task.TaskID)
		switch {
		case got[0].Found != idemstore.Inserted, got[0].Age != (idemstore.Age{HasFirstSent: !local}):
			t.Errorf("found %q, age %+v", got[0].Found, got[0].Age)
		case task.Fence != row.Fence, task.Kind != row.Kind, task.Key != row.Key, task.Status != row.Status, task.Sending != row.Sending:
			t.Errorf("answered %+v, the row is %+v", task, row)
		case task.Provider != row.Provider, task.ProviderKey != row.ProviderKey, task.HashAlgorithm != row.HashAlgorithm:
			t.Errorf("answered %+v, the row is %+v", task, row)
		case !bytes.Equal(task.Payload, row.Payload), !bytes.Equal(task.Hash, row.Hash):
			t.Errorf("answered content %q, the row's is %q", task.Payload, row.Payload)
		case task.Reply != row.Reply, task.OriginTrace != row.OriginTrace, task.Origin.Sequence != row.Origin.Sequence, task.Origin.Stream != row.Origin.Stream:
			t.Errorf("answered origin %+v, the row's is %+v", task.Origin, row.Origin)
		case (row.FirstSentAt == nil) != local, !near(row.LeaseUntil, row.CreatedAt.Add(time.Minute)):
			t.Errorf("times of a new attempt: %+v", row)
		}
		if n := query[int](t, b.pool, `select count(*) from settle.task_refs where task_id = $1`, row.TaskID); n != 2 {
			t.Errorf("%d refs, want the two different ones", n)
		}
	}
}

// A group is answered by position. Rows that were there are not touched, whoever holds them and whatever they say.
func TestClaimNewOfGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var claims []idemstore.Claim
	var rows []int64
	for _, f := range []idemstore.Found{idemstore.Busy, idemstore.Ask, idemstore.Final, idemstore.Parked, idemstore.Perform} {
		rows = append(rows, prepareFor(t, b, f))
		claims = append(claims, claimOf("order_"+string(f)))
	}
	unlock := b.lock(t, rows[0])
	defer unlock()
	var before []string
	for _, id := range rows {
		before = append(before, b.row(t, id))
	}
	other := claimOf("order_new")
	other.Kind, other.Lease = "test.other", time.Hour
	claims = append(claims, claimOf("order_z"), other, claimOf("order_a"), claimOf("order_a"))
	got, err := b.ClaimNew(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	inserted := map[string]int{}
	for i, c := range claims {
		if got[i].Found != idemstore.Inserted {
			continue
		}
		inserted[c.Key]++
		if row := b.task(t, got[i].Task.TaskID); row.Token != c.Token || row.Kind != c.Kind || !near(row.LeaseUntil, row.CreatedAt.Add(c.Lease)) {
			t.Errorf("position %d: row %+v", i, row)
		}
	}
	if len(inserted) != 3 || inserted["order_z"] != 1 || inserted["order_new"] != 1 || inserted["order_a"] != 1 {
		t.Errorf("inserted %v", inserted)
	}
	for i, id := range rows {
		if got[i].Found != idemstore.Taken || b.row(t, id) != before[i] {
			t.Errorf("position %d: found %q, row %s, was %s", i, got[i].Found, b.row(t, id), before[i])
		}
	}
}

// A claim may be repeated with its token, whichever way it goes the second time.
func TestClaimNewRepeated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := claimOf("order_1")
	for _, want := range []idemstore.Found{idemstore.Inserted, idemstore.Taken} {
		if got, err := b.ClaimNew(t.Context(), c); err != nil || got[0].Found != want {
			t.Errorf("found %+v (%v), want %q", got, err, want)
		}
	}
	b.expect(t, idemstore.Inserted, c)
}

// Of a key that was taken no row is made, also where it is gone again: then the message comes again, and makes one.
func TestClaimOfATakenKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	there, gone := claimOf("order_there"), claimOf("order_gone")
	b.expect(t, idemstore.Inserted, there)
	repeat := claimOf("order_there")
	repeat.Taken, gone.Taken, gone.Refs = true, true, []idemstore.Ref{{Name: "customer", Value: "c_1"}}
	got, err := b.Claim(t.Context(), repeat, gone, claimOf("order_new"))
	if err != nil || got[0].Found != idemstore.Busy || got[1].Found != idemstore.Locked || got[2].Found != idemstore.Inserted {
		t.Errorf("found %+v (%v), want busy, locked and inserted", got, err)
	}
	there.Taken = true
	b.expect(t, idemstore.Inserted, there) // its own claim, whose answer was lost
	gone.Taken = false
	b.expect(t, idemstore.Inserted, gone)
}

func TestD18ClaimNewNotAnswered(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			c := claimOf("order_1")
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:claim-insert */"})
			got, err := w.cut.ClaimNew(t.Context(), c)
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if !fault.committed {
				if !errors.Is(err, idemstore.ErrCommitUnanswered) {
					t.Errorf("found %+v (%v), want ErrCommitUnanswered", got, err)
				}
				return
			}
			if err != nil || got[0].Found != idemstore.Inserted || got[0].Task.Token != c.Token || !bytes.Equal(got[0].Task.Payload, c.Payload) {
				t.Fatalf("found %+v (%v)", got, err)
			}
			if _, err := w.cut.Save(t.Context(), finished(got[0].Task.Fence)); err != nil {
				t.Errorf("the claim that was found again cannot be used: %v", err)
			}
		})
	}
}

func TestNoNewClaims(t *testing.T) {
	t.Parallel()
	got, err := newBench(t).ClaimNew(t.Context())
	if err != nil || len(got) != 0 {
		t.Errorf("%d answers to no claim (%v)", len(got), err)
	}
}

// A repeat of what is over is answered the same whether or not its key was known to be taken, also where another holds the row.
func TestARepeatIsAnsweredAlike(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.save(t, finished(f))
	claim := func(taken bool) idemstore.Claim {
		c := claimOf("order_1")
		c.Taken = taken
		return c
	}
	for _, state := range []string{"finished", "archived"} {
		if state == "archived" {
			b.old(t, f.TaskID)
			b.archiveAll(t, idemstore.Slice{})
		}
		said := map[bool]idemstore.Claimed{}
		for _, taken := range []bool{false, true} {
			c := b.expect(t, idemstore.Final, claim(taken))
			if c.PreviousTrace != trace || c.Age.FirstSent <= 0 || string(c.Task.Result) != `{"id":"ch_1"}` || c.Task.Payload != nil {
				t.Errorf("%s, taken: %v: %+v", state, taken, c)
			}
			c.Age.FirstSent, c.Age.LastSent = 0, 0
			said[taken] = c
		}
		if !reflect.DeepEqual(said[false], said[true]) {
			t.Errorf("%s: answered\n%+v\n%+v", state, said[false], said[true])
		}
	}
	if row := b.task(t, f.TaskID); row.Duplicates != 4 {
		t.Errorf("%d duplicates, want 4", row.Duplicates)
	}
	unlock := b.lock(t, f.TaskID)
	b.expect(t, idemstore.Locked, claim(true))
	unlock()
	other := claim(true)
	other.Payload, other.Hash, other.Origin.Sequence = []byte(`{"other": 1}`), []byte("other"), 8
	b.expect(t, idemstore.Conflicting, other)
	own := claim(true)
	own.Token = f.Token
	b.expect(t, idemstore.Locked, own)
}

// The answer to a repeat may be lost as well: then nobody answers, and the message comes again.
func TestD18AnswerToARepeatLost(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			f := w.performing(t, "order_1")
			w.save(t, finished(f))
			c := claimOf("order_1")
			c.Taken = true
			shot := fault.arm(w.proxy, rig.CommitCut{Containing: "/* settle:claim-answer */"})
			got, err := w.cut.Claim(t.Context(), c)
			rig.Await(t, shot.Fired(), soon, "the cut around COMMIT")
			if !errors.Is(err, idemstore.ErrCommitUnanswered) {
				t.Errorf("found %+v (%v), want ErrCommitUnanswered", got, err)
			}
			if n := w.task(t, f.TaskID).Duplicates; (n == 1) != fault.committed {
				t.Errorf("%d duplicates are counted", n)
			}
			w.expect(t, idemstore.Final, c)
		})
	}
}
