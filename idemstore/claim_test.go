package idemstore_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestClaimOfNewKeyInserts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := claimOf("order_1")
	c.Reply, c.OriginTrace = "_INBOX.x", trace
	c.Refs = []idemstore.Ref{{Name: "customer", Value: "c_17"}, {Name: "order", Value: "1"}, {Name: "order", Value: "1"}}
	got := b.expect(t, idemstore.Inserted, c)
	if got.Task.Attempt != 1 || got.Task.Token != c.Token || !bytes.Equal(got.Task.Payload, c.Payload) || !got.Age.HasFirstSent {
		t.Errorf("attempt %+v of payload %q, age %+v", got.Task.Fence, got.Task.Payload, got.Age)
	}
	row := b.task(t, got.Task.TaskID)
	now := query[time.Time](t, b.pool, `select clock_timestamp()`)
	switch {
	case row.Status != idemstore.Started, !row.Sending, row.Unsure, row.Failures != 0:
		t.Errorf("a new attempt may send and owes nothing: %+v", row)
	case !near(row.LeaseUntil, now.Add(time.Minute)), !near(&row.GiveUpAt, now.Add(time.Hour)), !near(row.FirstSentAt, now):
		t.Errorf("times of a new attempt: %+v", row)
	case row.LastSentBy != nil, row.FinishedAt != nil, row.ExternalID != "":
		t.Errorf("a new row knows too much: %+v", row)
	case row.Provider != "provider-a", row.ProviderKey != "pay_order_1", row.Reply != "_INBOX.x", row.OriginTrace != trace, row.LastTrace != trace:
		t.Errorf("what the message said: %+v", row)
	case row.Origin.Stream != "JOBS", row.Origin.Sequence != 7, !row.Origin.Stored.Equal(c.Origin.Stored.Truncate(time.Microsecond)):
		t.Errorf("origin %+v", row.Origin)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.task_refs where task_id = $1`, row.TaskID); n != 2 {
		t.Errorf("%d refs, want the two different ones", n)
	}
	if len(b.reasons(t, row.TaskID)) != 0 {
		t.Error("the happy path wrote an audit line")
	}
}

// D-20: many claims of one new key.
func TestD20ParallelClaimsOfOneNewKey(t *testing.T) {
	t.Parallel()
	url := devtest.Database(t)
	var stores []*idemstore.Store
	for range 4 {
		pool := newPool(t, url, func(c *pgxpool.Config) { c.MaxConns = 8 })
		stores = append(stores, idemstore.New(pool, time.Minute))
	}
	var answers []<-chan result[[]idemstore.Claimed]
	for i := range 50 {
		answers = append(answers, async(func() ([]idemstore.Claimed, error) {
			return stores[i%len(stores)].Claim(t.Context(), claimOf("order_1"))
		}))
	}
	count := map[idemstore.Found]int{}
	for _, a := range answers {
		r := <-a
		if r.err != nil {
			t.Fatal(r.err)
		}
		got := r.value[0]
		count[got.Found]++
		if got.Found == idemstore.Busy && (got.Wait <= 0 || got.Wait > time.Minute) {
			t.Errorf("busy for %s, which is not the rest of the lease", got.Wait)
		}
	}
	if count[idemstore.Inserted] != 1 || count[idemstore.Busy]+count[idemstore.Locked] != 49 {
		t.Errorf("found %v, want one winner and 49 others", count)
	}
	row, err := stores[0].Find(t.Context(), kind, "order_1")
	if err != nil || row.Attempt != 1 || row.Failures != 0 || row.Duplicates != 0 {
		t.Errorf("the row after the race: %+v (%v)", row, err)
	}
}

// A key that another transaction is inserting is locked, and is not waited for again and again.
func TestClaimOfKeyBeingInserted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `create sequence public.tries`)
	b.exec(t, `create function public.count_try() returns trigger language plpgsql as
		$$ begin perform nextval('public.tries'); return new; end $$`)
	b.exec(t, `create trigger count_try before insert on settle.tasks for each row execute function public.count_try()`)
	rival := hold(t, b.pool, `insert into settle.tasks (kind, key, status, token, sending, lease_until, first_sent_at, give_up_at,
		payload, payload_hash, hash_algorithm) values ($1, 'order_1', 'started', gen_random_uuid(), true,
		clock_timestamp() + interval '1 minute', clock_timestamp(), clock_timestamp() + interval '1 hour', '', '', 'v1')`, kind)
	impatient := bench{idemstore.New(b.pool, 300*time.Millisecond), b.pool}
	impatient.expect(t, idemstore.Locked, claimOf("order_1"))
	rival()
	if tries := query[int](t, b.pool, `select last_value from public.tries`) - 1; tries != 1 {
		t.Errorf("the claim waited for the lock %d times; a redelivery is cheaper", tries)
	}
}

// A group is answered by position, whatever order its keys have and whatever each of them finds.
func TestClaimOfGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, f := range []idemstore.Found{idemstore.Busy, idemstore.Ask, idemstore.Final, idemstore.Parked, idemstore.NotDue,
		idemstore.Perform, idemstore.Conflicting, idemstore.Locked} {
		prepareFor(t, b, f)
	}
	unlock := b.lock(t, prepareFor(t, b, idemstore.Locked+"2"))
	defer unlock()

	want := []idemstore.Found{idemstore.Perform, idemstore.Locked + "2", idemstore.Inserted, idemstore.Ask, idemstore.Final,
		idemstore.NotDue, idemstore.Busy, idemstore.Parked, idemstore.Conflicting}
	var claims []idemstore.Claim
	for _, f := range want {
		c := claimOf("order_" + string(f))
		if f == idemstore.Conflicting {
			c.Payload, c.Hash, c.Origin.Sequence = []byte(`{}`), []byte("other"), 8
		}
		claims = append(claims, c)
	}
	got, err := b.Claim(t.Context(), claims...)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range want {
		if f == idemstore.Locked+"2" {
			f = idemstore.Locked
		}
		if got[i].Found != f {
			t.Errorf("position %d: found %q, want %q", i, got[i].Found, f)
		}
		if f != idemstore.Locked && got[i].Task.Key != claims[i].Key {
			t.Errorf("position %d: the row of %q, want %q", i, got[i].Task.Key, claims[i].Key)
		}
		attempt := slices.Contains([]idemstore.Found{idemstore.Inserted, idemstore.Ask, idemstore.Perform}, f)
		if mine := got[i].Task.Token == claims[i].Token; mine != attempt {
			t.Errorf("position %d, %q: the row bears our token: %v", i, f, mine)
		}
		if whole := bytes.Equal(got[i].Task.Payload, claims[i].Payload); whole != attempt || !attempt && got[i].Task.Payload != nil {
			t.Errorf("position %d, %q: came with payload %q", i, f, got[i].Task.Payload)
		}
	}
}

// prepareFor leaves a row at which the next claim finds f, and returns its id.
func prepareFor(t *testing.T, b bench, f idemstore.Found) int64 {
	t.Helper()
	fence := b.performing(t, "order_"+string(f))
	switch f {
	case idemstore.Ask:
		b.expire(t, fence.TaskID)
	case idemstore.Final:
		b.save(t, finished(fence))
	case idemstore.Parked:
		s := unknown(fence)
		s.Status = idemstore.NeedsReview
		b.save(t, s)
	case idemstore.NotDue, idemstore.Perform:
		delay := time.Duration(0)
		if f == idemstore.NotDue {
			delay = time.Hour
		}
		if _, err := b.Release(t.Context(), idemstore.Release{Fence: fence, Delay: delay}); err != nil {
			t.Fatal(err)
		}
	case idemstore.Inserted, idemstore.Busy, idemstore.Locked, idemstore.Conflicting, idemstore.Incomparable, idemstore.Spent,
		idemstore.Taken:
		// A live lease will do, or its test goes on from there.
	}
	return fence.TaskID
}

// A key that a call holds twice gets one attempt.
func TestClaimOfSameKeyTwiceInOneCall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, prepare := range map[string]func(key string){
		"new":     func(string) {},
		"expired": func(key string) { b.expire(t, b.performing(t, key).TaskID) },
	} {
		t.Run(name, func(t *testing.T) {
			prepare(name)
			claims := []idemstore.Claim{claimOf(name), claimOf(name)}
			got, err := b.Claim(t.Context(), claims...)
			if err != nil {
				t.Fatal(err)
			}
			attempts := 0
			for i, g := range got {
				if g.Task.Token == claims[i].Token {
					attempts++
				}
			}
			if attempts != 1 {
				t.Errorf("%d attempts, want 1: %q and %q", attempts, got[0].Found, got[1].Found)
			}
		})
	}
}

func TestNoClaims(t *testing.T) {
	t.Parallel()
	got, err := newBench(t).Claim(t.Context())
	if err != nil || len(got) != 0 {
		t.Errorf("%d answers to no claim (%v)", len(got), err)
	}
}

// L7, D-37: an expired lease is no permission to send.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		name      string
		row       string // what the attempt that died left behind
		want      idemstore.Found
		unsure    bool
		sentBy    bool // its lease end bounds its last send
		resetSent bool // first_sent_at is set anew
	}{
		{"it was sending", ``, idemstore.Ask, true, true, false},
		{"it was sending, and others before it", `unsure = true`, idemstore.Ask, true, true, false},
		{"it only asked", `sending = false, first_sent_at = null`, idemstore.Perform, false, false, true},
		{"it only asked, and others sent", `sending = false, unsure = true`, idemstore.Ask, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := b.performing(t, c.name)
			b.expire(t, first.TaskID)
			if c.row != "" {
				b.set(t, first.TaskID, c.row)
			}
			before := b.task(t, first.TaskID)
			claim := claimOf(c.name)
			claim.Trace = strings.ReplaceAll(trace, "0af7", "1af7")
			claim.Provider = "provider-b"
			got := b.expect(t, c.want, claim)
			after := b.task(t, first.TaskID)
			switch {
			case after.Attempt != 2, after.Token != claim.Token, after.Failures != 1, after.Status != idemstore.Started:
				t.Errorf("the row: %+v", after)
			case after.Sending != (c.want == idemstore.Perform), after.Unsure != c.unsure:
				t.Errorf("sending %v, unsure %v", after.Sending, after.Unsure)
			case (after.LastSentBy != nil) != c.sentBy, c.sentBy && !after.LastSentBy.Equal(*before.LeaseUntil):
				t.Errorf("last sent by %v, the lease ended %v", after.LastSentBy, before.LeaseUntil)
			case (after.Provider == "provider-b") != c.resetSent:
				t.Errorf("provider %q: the first send decides", after.Provider)
			case got.PreviousTrace != trace:
				t.Errorf("linked to %q", got.PreviousTrace)
			case got.Age.HasLastSent != c.sentBy, c.sentBy && got.Age.LastSent < time.Second:
				t.Errorf("age %+v", got.Age)
			}
			if want := []string{"taken over: the lease of attempt 1 ran out"}; !slices.Equal(b.reasons(t, first.TaskID), want) {
				t.Errorf("audit: %q, want %q", b.reasons(t, first.TaskID), want)
			}
		})
	}
}

// The last possible send never moves back: a later attempt's lease may have ended before an earlier bound.
func TestTakeOverKeepsTheLaterSendBound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.expire(t, f.TaskID)
	b.set(t, f.TaskID, `last_sent_by = clock_timestamp() + interval '1 hour', unsure = true`)
	before := b.task(t, f.TaskID).LastSentBy
	b.expect(t, idemstore.Ask, claimOf("order_1"))
	if after := b.task(t, f.TaskID).LastSentBy; !after.Equal(*before) {
		t.Errorf("last sent by %v, was %v", after, before)
	}
}

// A15: nothing is retried for ever.
func TestClaimParksWhatIsSpent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		name, row string
		failures  int
		unsure    bool
		why       string
	}{
		{"budget, by this crash", `failures = 4, lease_until = clock_timestamp() - interval '1 s'`, 5, true, "parked: 5 failures, the budget is used up"},
		{"budget, by unknowns", `failures = 5, status = 'unknown', unsure = true, sending = false, lease_until = null`, 5, true, "parked: 5 failures, the budget is used up"},
		{"age, crashed", `give_up_at = clock_timestamp(), lease_until = clock_timestamp() - interval '1 s'`, 1, true, "parked: not settled within its age limit"},
		{"age, released", `give_up_at = clock_timestamp(), lease_until = null, sending = false, first_sent_at = null`, 0, false, "parked: not settled within its age limit"},
		{"age, only asked", `give_up_at = clock_timestamp(), lease_until = clock_timestamp() - interval '1 s', sending = false`, 1, false, "parked: not settled within its age limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := b.performing(t, c.name)
			b.set(t, f.TaskID, c.row)
			got := b.expect(t, idemstore.Spent, claimOf(c.name))
			row := b.task(t, f.TaskID)
			switch {
			case got.Task.Status != idemstore.NeedsReview, row.Status != idemstore.NeedsReview, row.LeaseUntil != nil, row.Sending:
				t.Errorf("not parked: %+v", row)
			case row.Attempt != 2, row.Token == f.Token:
				t.Errorf("the attempt that died could still write: %+v", row.Fence)
			case row.Failures != c.failures, row.Unsure != c.unsure:
				t.Errorf("failures %d, unsure %v", row.Failures, row.Unsure)
			}
			if reasons := b.reasons(t, f.TaskID); !slices.Equal(reasons, []string{c.why}) {
				t.Errorf("audit: %q, want %q", reasons, c.why)
			}
		})
	}
}

// A person finds one line per message, and not a thousand.
func TestParkedTaskNotesEachMessageOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := prepareFor(t, b, idemstore.Parked)
	deliver := func(sequence int) {
		c := claimOf("order_parked")
		c.Origin.Sequence = uint64(sequence)
		b.expect(t, idemstore.Parked, c)
	}
	lines := len(b.reasons(t, id))
	for range 3 {
		deliver(7)
	}
	if n := len(b.reasons(t, id)) - lines; n != 1 {
		t.Errorf("%d lines for one message", n)
	}
	for i := range 30 {
		deliver(100 + i)
	}
	if n := len(b.reasons(t, id)) - lines; n != 20 {
		t.Errorf("%d lines for 31 messages, want 20", n)
	}
	if row := b.task(t, id); row.Duplicates != 33 || row.Attempt != 1 {
		t.Errorf("duplicates %d, attempts %d", row.Duplicates, row.Attempt)
	}
}

func TestClaimRefusedByTheTableIsAnErrorWithoutRepetition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, change := range map[string]func(*idemstore.Claim){
		"key too long":       func(c *idemstore.Claim) { c.Key = strings.Repeat("x", 513) },
		"no key":             func(c *idemstore.Claim) { c.Key = "" },
		"NUL in the key":     func(c *idemstore.Claim) { c.Key = "a\x00b" },
		"bad UTF-8":          func(c *idemstore.Claim) { c.Key = "a\xffb" },
		"lease over one day": func(c *idemstore.Claim) { c.Lease = 25 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			c := claimOf("order_" + name)
			change(&c)
			if got, err := b.Claim(t.Context(), c); err == nil {
				t.Errorf("found %q", got[0].Found)
			}
		})
	}
	if n := query[int](t, b.pool, `select count(*) from settle.tasks`); n != 0 {
		t.Errorf("%d rows left behind", n)
	}
}
