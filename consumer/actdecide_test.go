package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// actTable is the table of operator's acts. sent: the current attempt may send, or a first send is noted; touched adds
// unsure and a known id; booked: done at the provider with its whole result here.
const actTable = `
	act        status       lease                released touched known booked archived lookup force permitted | deed
	note       -            -                    -        -       -     -      -        -      -     -         | note
	-          finished     -                    -        -       -     -      -        -      -     -         | no: finished
	retry      failed       -                    -        -       -     -      no       -      -     -         | ask first
	retry      failed       -                    -        -       -     -      yes      -      -     -         | no: archived
	-          failed       -                    -        -       -     -      -        -      -     -         | no: failed
	resolve    started      live                 -        -       -     -      -        -      yes   -         | close
	-          started      live                 -        -       -     -      -        -      -     -         | no: live
	cancel     started      -                    yes      no      -     -      -        -      -     -         | close
	cancel     started      -                    yes      yes     -     -      -        -      -     -         | no: touched
	-          started      -                    yes      -       -     -      -        -      -     -         | no: released
	resolve    -            -                    -        -       -     -      -        -      -     -         | close
	ask        -            -                    -        -       -     -      -        yes    -     -         | ask
	ask        -            -                    -        -       -     -      -        no     -     -         | no: no look-up
	-          started      -                    -        -       -     -      -        -      -     -         | no: expired
	send-again unknown      -                    -        -       -     -      -        -      -     yes       | no: permitted
	send-again -            -                    -        -       -     yes    -        -      -     -         | no: booked
	send-again -            -                    -        -       yes   -      -        -      -     -         | no: known id
	send-again -            -                    -        no      -     -      -        -      -     -         | no: untouched
	send-again -            -                    -        yes     -     -      -        no     -     -         | no: no look-up
	send-again -            -                    -        yes     -     -      -        yes    -     -         | ask first
	-          unknown      -                    -        -       -     -      -        -      -     -         | no: unknown
	retry      needs_review -                    -        -       -     yes    -        -      -     -         | book
	retry      needs_review -                    -        yes     -     -      -        -      -     -         | ask first
	retry      needs_review -                    -        no      -     -      -        -      -     -         | release
	cancel     needs_review -                    -        no      -     -      -        -      -     -         | close
	supersede  needs_review -                    -        no      -     -      -        -      -     -         | replace
	-          needs_review -                    -        yes     -     -      -        -      -     -         | no: touched
`

var (
	leaseNames = map[leaseState]string{leaseNone: "none", leaseLive: "live", leaseExpired: "expired", leaseAbsurd: "absurd"}
	deedNames  = map[deed]string{deedAsk: "ask", deedBook: "book", deedAskFirst: "ask first", deedRelease: "release",
		deedClose: "close", deedReplace: "replace", deedNote: "note"}
	whyNames = map[whyNot]string{whyFinished: "finished", whyFailed: "failed", whyLive: "live", whyReleased: "released",
		whyExpired: "expired", whyUnknown: "unknown", whyTouched: "touched", whyUntouched: "untouched", whyKnownID: "known id",
		whyBookable: "booked", whyArchived: "archived", whyNoLookup: "no look-up", whyPermitted: "permitted"}
	allCauses = []idemstore.Cause{"", idemstore.CauseBudget, idemstore.CauseAge, idemstore.CauseConflict, idemstore.CauseContradictory,
		idemstore.CauseTwoEffects, idemstore.CauseNotBooked, idemstore.CauseRefusalUnbooked, idemstore.CauseSkipUnbooked, idemstore.CauseAbsent,
		idemstore.CauseVanished, idemstore.CauseNoLookup, idemstore.CauseReplayedError}
)

// allActFacts calls f for every combination that a row, with or without its constraints, and a kind can give.
func allActFacts(f func(actFacts)) {
	for bits := range 1 << 9 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		for _, status := range allStatuses {
			for lease := range leaseNames {
				for _, cause := range allCauses {
					f(actFacts{status: status, lease: lease, cause: cause, sending: bit(0), unsure: bit(1), firstSent: bit(2),
						knownID: bit(3), stored: bit(4), archived: bit(5), lookup: bit(6), force: bit(7), permitted: bit(8)})
				}
			}
		}
	}
}

func TestActTable(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, actTable)
	seen := map[[12]any]bool{} // combinations that differ in nothing that the table looks at
	allActFacts(func(f actFacts) {
		for _, a := range operatorActs {
			d, why := decideAct(f, a)
			got := deedNames[d]
			if d == deedNone {
				got = "no: " + words(t, whyNames, why)
			} else if why != whyNone {
				t.Fatalf("%s %+v: done, and why not: %s", a, f, why)
			}
			booked := f.cause == idemstore.CauseNotBooked && f.stored
			touched := f.unsure || f.firstSent || f.knownID
			key := [12]any{a, f.status, f.lease, f.released(), touched, f.knownID, booked, f.archived, f.lookup, f.force, f.permitted, got}
			if seen[key] {
				continue
			}
			seen[key] = true
			tab.check(t, facts{"act": string(a), "status": string(f.status), "lease": leaseNames[f.lease],
				"released": word(f.released()), "touched": word(touched), "known": word(f.knownID), "booked": word(booked),
				"archived": word(f.archived), "lookup": word(f.lookup), "force": word(f.force), "permitted": word(f.permitted)}, got)
		}
	})
	tab.complete(t)
}

// Every reason and every effect is a sentence of its own.
func TestActWords(t *testing.T) {
	t.Parallel()
	said := map[string]bool{}
	for why := range whyNames {
		said[why.String()] = true
	}
	if len(said) != len(whyNames) || said[""] {
		t.Errorf("%d sentences for %d reasons: %v", len(said), len(whyNames), said)
	}
	for _, o := range (actFacts{status: idemstore.NeedsReview, unsure: true, lookup: true}).options() {
		if o.Effect == "" {
			t.Errorf("%s: nothing said", o.Act)
		}
	}
}

func TestOptionsAreWhatIsPossible(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    actFacts
		want []Act
	}{
		"at work":        {actFacts{status: idemstore.Started, lease: leaseLive, sending: true}, []Act{ActNote}},
		"dead":           {actFacts{status: idemstore.Started, lease: leaseExpired, sending: true}, []Act{ActAsk, ActResolve, ActNote}},
		"released":       {actFacts{status: idemstore.Started}, []Act{ActCancel, ActNote}},
		"unknown":        {actFacts{status: idemstore.Unknown, unsure: true}, []Act{ActAsk, ActSendAgain, ActResolve, ActNote}},
		"permitted":      {actFacts{status: idemstore.Unknown, unsure: true, permitted: true}, []Act{ActAsk, ActResolve, ActNote}},
		"review, unsure": {actFacts{status: idemstore.NeedsReview, unsure: true}, []Act{ActAsk, ActRetry, ActSendAgain, ActResolve, ActNote}},
		"review, unsent": {actFacts{status: idemstore.NeedsReview}, []Act{ActAsk, ActRetry, ActSupersede, ActCancel, ActResolve, ActNote}},
		"failed":         {actFacts{status: idemstore.Failed}, []Act{ActRetry, ActNote}},
		"finished":       {actFacts{status: idemstore.Finished}, []Act{ActNote}},
	} {
		c.f.lookup = true
		var got []Act
		for _, o := range c.f.options() {
			got = append(got, o.Act)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// actRow is one row, with everything that an act's statement looks at.
type actRow struct {
	status             idemstore.Status
	lease              leaseState
	sending, unsure    bool
	firstSent          bool
	external, evidence bool
	cause              idemstore.Cause
	result, altered    bool
	archived           bool
	permitted          bool
}

// actRows are the rows in which a statement could see something else than the decision. A lease is on started rows only.
func actRows() (out []actRow) {
	for _, status := range allStatuses {
		leases := []leaseState{leaseNone}
		if status == idemstore.Started {
			leases = []leaseState{leaseNone, leaseLive, leaseExpired, leaseAbsurd}
		}
		for _, lease := range leases {
			for bits := range 1 << 5 {
				bit := func(n int) bool { return bits>>n&1 == 1 }
				base := actRow{status: status, lease: lease, sending: bit(0), unsure: bit(1), firstSent: bit(2), external: bit(3), evidence: bit(4)}
				out = append(out, base)
				if status == idemstore.Unknown || status == idemstore.NeedsReview {
					base.permitted = true
					out = append(out, base)
					base.permitted = false
				}
				for n := range 4 {
					r := base
					r.cause, r.result, r.altered = idemstore.CauseNotBooked, n > 0, n > 1
					if r.archived = n == 3 && status.Final(); r.archived {
						r.cause = idemstore.CauseAbsent
					}
					if bits < 2 || bits == 2 || bits == 4 || bits == 8 || bits == 16 { // these do not depend on each other
						out = append(out, r)
					}
				}
			}
		}
	}
	return out
}

// TestActStatements runs every act on every row, and compares what the statement does with what the core decides.
func TestActStatements(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	dropChecks(t, pool) // rows that the constraints exclude are decided, too
	store := idemstore.New(pool, time.Minute)
	rows := actRows()
	acts := []struct {
		act   Act
		force bool
		do    func(idemstore.Task) (idemstore.Task, error)
	}{
		{ActRetry, false, func(x idemstore.Task) (idemstore.Task, error) {
			return store.Retry(t.Context(), x.Shown(), idemstore.By{}, idemstore.RetryTo{MaxAge: time.Hour})
		}},
		{ActSendAgain, false, func(x idemstore.Task) (idemstore.Task, error) {
			return store.Retry(t.Context(), x.Shown(), idemstore.By{}, idemstore.RetryTo{MaxAge: time.Hour, ResendOnce: true})
		}},
		{ActResolve, false, func(x idemstore.Task) (idemstore.Task, error) {
			return store.Resolve(t.Context(), x.Shown(), idemstore.By{}, idemstore.Resolution{To: idemstore.Finished})
		}},
		{ActResolve, true, func(x idemstore.Task) (idemstore.Task, error) {
			return store.Resolve(t.Context(), x.Shown(), idemstore.By{}, idemstore.Resolution{To: idemstore.Failed, Force: true})
		}},
		{ActCancel, false, func(x idemstore.Task) (idemstore.Task, error) {
			return store.Resolve(t.Context(), x.Shown(), idemstore.By{}, idemstore.Resolution{To: idemstore.Failed, Unsent: true})
		}},
		{ActSupersede, false, func(x idemstore.Task) (idemstore.Task, error) {
			return store.Supersede(t.Context(), x.Shown(), idemstore.By{}, idemstore.Another{Payload: []byte(mine), Hash: []byte(mine), HashAlgorithm: mine})
		}},
	}
	for _, a := range acts {
		if _, err := pool.Exec(t.Context(), `truncate settle.tasks, settle.task_refs, settle.task_events cascade`); err != nil {
			t.Fatal(err)
		}
		writeActRows(t, rows, pool)
		var presses sync.WaitGroup
		for part := range slices.Chunk(readRows(t, pool), len(rows)/4+1) {
			presses.Go(func() {
				for _, task := range part {
					f := actFactsOf(task, true, a.force)
					want, why := decideAct(f, a.act)
					if want == deedBook { // this one closes the task, and a retry must leave it alone
						want = deedNone
					}
					after, err := a.do(task)
					if got := deedOf(a.act, after); (err != nil || got != want) && (want != deedNone || !errors.Is(err, idemstore.ErrChanged)) {
						t.Errorf("%s of %+v: the statement says %q (%v), the core %q (%s)", a.act, f, deedNames[got], err, deedNames[want], why)
						return
					}
				}
			})
		}
		presses.Wait()
	}
}

// deedOf reads off a row what an act came to.
func deedOf(a Act, after idemstore.Task) deed {
	switch {
	case after.Status.Final():
		return deedClose
	case after.Status == idemstore.Unknown && after.Unsure:
		return deedAskFirst
	case after.Status == idemstore.Started && a == ActSupersede && string(after.Payload) == mine:
		return deedReplace
	case after.Status == idemstore.Started && !after.Unsure && !after.Sending && after.LeaseUntil == nil:
		return deedRelease
	}
	return deedNone
}

func writeActRows(t *testing.T, rows []actRow, pool *pgxpool.Pool) {
	t.Helper()
	now := time.Now()
	text := func(yes bool, s string) *string {
		if !yes {
			return nil
		}
		return &s
	}
	moment := func(yes bool) *time.Time {
		if !yes {
			return nil
		}
		return ptr(now.Add(-2 * time.Hour))
	}
	leases := map[leaseState]*time.Time{leaseLive: ptr(now.Add(time.Hour)), leaseExpired: ptr(now.Add(-time.Minute)), leaseAbsurd: ptr(now.AddDate(100, 0, 0))}
	columns := strings.Fields(`kind key status attempts token lease_until sending unsure first_sent_at external_id evidence_id
		review_cause result result_altered archived_at give_up_at payload payload_hash hash_algorithm finished_at resend_once`)
	src := pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := rows[i]
		return []any{"test.kind", fmt.Sprintf("key_%06d", i), string(r.status), 3, oldToken, leases[r.lease], r.sending, r.unsure,
			moment(r.firstSent), text(r.external, "x"), text(r.evidence, "x"), text(r.cause != "", string(r.cause)), text(r.result, "{}"), r.altered,
			moment(r.archived), now, []byte(other), []byte(other), other, moment(r.status.Final()), r.permitted}, nil
	})
	if _, err := pool.CopyFrom(t.Context(), pgx.Identifier{"settle", "tasks"}, columns, src); err != nil {
		t.Fatal(err)
	}
}
