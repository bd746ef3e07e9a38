package consumer

import (
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// The claim table. expired also counts the failure of whoever died with the lease.
const claimTable = `
exists recovery locked algorithm hash bytes message status           lease   early spent sending unsure first-sent | found        settle
no     no       -      -         -    -     -       -                -       -     -     -       -      -          | inserted     attempt
no     yes      -      -         -    -     -       -                -       -     -     -       -      -          | locked       nak short
-      -        yes    -         -    -     -       -                -       -     -     -       -      -          | locked       nak short
-      no       -      unknown   -    other -       -                -       -     -     -       -      -          | incomparable nak long alert
-      no       -      known     other other other  -                -       -     -     -       -      -          | conflicting  term alert
-      -        -      -         -    -     -       finished/failed  -       -     -     -       -      -          | final        ack
-      -        -      -         -    -     -       needs_review     -       -     -     -       -      -          | parked       term
-      -        -      -         -    -     -       started/unknown  live    -     -     -       -      -          | busy         nak rest
-      -        -      -         -    -     -       started/unknown  -       yes   -     -       -      -          | not due      nak due
-      -        -      -         -    -     -       started/unknown  -       -     yes   -       -      -          | spent        term alert
-      -        -      -         -    -     -       started/unknown  expired -     -     yes     -      -          | ask          attempt
-      -        -      -         -    -     -       started/unknown  expired -     -     no      yes    -          | ask          attempt
-      -        -      -         -    -     -       started/unknown  expired -     -     no      no     -          | perform      attempt
-      -        -      -         -    -     -       unknown          -       -     -     -       -      -          | ask          attempt
-      -        -      -         -    -     -       started          none    -     -     no      no     no         | perform      attempt
-      -        -      -         -    -     -       started          -       -     -     -       -      -          | ask          attempt
`

func TestDecideClaim(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, claimTable)
	all := append(allClaimFacts(), claimFacts{}, claimFacts{recovery: true})
	for _, f := range all {
		for _, f.locked = range either {
			got := decideClaim(f)
			tab.check(t, f.inWords(t), string(got)+" "+answerTo(got).inWords(t, got))
			if t.Failed() {
				return
			}
		}
	}
	tab.complete(t)
}

func (f claimFacts) inWords(t *testing.T) facts {
	t.Helper()
	same := func(b bool) string {
		if b {
			return "same"
		}
		return "other"
	}
	algorithm := "unknown"
	if f.knownAlgorithm {
		algorithm = "known"
	}
	died := 0
	if f.lease == leaseExpired {
		died = 1
	}
	status := string(f.status)
	if status == "" {
		status = "none"
	}
	leases := map[leaseState]string{leaseNone: "none", leaseLive: "live", leaseExpired: "expired", leaseAbsurd: "absurd"}
	return facts{"exists": word(f.exists), "recovery": word(f.recovery), "locked": word(f.exists && f.locked), "algorithm": algorithm,
		"hash": same(f.sameHash), "bytes": same(f.sameBytes), "message": same(f.sameMessage), "status": status, "lease": words(t, leases, f.lease),
		"early": word(f.early), "spent": word(f.tooOld || f.failures+died >= f.maxFailures), "sending": word(f.sending),
		"unsure": word(f.unsure), "first-sent": word(f.firstSent)}
}

func (a answer) inWords(t *testing.T, f idemstore.Found) string {
	t.Helper()
	if f == idemstore.Inserted || f == idemstore.Ask || f == idemstore.Perform {
		if a != (answer{}) {
			t.Errorf("%s gives an attempt and says %v to the broker", f, a)
		}
		return "attempt"
	}
	out := a.verb.String()
	if a.wait != waitNone {
		out += " " + words(t, waitNames, a.wait)
	}
	if a.alert {
		out += " alert"
	}
	return out
}

var outcomeNames = map[outcome]string{outcomeUnknown: "unknown", outcomeDone: "done", outcomeTwoEffects: "two-effects",
	outcomeUnbooked: "unbooked", outcomeUnbookedRefusal: "unbooked-refusal", outcomeUnbookedSkip: "unbooked-skip", outcomeAccepted: "accepted", outcomeRefused: "refused", outcomeNotSent: "not-sent",
	outcomeNotLetIn: "not-let-in", outcomeDrained: "drained", outcomeCutShort: "cut-short",
	outcomeMisconfigured: "misconfigured", outcomeConflict: "conflict", outcomeInProgress: "in-progress", outcomeReplayed: "replayed", outcomeAskAgain: "ask-again", outcomeLost: "lost"}

// The perform table. "replays" is a young key at a provider that stores refusals; "asked" is a settled "absent" of this
// attempt, or a kind that cannot ask. A give-back becomes unknown in the release's own statement where an earlier
// attempt may have been applied.
const performTable = `
outcome          unsure replays sent asked | decision
done             -      -       -    -     | save finished applied
two-effects      -      -       -    -     | save needs_review two_effects alert applied
unbooked         -      -       -    -     | save needs_review not_booked alert applied
unbooked-refusal -      -       -    -     | save needs_review refusal_not_booked alert applied
unbooked-skip    -      -       -    -     | save needs_review skip_not_booked alert
accepted         -      -       -    -     | save unknown poll applied
refused          no     -       -    -     | save failed applied
refused          yes    yes     -    -     | save failed applied
refused          yes    no      -    -     | save unknown +1 failures applied settled-unkeyed
not-sent         -      -       -    -     | give back asked
not-let-in       -      -       -    -     | give back long alert
drained          -      -       -    -     | give back short
cut-short        -      -       -    -     | save unknown short applied settled-unkeyed
misconfigured    -      -       -    -     | save unknown long alert applied
unknown          -      -       -    -     | save unknown +1 asked applied settled-unkeyed
in-progress      -      -       -    -     | save unknown attempts applied settled-unkeyed
replayed         -      -       -    no    | save unknown +1 asked applied settled
replayed         -      -       -    yes   | save needs_review replayed_error alert applied
ask-again        -      -       -    -     | save unknown short applied
conflict         -      -       no   -     | save needs_review conflict alert
conflict         -      -       yes  -     | save needs_review conflict alert applied
lost             -      -       -    -     | nothing
`

func TestDecideOutcome(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, performTable)
	for f := range allOutcomeFacts {
		tab.check(t, facts{"outcome": words(t, outcomeNames, f.outcome), "unsure": word(f.unsure), "replays": word(f.replays),
			"sent": word(f.sent), "asked": word(f.asked)}, decideOutcome(f).inWords(t))
	}
	tab.complete(t)
}

func allOutcomeFacts(yield func(outcomeFacts) bool) {
	for out := range outcomeNames {
		for bits := range 1 << 4 {
			bit := func(n int) bool { return bits>>n&1 == 1 }
			if !yield(outcomeFacts{out, bit(0), bit(1), bit(2), bit(3)}) {
				return
			}
		}
	}
}

// The look-up table. "known" is an external id, or late proof of one.
const askTable = `
lookup verdict       known keyed young settled seen permitted | decision
no     -             yes   -     -     -       -    -         | save needs_review no_lookup alert
no     -             no    yes   yes   -       -    -         | send
no     -             no    -     -     -       -    -         | save needs_review no_lookup alert
yes    found         -     -     -     -       -    -         | save finished
yes    found-refused -     -     -     -       -    -         | save failed
yes    contradictory -     -     -     -       -    -         | save needs_review contradictory alert
yes    running       -     -     -     -       -    -         | save unknown poll
yes    cannot-tell   -     -     -     -       -    -         | save unknown asked
yes    absent        yes   -     -     -       -    -         | save needs_review vanished alert
yes    absent        no    yes   yes   -       -    -         | send
yes    absent        no    -     -     no      -    -         | save unknown attempts settled
yes    absent        no    -     -     yes     no   -         | save unknown reading absent-now
yes    absent        no    -     -     yes     yes  yes       | send
yes    absent        no    -     -     yes     yes  no        | save needs_review absent alert
`

var verdictNames = map[Verdict]string{CannotTell: "cannot-tell", Found: "found", FoundRefused: "found-refused",
	Absent: "absent", Running: "running", Contradictory: "contradictory"}

func TestDecideAsk(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, askTable)
	for f := range allAskFacts {
		tab.check(t, facts{"lookup": word(f.lookup), "verdict": words(t, verdictNames, f.verdict), "known": word(f.knownID),
			"keyed": word(f.keyed), "young": word(f.young), "settled": word(f.settled), "seen": word(f.absentSeen),
			"permitted": word(f.permitted)}, decideAsk(f).inWords(t))
	}
	tab.complete(t)
}

func allAskFacts(yield func(askFacts) bool) {
	for verdict := range verdictNames {
		for bits := range 1 << 7 {
			bit := func(n int) bool { return bits>>n&1 == 1 }
			if !yield(askFacts{verdict: verdict, lookup: bit(0), knownID: bit(1), keyed: bit(2), young: bit(3), settled: bit(4),
				absentSeen: bit(5), permitted: bit(6)}) {
				return
			}
		}
	}
}

var allStatuses = []idemstore.Status{idemstore.Started, idemstore.Unknown, idemstore.Finished, idemstore.Failed, idemstore.NeedsReview}

// The broker is told only what the committed row makes true.
func TestVerbOfDecision(t *testing.T) {
	t.Parallel()
	for act := range actNames {
		for _, status := range allStatuses {
			want := nak
			switch {
			case act == nothing:
				want = silent
			case status == idemstore.Finished, status == idemstore.Failed:
				want = ack
			case status == idemstore.NeedsReview:
				want = term
			}
			if got := (decision{act: act, status: status}).verb(status); got != want {
				t.Errorf("%s, row %s: %s, want %s", actNames[act], status, got, want)
			}
		}
	}
}

// What must hold whatever the facts are.
func TestOutcomeRules(t *testing.T) {
	t.Parallel()
	for f := range allOutcomeFacts {
		d := decideOutcome(f)
		name := outcomeNames[f.outcome]
		untouched := f.outcome == outcomeNotSent || f.outcome == outcomeNotLetIn || f.outcome == outcomeDrained
		switch {
		case d.act == sendIt:
			t.Errorf("%s sends again without having asked", name)
		case (d.act == giveBack) != untouched:
			t.Errorf("%s: %s", name, actNames[d.act])
		case d.status == idemstore.Unknown && !d.applied:
			t.Errorf("%s: unknown, and said to be not applied", name)
		case d.status == idemstore.NeedsReview && (!d.alert || d.why == "" || d.cause == ""):
			t.Errorf("%s: a person is called without an alert, a reason or a cause", name)
		case d.status == idemstore.Unknown && d.why == "":
			t.Errorf("%s: unknown without a reason", name)
		case d.status.Final() && d.cost != 0:
			t.Errorf("%s: a final outcome costs", name)
		case d.act == saveIt && d.status == idemstore.Started:
			t.Errorf("%s: saved as started", name)
		}
	}
}

func TestAskRules(t *testing.T) {
	t.Parallel()
	for f := range allAskFacts {
		d := decideAsk(f)
		byKey := f.keyed && f.young && (f.verdict == Absent || !f.lookup)
		byAbsence := f.lookup && f.verdict == Absent && f.settled && f.absentSeen && f.permitted
		switch {
		case d.act == giveBack || d.act == nothing:
			t.Errorf("%+v: %s", f, actNames[d.act])
		case d.act == sendIt && (f.knownID || !byKey && !byAbsence):
			t.Errorf("%+v: sends again", f)
		case d.byKey != (d.act == sendIt && byKey):
			t.Errorf("%+v: rests on the key: %t", f, d.byKey)
		case d.status == idemstore.Finished && f.verdict != Found, d.status == idemstore.Failed && f.verdict != FoundRefused:
			t.Errorf("%+v: final without an answer", f)
		case d.absentNow && (f.verdict != Absent || !f.settled):
			t.Errorf("%+v: counts as absent", f)
		case d.cost != 0 || d.applied:
			t.Errorf("%+v: asking costs, or counts as sending", f)
		case d.why == "":
			t.Errorf("%+v: no reason", f)
		}
	}
}
