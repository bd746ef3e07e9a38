package idemstore_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/settlemq/settle/idemstore"
)

func TestSaveFinished(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	s := finished(b.performing(t, "order_1"))
	s.Writes = []idemstore.Statement{local("paid")}
	s.Emits = []idemstore.Emit{{Subject: "events.paid", Key: "1", Payload: []byte(`{}`), Trace: trace}}
	s.Answer, s.ResultAltered = "201 Created", true
	saved := b.save(t, s)
	row := b.task(t, s.TaskID)
	switch {
	case saved.Status != idemstore.Finished, row.Status != idemstore.Finished, row.FinishedAt == nil, row.LeaseUntil != nil, row.Sending:
		t.Errorf("not finished: %+v", row)
	case row.ExternalID != "ch_1", string(row.Result) != `{"id":"ch_1"}`, row.ProviderStatus != 201, row.Answer != "201 Created", !row.ResultAltered:
		t.Errorf("what the provider said: %+v", row)
	case row.Attempt != 1, row.Token != s.Token, row.Failures != 0, row.Unsure:
		t.Errorf("a first success owes nothing: %+v", row)
	case b.rows(t) != 2:
		t.Errorf("%d local rows and events, want one of each", b.rows(t))
	case len(b.reasons(t, s.TaskID)) != 0:
		t.Error("the happy path wrote an audit line")
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks where expires_at - finished_at between '6 d 23 h' and '7 d 1 h'`); n != 1 {
		t.Error("retention is not counted from the end")
	}
	if n := query[int](t, b.pool, `select count(*) from settle.task_refs where name = 'external_id' and value = 'ch_1'`); n != 1 {
		t.Error("the task cannot be found by its external id")
	}
}

// L6, L7, L11: number and token must match under both policies; the lease only under the strict one.
func TestSaveNeedsTheFence(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	const over = `lease_until = clock_timestamp() - interval '1 ms'`
	for _, c := range []struct {
		name            string
		row             string
		fence           string
		strict, lenient bool
	}{
		{"lease live", ``, "", true, true},
		{"L6: lease over, nobody claimed", over, "", false, true},
		{"L7: lease over, another attempt claimed", "taken over", "", false, false},
		{"number right, token wrong", ``, "number right, token wrong", false, false},
		{"token right, number wrong", ``, "token right, number wrong", false, false},
		{"unknown", `attempts = 2, status = 'unknown', unsure = true, sending = false, lease_until = null`, "", false, false},
		{"finished by hand", `attempts = 2, status = 'finished', finished_at = clock_timestamp(), lease_until = null`, "", false, false},
		{"parked by a claim", `attempts = 2, status = 'needs_review', lease_until = null`, "", false, false},
	} {
		for _, strict := range []bool{true, false} {
			policy, accepted := "lenient", c.lenient
			if strict {
				policy, accepted = "strict", c.strict
			}
			t.Run(c.name+", "+policy, func(t *testing.T) {
				name := c.name + policy
				f := b.performing(t, name)
				switch c.row {
				case "":
				case "taken over":
					b.expire(t, f.TaskID)
					b.expect(t, idemstore.Ask, claimOf(name))
				default:
					b.set(t, f.TaskID, c.row)
				}
				s := finished(f)
				if c.fence != "" {
					s.Fence = wrongFences(f)[c.fence]
				}
				s.Strict, s.Writes = strict, []idemstore.Statement{local(name)}
				before, rows := b.row(t, f.TaskID), b.rows(t)
				saved, err := b.Save(t.Context(), s)
				if accepted {
					if err != nil || saved[0].Status != idemstore.Finished || b.rows(t) != rows+1 || b.task(t, f.TaskID).Attempt != 1 {
						t.Errorf("saved %+v (%v), want it accepted", saved, err)
					}
					return
				}
				if !errors.Is(err, idemstore.ErrLost) {
					t.Errorf("saved %+v (%v), want ErrLost", saved, err)
				}
				if b.row(t, f.TaskID) != before || b.rows(t) != rows {
					t.Error("something was written")
				}
			})
		}
	}
}

// A save that was made before, whose answer nobody heard, is answered as if it were new, and makes nothing twice.
func TestSaveOnceMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for _, status := range []idemstore.Status{idemstore.Finished, idemstore.Failed, idemstore.Unknown, idemstore.NeedsReview} {
		s := unknown(b.performing(t, string(status)))
		s.Status, s.Delay = status, time.Hour
		s.Writes = []idemstore.Statement{local(string(status))}
		first := b.save(t, s)
		before, rows := b.row(t, s.TaskID), b.rows(t)
		second := b.save(t, s)
		if second.Status != first.Status || second.Failures != first.Failures || (second.Wait-first.Wait).Abs() > time.Minute {
			t.Errorf("answered %+v, the first time %+v", second, first)
		}
		if b.row(t, s.TaskID) != before || b.rows(t) != rows {
			t.Error("something was written")
		}
	}
}

func TestSaveOfNoTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	s.TaskID++
	if saved, err := b.Save(t.Context(), s); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("saved %+v (%v), want ErrNotFound", saved, err)
	}
	if saved, err := b.Save(t.Context()); err != nil || len(saved) != 0 {
		t.Errorf("nothing to save: %+v (%v)", saved, err)
	}
}

// The lease is compared with the clock after the wait for the row, not with the start of the transaction.
func TestStrictSaveThatWaitedPastItsLeaseIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	s.Strict = true
	b.set(t, s.TaskID, `lease_until = clock_timestamp() + interval '300 ms'`)
	unlock := b.lock(t, s.TaskID)
	done := async(func() ([]idemstore.Saved, error) { return b.Save(t.Context(), s) })
	b.awaitWaiting(t, 1)
	b.awaitLeaseEnd(t, s.TaskID)
	unlock()
	if r := <-done; !errors.Is(r.err, idemstore.ErrLost) {
		t.Errorf("saved %+v (%v), want ErrLost", r.value, r.err)
	}
}

// The lease that counts is the one that the wait was for.
func TestStrictSaveSeesTheRenewalThatItWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	s.Strict = true
	b.set(t, s.TaskID, `lease_until = clock_timestamp() + interval '300 ms'`)
	renewed := hold(t, b.pool, `update settle.tasks set lease_until = clock_timestamp() + interval '1 min' where id = $1`, s.TaskID)
	done := async(func() ([]idemstore.Saved, error) { return b.Save(t.Context(), s) })
	b.awaitWaiting(t, 1)
	b.awaitLeaseEnd(t, s.TaskID)
	renewed()
	if r := <-done; r.err != nil {
		t.Errorf("a save under a live lease was refused: %v", r.err)
	}
}

// What a row knows after each outcome: what may have been applied, when at the earliest, and when at the latest.
func TestWhatASaveLeavesOnTheRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const absent = `absent_at = clock_timestamp() - interval '1 h'`
	for _, c := range []struct {
		name    string
		asking  bool
		row     string
		change  func(*idemstore.Save)
		status  idemstore.Status
		unsure  bool
		first   bool // first_sent_at is known
		sent    bool // the save itself bounds the last send
		absent  string
		failure int
	}{
		{name: "unknown after a send", status: idemstore.Unknown, unsure: true, first: true, sent: true, failure: 1},
		{name: "unknown after only asking", asking: true, change: free, status: idemstore.Unknown, unsure: true, first: true, failure: 1},
		{name: "first settled absent", asking: true, change: func(s *idemstore.Save) { free(s); s.AbsentNow = true },
			status: idemstore.Unknown, unsure: true, first: true, absent: "now", failure: 1},
		{name: "second settled absent", asking: true, row: absent, change: func(s *idemstore.Save) { free(s); s.AbsentNow = true },
			status: idemstore.Unknown, unsure: true, first: true, absent: "before", failure: 1},
		{name: "another verdict", asking: true, row: absent, change: func(s *idemstore.Save) { free(s); s.ClearAbsent = true },
			status: idemstore.Unknown, unsure: true, first: true, failure: 1},
		{name: "no verdict", asking: true, row: absent, change: free, status: idemstore.Unknown, unsure: true, first: true, absent: "before", failure: 1},
		{name: "contradiction before anything was sent", change: func(s *idemstore.Save) {
			free(s)
			s.Status, s.MayBeApplied = idemstore.NeedsReview, false
		}, status: idemstore.NeedsReview, sent: true},
		{name: "contradiction after a send", change: func(s *idemstore.Save) { free(s); s.Status = idemstore.NeedsReview },
			status: idemstore.NeedsReview, unsure: true, first: true, sent: true},
		{name: "contradiction when earlier attempts sent", asking: true, change: func(s *idemstore.Save) {
			free(s)
			s.Status, s.MayBeApplied = idemstore.NeedsReview, false
		}, status: idemstore.NeedsReview, unsure: true, first: true, failure: 1},
		{name: "budget used up by this one", row: `failures = 4`, status: idemstore.NeedsReview, unsure: true, first: true, sent: true, failure: 5},
		{name: "age used up", row: `give_up_at = clock_timestamp()`, change: free, status: idemstore.NeedsReview, unsure: true, first: true, sent: true},
		{name: "found after the age limit", asking: true, row: `give_up_at = clock_timestamp(), failures = 9`, change: func(s *idemstore.Save) {
			free(s)
			s.Status = idemstore.Finished
		}, status: idemstore.Finished, unsure: true, first: true, failure: 9},
		{name: "refused", change: func(s *idemstore.Save) { free(s); s.Status = idemstore.Failed }, status: idemstore.Failed, first: true, sent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := b.performing
			if c.asking {
				start = b.asking
			}
			s := unknown(start(t, c.name))
			if c.row != "" {
				b.set(t, s.TaskID, c.row)
			}
			if c.change != nil {
				c.change(&s)
			}
			before := b.task(t, s.TaskID)
			saved := b.save(t, s)
			row := b.task(t, s.TaskID)
			now := query[time.Time](t, b.pool, `select clock_timestamp()`)
			switch {
			case row.Status != c.status, saved.Status != c.status:
				t.Errorf("status %s, saved %s, want %s", row.Status, saved.Status, c.status)
			case row.Failures != c.failure, saved.Failures != c.failure:
				t.Errorf("failures %d, want %d", row.Failures, c.failure)
			case row.Unsure != c.unsure:
				t.Errorf("unsure %v", row.Unsure)
			case row.Sending, row.LeaseUntil != nil, row.Fence != s.Fence, c.status.Final() != (row.FinishedAt != nil):
				t.Errorf("still held: %+v", row)
			case (row.FirstSentAt != nil) != c.first, c.first && !row.FirstSentAt.Equal(*before.FirstSentAt):
				t.Errorf("first sent at %v, was %v", row.FirstSentAt, before.FirstSentAt)
			case c.sent != (row.LastSentBy != nil && (before.LastSentBy == nil || !row.LastSentBy.Equal(*before.LastSentBy))):
				t.Errorf("last sent by %v, was %v", row.LastSentBy, before.LastSentBy)
			case (c.absent != "") != (row.AbsentAt != nil), c.absent == "now" && !near(row.AbsentAt, now), c.absent == "before" && !row.AbsentAt.Equal(*before.AbsentAt):
				t.Errorf("absent at %v, was %v", row.AbsentAt, before.AbsentAt)
			}
		})
	}
}

// free is an outcome that costs nothing of the budget.
func free(s *idemstore.Save) { s.Cost = 0 }

// A send that may still be under way when its lease ends counts until then; the owner's own save knows better.
func TestOwnSaveLowersTheSendBound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := unknown(b.performing(t, "order_1"))
	b.set(t, s.TaskID, `last_sent_by = clock_timestamp() + interval '1 h'`)
	b.save(t, s)
	now := query[time.Time](t, b.pool, `select clock_timestamp()`)
	if row := b.task(t, s.TaskID); !near(row.LastSentBy, now) {
		t.Errorf("last sent by %v, now %v", row.LastSentBy, now)
	}
}

func TestSaveParksWithAnAuditLine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := unknown(b.performing(t, "order_1"))
	s.MaxFailures = 1
	b.save(t, s)
	events, err := b.Events(t.Context(), s.TaskID)
	if err != nil || len(events) != 1 {
		t.Fatalf("audit %+v (%v)", events, err)
	}
	e := events[0]
	if e.OldStatus != idemstore.Started || e.NewStatus != idemstore.NeedsReview || e.Actor != "worker" || e.Attempt != 1 ||
		e.TraceID != "0af7651916cd43dd8448eb211c80319c" || e.Reason != "no answer; parked: budget or age limit used up" {
		t.Errorf("audit %+v", e)
	}
}

// The next attempt waits for the later of the back-off and the moment when "absent" may count, and at the age limit, here
// four hours, a person is called.
func TestWhenTheNextAttemptIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		name          string
		asking        bool
		delay, settle time.Duration
		want          time.Duration
	}{
		{"back-off", false, time.Hour, 0, time.Hour},
		{"due at once", false, 0, 0, 0},
		{"settle time after a send", false, time.Second, 2 * time.Hour, 2 * time.Hour},
		{"back-off beyond the settle time", false, 3 * time.Hour, 2 * time.Hour, 3 * time.Hour},
		{"settle time counts from the last send, not from the look-up", true, time.Second, 3 * time.Hour, 2 * time.Hour},
		{"settled already", true, 10 * time.Minute, time.Hour / 2, 10 * time.Minute},
		{"age limit before the back-off", false, 9 * time.Hour, 0, 4 * time.Hour},
		{"age limit before the settle time", false, 0, 9 * time.Hour, 4 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := b.performing
			if c.asking {
				start = b.asking
			}
			s := unknown(start(t, c.name))
			b.set(t, s.TaskID, `give_up_at = clock_timestamp() + interval '4 h'`)
			if c.asking {
				b.set(t, s.TaskID, `last_sent_by = clock_timestamp() - interval '1 h'`)
			}
			s.Delay, s.Settle = c.delay, c.settle
			saved := b.save(t, s)
			if (saved.Wait - c.want).Abs() > time.Minute {
				t.Errorf("due in %s, want %s", saved.Wait, c.want)
			}
			want := idemstore.NotDue
			if c.want == 0 {
				want = idemstore.Ask
			}
			b.expect(t, want, claimOf(c.name))
		})
	}
}

// A5: the id is written once. A second one is no news to overwrite the first with, but a reason to stop.
func TestExternalIDIsWrittenOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	for _, strict := range []bool{true, false} {
		f := b.performing(t, map[bool]string{true: "strict", false: "lenient"}[strict])
		if err := b.SaveExternalID(t.Context(), f, "ch_0", trace); err != nil {
			t.Fatal(err)
		}
		before := b.row(t, f.TaskID)
		s := finished(f)
		s.Strict, s.Writes = strict, []idemstore.Statement{local("paid")}
		if saved, err := b.Save(t.Context(), s); !errors.Is(err, idemstore.ErrOtherExternalID) {
			t.Fatalf("saved %+v (%v), want ErrOtherExternalID", saved, err)
		}
		if b.row(t, f.TaskID) != before || b.rows(t) != 0 {
			t.Error("something was written")
		}
		s.Status, s.ExternalID, s.EvidenceID, s.Writes = idemstore.NeedsReview, "", "ch_1", nil
		b.save(t, s)
		if row := b.task(t, f.TaskID); row.ExternalID != "ch_0" || row.EvidenceID != "ch_1" || !row.Unsure {
			t.Errorf("parked as %+v", row)
		}
	}
	for _, id := range []string{"ch_0", ""} {
		f := b.performing(t, "same "+id)
		if err := b.SaveExternalID(t.Context(), f, "ch_0", trace); err != nil {
			t.Fatal(err)
		}
		s := finished(f)
		s.ExternalID = id
		b.save(t, s)
		if row := b.task(t, f.TaskID); row.ExternalID != "ch_0" {
			t.Errorf("external id %q after a save with %q", row.ExternalID, id)
		}
	}
}

// One stale member takes the whole group with it: neither its local rows nor those of the others are seen.
func TestStaleMemberOfAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	current, stale := finished(b.performing(t, "current")), finished(b.performing(t, "stale"))
	b.expire(t, stale.TaskID)
	b.expect(t, idemstore.Ask, claimOf("stale"))
	current.Writes, stale.Writes = []idemstore.Statement{local("current")}, []idemstore.Statement{local("stale")}
	current.Emits = []idemstore.Emit{{Subject: "events.paid", Key: "current", Payload: []byte(`{}`)}}
	stale.Emits = []idemstore.Emit{{Subject: "events.paid", Key: "stale", Payload: []byte(`{}`)}}
	rows := []string{b.row(t, current.TaskID), b.row(t, stale.TaskID)}
	for _, group := range [][]idemstore.Save{{current, stale}, {stale, current}} {
		saved, err := b.Save(t.Context(), group...)
		if !errors.Is(err, idemstore.ErrLost) {
			t.Fatalf("saved %+v (%v), want ErrLost", saved, err)
		}
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			t.Errorf("the database's words reach the caller: %v", err)
		}
		if !slices.Equal(rows, []string{b.row(t, current.TaskID), b.row(t, stale.TaskID)}) || b.rows(t) != 0 {
			t.Fatalf("something was written: %d local rows and events", b.rows(t))
		}
	}
	b.save(t, current)
	if b.rows(t) != 2 {
		t.Errorf("%d local rows and events of the current attempt alone, want 2", b.rows(t))
	}
}

// Commit may run several times: for a second save, or twice in one.
func TestEventsAreQueuedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	paid := idemstore.Emit{Subject: "events.paid", Key: "1", Payload: []byte(`{"n":1}`), Trace: trace}
	receipt := idemstore.Emit{Subject: "jobs.receipt.send", Key: "1", Payload: []byte(`{}`)}
	second := paid
	second.Key = "2"
	s.Emits = []idemstore.Emit{paid, receipt, paid, second}
	b.save(t, s)
	b.set(t, s.TaskID, `status = 'started', finished_at = null, unsure = true, lease_until = clock_timestamp() + interval '1 min'`) // as if a person had it retried
	paid.Payload = []byte(`{"n":2}`)
	s.Emits = []idemstore.Emit{paid, receipt}
	b.save(t, s)
	got := query[string](t, b.pool, `select string_agg(name || ' ' || convert_from(payload, 'UTF8'), '; ' order by id) from settle.outbox`)
	if want := `events.paid 1 {"n":1}; jobs.receipt.send 1 {}; events.paid 2 {"n":1}`; got != want {
		t.Errorf("queued %s, want %s", got, want)
	}
}
