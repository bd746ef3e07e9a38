package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// The guard table. "applied" and "version" are the event's own version, as it stands to the newest one that was applied
// and to the holder's; "under-way" is a holder whose request may be, "parked" one that a person decides about.
const guardTable = `
applied own holder    version | found
older   -   -         -       | stale
same    no  -         -       | stale
-       -   under-way -       | held
unclear -   -         -       | unclear
-       -   parked    newer   | taken
-       -   parked    -       | held
-       -   -         -       | taken
`

var orderNames = map[order]string{orderNone: "none", orderNewer: "newer", orderSame: "same", orderOlder: "older", orderUnclear: "unclear"}

func TestDecideGuard(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, guardTable)
	for _, f := range allGuardFacts() {
		tab.check(t, facts{"applied": words(t, orderNames, f.applied), "own": word(f.own), "holder": f.holderInWords(),
			"version": words(t, orderNames, f.holder)}, string(decideGuard(f)))
	}
	tab.complete(t)
}

// holderInWords is what is known of the holder, from its row.
func (f guardFacts) holderInWords() string {
	row := fmt.Sprintf("%s leased=%s unsure=%s", f.status, word(f.leased), word(f.unsure))
	switch {
	case !f.held:
		return "none"
	case slices.Contains([]string{"started leased=yes unsure=no", "started leased=yes unsure=yes", "started leased=no unsure=yes"}, row),
		f.status == idemstore.Unknown:
		return "under-way"
	case f.status == idemstore.NeedsReview && f.unsure:
		return "parked"
	}
	return "over" // final, released, or parked and known not applied
}

// allGuardFacts is every state of an entity. A holder that is nobody, or the task itself, comes as not held.
func allGuardFacts() (out []guardFacts) {
	for applied := range orderNames {
		for _, own := range either {
			for holder := range orderNames {
				out = append(out, guardFacts{applied: applied, own: own, holder: holder})
				for _, status := range allStatuses {
					for bits := range 4 {
						out = append(out, guardFacts{applied: applied, own: own, held: true, holder: holder, status: status,
							leased: bits&1 != 0, unsure: bits&2 != 0})
					}
				}
			}
		}
	}
	return out
}

// TestGuardTable runs every state of an entity through the guard's statement and through the decision core, once with
// numbers, once with times, and compares what each says and what the statement leaves.
func TestGuardTable(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	dropChecks(t, pool) // rows that the constraints exclude are decided, too
	for _, scale := range scales {
		all := slices.DeleteFunc(allGuardFacts(), scale.cannotBe)
		writeEntities(t, pool, scale, all)
		guards := make([]idemstore.Guard, len(all))
		for i := range all {
			guards[i] = idemstore.Guard{TaskID: guardTask(i),
				Entity: idemstore.Entity{Kind: scale.name, ID: entityName(i), Version: scale.versions[orderSame]}}
		}
		found, err := idemstore.New(pool, time.Minute).Guard(t.Context(), guards...)
		if err != nil {
			t.Fatal(err)
		}
		holders := readHolders(t, pool, scale.name)
		for i, f := range all {
			if want := decideGuard(f); found[i].Found != want {
				t.Fatalf("%s: %+v: the statement says %q, the core %q", scale.name, f, found[i].Found, want)
			}
			if mine := holders[i] == guardTask(i); mine != (found[i].Found == idemstore.GuardTaken) && f.held {
				t.Fatalf("%s: %+v: %s, and the holder is task %d", scale.name, f, found[i].Found, holders[i])
			}
		}
	}
}

// scale is one way in which versions are compared.
type scale struct {
	name     string
	versions map[order]idemstore.Version // by how the event, which has the version of orderSame, stands to them
}

var scales = []scale{
	{"numbers", map[order]idemstore.Version{orderNewer: {Number: ptr(int64(6))}, orderSame: {Number: ptr(int64(7))},
		orderOlder: {Number: ptr(int64(8))}, orderUnclear: {Time: "2026-11-29T10:00:00"}}},
	{"times", map[order]idemstore.Version{orderNewer: {Time: "2026-11-29T10:00:00"}, orderSame: {Time: "2026-11-29T10:00:00.00000000001"},
		orderOlder: {Time: "2026-11-29T10:00:00.1"}, orderUnclear: {Number: ptr(int64(7))}}},
	{"numbers before times", map[order]idemstore.Version{orderNewer: {Number: ptr(int64(-7)), Time: "2026-11-29T11:00:00"},
		orderSame: {Number: ptr(int64(7)), Time: "2026-11-29T10:00:00"}, orderOlder: {Number: ptr(int64(8)), Time: "2026-11-29T09:00:00"}}},
}

// The tasks of entity i: the one that asks, and the one that holds.
func guardTask(i int) int64    { return int64(2*i + 1) }
func holderTask(i int) int64   { return int64(2*i + 2) }
func entityName(i int) string  { return fmt.Sprintf("entity_%05d", i) }
func taskKeyOf(i int64) string { return fmt.Sprintf("key_%05d", i) }

func writeEntities(t *testing.T, pool *pgxpool.Pool, s scale, all []guardFacts) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `truncate settle.tasks cascade`); err != nil {
		t.Fatal(err)
	}
	tasks := pgx.CopyFromSlice(len(all), func(i int) ([]any, error) {
		f := all[i]
		var lease *time.Time
		if f.leased {
			lease = ptr(time.Unix(1_700_000_000, 0)) // whether it has run out does not matter
		}
		return []any{holderTask(i), s.name, taskKeyOf(holderTask(i)), or(string(f.status), "started"), oldToken, lease, false, f.unsure,
			time.Now(), []byte{}, []byte{}, "v1"}, nil
	})
	copyInto(t, pool, "tasks", tasks, "id", "kind", "key", "status", "token", "lease_until", "sending", "unsure", "give_up_at", "payload",
		"payload_hash", "hash_algorithm")
	entities := pgx.CopyFromSlice(len(all), func(i int) ([]any, error) {
		f := all[i]
		var by, holder *int64
		if f.own {
			by = ptr(guardTask(i))
		}
		switch {
		case f.held:
			holder = ptr(holderTask(i))
		case i%3 == 0: // not held, in one of three ways: by itself, by a task that was purged, by nobody
			holder = ptr(guardTask(i))
		case i%3 == 1:
			holder = ptr(int64(-1))
		}
		applied, held := s.versions[f.applied], s.versions[f.holder]
		return []any{s.name, entityName(i), applied.Number, textOrNull(applied.Time), by, holder, held.Number, textOrNull(held.Time)}, nil
	})
	copyInto(t, pool, "entities", entities, "kind", "entity", "version_number", "version_time", "applied_by", "holder", "holder_number", "holder_time")
}

// cannotBe reports whether an event with both parts would have to be unclear.
func (s scale) cannotBe(f guardFacts) bool {
	_, unclear := s.versions[orderUnclear]
	return !unclear && (f.applied == orderUnclear || f.holder == orderUnclear)
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func copyInto(t *testing.T, pool *pgxpool.Pool, table string, rows pgx.CopyFromSource, columns ...string) {
	t.Helper()
	if _, err := pool.CopyFrom(t.Context(), pgx.Identifier{"settle", table}, columns, rows); err != nil {
		t.Fatal(err)
	}
}

func readHolders(t *testing.T, pool *pgxpool.Pool, kind string) []int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select coalesce(holder, 0) from settle.entities where kind = $1 order by entity`, kind)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What a guard means before a first send, and before a resend.
const turnTable = `
found   asked lookup verdict known settled seen | decision
taken   -     -      -       -     -       -    | send
held    -     -      -       -     -       -    | give back due
locked  -     -      -       -     -       -    | give back short
unclear -     -      -       -     -       -    | save needs_review conflict alert
stale   no    -      -       -     -       -    | save finished
stale   yes   no     -       -     -       -    | save needs_review no_lookup alert
stale   yes   yes    absent  yes   -       -    | save needs_review vanished alert
stale   yes   yes    absent  no    no      -    | save unknown attempts settled
stale   yes   yes    absent  no    yes     no   | save unknown reading absent-now
stale   yes   yes    absent  no    yes     yes  | save finished
`

func TestDecideTurn(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, turnTable)
	for _, found := range []idemstore.GuardFound{idemstore.GuardTaken, idemstore.GuardHeld, idemstore.GuardLocked, idemstore.GuardUnclear,
		idemstore.GuardStale} {
		tab.check(t, facts{"found": string(found), "asked": "no", "lookup": "", "verdict": "", "known": "", "settled": "", "seen": ""},
			decideTurn(found, nil).inWords(t))
		for f := range allAskFacts {
			if decideAsk(f).act != sendIt {
				continue // the guard is not asked
			}
			d := decideTurn(found, &f)
			tab.check(t, facts{"found": string(found), "asked": "yes", "lookup": word(f.lookup), "verdict": words(t, verdictNames, f.verdict),
				"known": word(f.knownID), "settled": word(f.settled), "seen": word(f.absentSeen)}, d.inWords(t))
			if d.act == saveIt && d.why == "" {
				t.Errorf("%s, %+v: no reason", found, f)
			}
		}
	}
}
