package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// TestClaimTable runs every combination of what a claim can find through the claim's statement and through the
// decision core, and compares the line that each picks and the row that the statement leaves.
func TestClaimTable(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} { // a claim of a key that is known to be taken goes another way first
		t.Run(fmt.Sprintf("taken: %v", taken), func(t *testing.T) {
			t.Parallel()
			throughClaimTable(t, taken)
		})
	}
}

func throughClaimTable(t *testing.T, taken bool) {
	t.Helper()
	ctx := t.Context()
	pool := devtest.Pool(t)
	dropChecks(t, pool) // rows that the constraints exclude are decided, too
	combinations := allClaimFacts()
	writeRows(t, pool, combinations)

	store := idemstore.New(pool, time.Minute)
	const group = 1024
	for from := 0; from < len(combinations); from += group {
		part := combinations[from:min(from+group, len(combinations))]
		claims := make([]idemstore.Claim, len(part))
		for i, f := range part {
			claims[i] = claimFor(from+i, f)
			claims[i].Taken = taken
		}
		found, err := store.Claim(ctx, claims...)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range part {
			if want := decideClaim(f); found[i].Found != want {
				t.Fatalf("%+v: the statement says %q, the core %q", f, found[i].Found, want)
			}
		}
	}
	after := readRows(t, pool)
	if len(after) != len(combinations) {
		t.Fatalf("%d rows after the claims, want %d", len(after), len(combinations))
	}
	for i, f := range combinations {
		checkAfter(t, f, after[i])
	}
}

func TestClaimOfNewKey(t *testing.T) {
	t.Parallel()
	store := idemstore.New(devtest.Pool(t), time.Minute)
	found, err := store.Claim(t.Context(), claimFor(1, claimFacts{knownAlgorithm: true, sameHash: true, sameBytes: true, sameMessage: true}))
	if err != nil {
		t.Fatal(err)
	}
	if want := decideClaim(claimFacts{}); found[0].Found != want || found[0].Task.Attempt != 1 {
		t.Fatalf("found %q attempt %d, want %q attempt 1", found[0].Found, found[0].Task.Attempt, want)
	}
}

func TestClaimOfLockedRow(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := devtest.Pool(t)
	facts := claimFacts{exists: true, knownAlgorithm: true, sameHash: true, sameBytes: true, sameMessage: true,
		status: idemstore.Finished, maxFailures: 5}
	writeRows(t, pool, []claimFacts{facts})
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, `select from settle.tasks for update`); err != nil {
		t.Fatal(err)
	}
	found, err := idemstore.New(pool, time.Minute).Claim(ctx, claimFor(0, facts))
	if err != nil {
		t.Fatal(err)
	}
	facts.locked = true
	if want := decideClaim(facts); found[0].Found != want {
		t.Fatalf("found %q, want %q", found[0].Found, want)
	}
}

// allClaimFacts is every status × lease × content × budget × what may have been sent.
func allClaimFacts() []claimFacts {
	const maxFailures = 5
	var out []claimFacts
	statuses := []idemstore.Status{idemstore.Started, idemstore.Unknown, idemstore.Finished, idemstore.Failed, idemstore.NeedsReview}
	for bits := range 1 << 10 {
		if bits&contentBits != 0 && bits>>9 == 1 {
			continue // a recovery brings no content: whatever the row has differs from it
		}
		bit := func(n int) bool { return bits>>n&1 == 1 }
		for _, status := range statuses {
			for _, lease := range []leaseState{leaseNone, leaseLive, leaseExpired, leaseAbsurd} {
				for _, failures := range []int{0, maxFailures - 1, maxFailures} {
					out = append(out, claimFacts{exists: true, status: status, lease: lease, failures: failures, maxFailures: maxFailures,
						knownAlgorithm: bit(0), sameHash: bit(1), sameBytes: bit(2), sameMessage: bit(3), early: bit(4), tooOld: bit(5),
						sending: bit(6), unsure: bit(7), firstSent: bit(8), recovery: bit(9)})
				}
			}
		}
	}
	return out
}

const (
	contentBits = 1<<4 - 1 // of allClaimFacts

	testStream = "JOBS"
	mine       = "mine"
	other      = "other"
)

func pick(same bool) string {
	if same {
		return mine
	}
	return other
}

func claimFor(i int, f claimFacts) idemstore.Claim {
	c := idemstore.Claim{Kind: "test.kind", Key: fmt.Sprintf("key_%06d", i), Token: uuid.New(),
		Provider: "p", ProviderKey: "pk", Recovery: f.recovery,
		Lease: time.Minute, MaxAge: time.Hour, MaxFailures: or(f.maxFailures, 5), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if !f.recovery {
		c.Payload, c.Hash, c.HashAlgorithm = []byte(mine), []byte(mine), mine
		c.Origin = idemstore.Origin{Stream: testStream, Sequence: 7, Stored: time.Unix(1_700_000_000, 0)}
	}
	return c
}

// oldToken is the claim that the rows were left by.
var oldToken = uuid.MustParse("11111111-1111-4111-8111-111111111111")

func writeRows(t *testing.T, pool *pgxpool.Pool, facts []claimFacts) {
	t.Helper()
	columns := []string{"kind", "key", "status", "attempts", "token", "lease_until", "sending", "unsure", "first_sent_at",
		"failures", "next_attempt_at", "give_up_at", "payload", "payload_hash", "hash_algorithm", "stream", "stream_sequence",
		"stored_at", "finished_at"}
	var now time.Time
	if err := pool.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	ahead := func(yes bool) time.Time {
		if yes {
			return now.Add(time.Hour)
		}
		return now.Add(-time.Hour)
	}
	leases := map[leaseState]*time.Time{leaseLive: ptr(now.Add(time.Hour)), leaseExpired: ptr(now.Add(-time.Minute)),
		leaseAbsurd: ptr(now.AddDate(100, 0, 0))}
	rows := pgx.CopyFromSlice(len(facts), func(i int) ([]any, error) {
		f := facts[i]
		var first, finished *time.Time
		if f.firstSent {
			first = ptr(now.Add(-2 * time.Hour))
		}
		if f.status.Final() {
			finished = &now
		}
		sequence := 8
		if f.sameMessage {
			sequence = 7
		}
		return []any{"test.kind", fmt.Sprintf("key_%06d", i), string(f.status), 3, oldToken, leases[f.lease], f.sending, f.unsure, first,
			f.failures, ahead(f.early), ahead(!f.tooOld), []byte(pick(f.sameBytes)), []byte(pick(f.sameHash)), pick(f.knownAlgorithm),
			testStream, sequence, time.Unix(1_700_000_000, 0), finished}, nil
	})
	if _, err := pool.CopyFrom(t.Context(), pgx.Identifier{"settle", "tasks"}, columns, rows); err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

func dropChecks(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `do $$ declare c text; begin
		for c in select conname from pg_constraint where conrelid = 'settle.tasks'::regclass and contype = 'c' loop
			execute format('alter table settle.tasks drop constraint %I', c);
		end loop; end $$`)
	if err != nil {
		t.Fatal(err)
	}
}

func readRows(t *testing.T, pool *pgxpool.Pool) []idemstore.Task {
	t.Helper()
	var out []idemstore.Task
	store := idemstore.New(pool, time.Minute)
	for after := int64(0); ; after = out[len(out)-1].TaskID {
		page, err := store.List(t.Context(), idemstore.Filter{AfterID: after, Limit: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return out
		}
		out = append(out, page...)
	}
}

// checkAfter compares a row after its claim with what the claim table says it becomes.
func checkAfter(t *testing.T, f claimFacts, row idemstore.Task) {
	t.Helper()
	line := decideClaim(f)
	expired := f.lease == leaseExpired
	takes := line == idemstore.Spent || line == idemstore.Ask || line == idemstore.Perform
	want := idemstore.Task{Fence: idemstore.Fence{Attempt: 3}, Status: f.status, Failures: f.failures, Unsure: f.unsure, Sending: f.sending}
	if takes {
		want.Attempt = 4
		want.Status = idemstore.Started
		want.Sending = line == idemstore.Perform
		want.Unsure = f.unsure || line == idemstore.Ask
		if expired {
			want.Failures++
		}
	}
	if line == idemstore.Spent {
		want.Status = idemstore.NeedsReview
		want.Unsure = f.unsure || f.sending || f.status == idemstore.Unknown
	}
	got := idemstore.Task{Fence: idemstore.Fence{Attempt: row.Attempt}, Status: row.Status, Failures: row.Failures,
		Unsure: row.Unsure, Sending: row.Sending}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%+v, line %q: the row is %+v, want %+v", f, line, got, want)
	}
	switch {
	case takes && row.Token == oldToken, !takes && row.Token != oldToken:
		t.Fatalf("%+v, line %q: wrong token", f, line)
	case takes && f.sending && row.LastSentBy == nil:
		t.Fatalf("%+v, line %q: a sending attempt was taken over and last_sent_by is not set", f, line)
	case takes && !f.sending && row.LastSentBy != nil:
		t.Fatalf("%+v, line %q: last_sent_by moved although the attempt only asked", f, line)
	case line == idemstore.Perform && row.FirstSentAt == nil:
		t.Fatalf("%+v: performs without first_sent_at", f)
	case (line == idemstore.Ask || line == idemstore.Perform) && row.LeaseUntil == nil:
		t.Fatalf("%+v, line %q: no lease", f, line)
	case line == idemstore.Spent && row.LeaseUntil != nil:
		t.Fatalf("%+v: parked with a lease", f)
	case (!f.recovery && (line == idemstore.Final || line == idemstore.Parked)) != (row.Duplicates == 1):
		t.Fatalf("%+v, line %q: duplicates %d", f, line, row.Duplicates)
	}
}
