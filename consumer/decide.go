package consumer

import "github.com/settlemq/settle/idemstore"

// The decision core: pure, total functions over enums. Others gather the facts and obey the answers; there is no
// clock, no logger and no SQL here. The tables in the package comment are its specification, and its tests.

// leaseState is what the database clock says of a row's lease.
type leaseState int

const (
	leaseNone    leaseState = iota // nobody holds the task
	leaseLive                      // an attempt owns it
	leaseExpired                   // an attempt died with it
	leaseAbsurd                    // more than a day ahead: no attempt can have made it, so it holds nothing
)

// claimFacts are what a claim sees of a row, under its lock.
type claimFacts struct {
	exists, locked                                   bool
	recovery                                         bool // without a message: nothing to insert or to compare
	knownAlgorithm, sameHash, sameBytes, sameMessage bool
	status                                           idemstore.Status
	lease                                            leaseState
	early, tooOld                                    bool
	failures, maxFailures                            int
	sending, unsure, firstSent                       bool
}

// decideClaim is the claim table. It is decided in the claim's own statements (idemstore: claimDecide, and
// claimAnswer for most repeats of what is over), because only there the row is locked; this is the same table in Go, and
// a test compares the two on every combination. A dry run of a recovery foresees by it.
func decideClaim(f claimFacts) idemstore.Found {
	switch {
	case !f.exists && !f.recovery:
		return idemstore.Inserted
	case !f.exists, f.locked:
		return idemstore.Locked
	case !f.recovery && !f.knownAlgorithm && !f.sameBytes:
		return idemstore.Incomparable
	case !f.recovery && f.knownAlgorithm && !f.sameHash && !f.sameMessage && !f.sameBytes:
		return idemstore.Conflicting
	case f.status.Final():
		return idemstore.Final
	case f.status == idemstore.NeedsReview:
		return idemstore.Parked
	case f.lease == leaseLive:
		return idemstore.Busy
	case f.early:
		return idemstore.NotDue
	}
	return decideTakeOver(f)
}

// decideTakeOver is for a task that is started or unknown, that nobody holds, and that is due.
func decideTakeOver(f claimFacts) idemstore.Found {
	expired := f.lease == leaseExpired
	failures := f.failures
	if expired {
		failures++ // whoever held it died with it
	}
	released := f.status == idemstore.Started && f.lease == leaseNone && !f.unsure && !f.sending && !f.firstSent
	switch {
	case f.tooOld || failures >= f.maxFailures:
		return idemstore.Spent
	case expired && (f.sending || f.unsure):
		return idemstore.Ask
	case expired || released:
		return idemstore.Perform
	}
	return idemstore.Ask
}

// verb is what is said to the broker about a delivery.
type verb int

const (
	silent verb = iota // nothing: the delivery is not ours to speak for
	ack
	nak
	term
)

// wait names a delay; see Policy.delay.
type wait int

const (
	waitNone     wait = iota
	waitShort         // about the back-off minimum
	waitFailures      // grows with the failures on the row
	waitAttempts      // grows with the attempts: asking costs no failure
	waitAsked         // what the provider asked for, at least a back-off
	waitReading       // the same growth, but no less than two readings of one thing have to be apart
	waitPoll          // the interval of a poll
	waitLong          // nothing will change soon
	waitRest          // the rest of somebody's lease
	waitDue           // until the row is due
)

// answer is how a delivery ends when the claim gave no attempt.
type answer struct {
	verb  verb
	wait  wait
	alert bool
}

// answerTo says how a delivery ends that got no attempt. Inserted, Ask and Perform got one; Taken is asked again.
func answerTo(f idemstore.Found) answer {
	switch f {
	case idemstore.Locked:
		return answer{nak, waitShort, false}
	case idemstore.Incomparable:
		return answer{nak, waitLong, true}
	case idemstore.Conflicting:
		return answer{term, waitNone, true}
	case idemstore.Final:
		return answer{ack, waitNone, false}
	case idemstore.Parked:
		return answer{term, waitNone, false}
	case idemstore.Busy:
		return answer{nak, waitRest, false}
	case idemstore.NotDue:
		return answer{nak, waitDue, false}
	case idemstore.Spent:
		return answer{term, waitNone, true}
	case idemstore.Inserted, idemstore.Ask, idemstore.Perform, idemstore.Taken:
	}
	return answer{silent, waitNone, false}
}

// act is what to do about the row.
type act int

const (
	nothing  act = iota // the row is not ours; late proof is left as evidence
	saveIt              // save decision.status
	giveBack            // release: this attempt changed nothing
	sendIt              // arm, then perform with the same key
)

// settling says whether the next attempt waits until "absent" may count.
type settling int

const (
	settleNever   settling = iota
	settleUnkeyed          // where a resend cannot rest on the key: asking earlier would decide nothing
	settleAlways
)

// decision is what to do about an outcome or a verdict.
type decision struct {
	act    act
	status idemstore.Status
	cause  idemstore.Cause // of needs_review
	cost   int             // failures
	wait   wait
	// settled delays the next attempt to the moment when "absent" may count.
	settled settling
	// applied says that a request of this attempt may have been applied.
	applied bool
	alert   bool
	// absentNow keeps this reading as the first settled "absent".
	absentNow bool
	// byKey says that a resend rests on the provider's key: no permission stands in for it if it has grown old meanwhile.
	byKey bool
	why   string // for the audit; empty on the happy path
}

// verb is how the delivery ends once the decision is committed; status is what the row says then.
func (d decision) verb(status idemstore.Status) verb {
	switch {
	case d.act == nothing:
		return silent
	case status.Final():
		return ack
	case status == idemstore.NeedsReview:
		return term
	}
	return nak
}

// outcome is what became of one perform, as the engine judges it.
type outcome int

const (
	outcomeUnknown         outcome = iota // timeout, cut, 5xx, panic: anything that nothing else fits
	outcomeDone                           // the effect happened
	outcomeTwoEffects                     // done, with another external id than the row's
	outcomeUnbooked                       // done, but the local rows were refused
	outcomeUnbookedRefusal                // refused, and the local rows that say so were refused
	outcomeUnbookedSkip                   // overtaken by a newer event, and the local rows that say so were refused
	outcomeAccepted                       // taken, not done; an external id to poll
	outcomeRefused                        // refused for good
	outcomeNotSent                        // this attempt surely changed nothing
	outcomeNotLetIn                       // the same, because our side is set up wrongly (401, 405, TLS)
	outcomeDrained                        // the process stops, or the kind is paused, and nothing was sent
	outcomeHeld                           // the provider is not to be called now
	outcomeCutShort                       // the process stops, sent, no answer in the grace time
	outcomeMisconfigured                  // set up wrongly, and the request may have been applied
	outcomeConflict                       // contradictory data, a missing record
	outcomeInProgress                     // an earlier request with the key is still at work
	outcomeReplayed                       // an error that the provider stores under the key
	outcomeAskAgain                       // the row learnt something since this attempt looked at it
	outcomeLost                           // the lease is gone
)

// outcomeFacts are what decides about an outcome beside itself.
type outcomeFacts struct {
	outcome outcome
	unsure  bool // an earlier attempt may have been applied
	replays bool // the key is young and the provider stores and replays refusals
	sent    bool // a request of this attempt may have been applied
	asked   bool // nobody can say more: this attempt read a settled "absent", or the kind cannot ask
}

// decideOutcome is the perform table.
func decideOutcome(f outcomeFacts) decision {
	switch f.outcome {
	case outcomeDone:
		return decision{act: saveIt, status: idemstore.Finished, applied: true}
	case outcomeTwoEffects:
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseTwoEffects, applied: true, alert: true,
			why: "two effects? the provider answered with another id than the one on the row"}
	case outcomeUnbooked:
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseNotBooked, applied: true, alert: true,
			why: "done at the provider, not booked here"}
	case outcomeUnbookedRefusal:
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseRefusalUnbooked, applied: true, alert: true,
			why: "refused by the provider, not booked here"}
	case outcomeUnbookedSkip:
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseSkipUnbooked, alert: true,
			why: "overtaken by a newer event, not booked here"}
	case outcomeAccepted:
		return decision{act: saveIt, status: idemstore.Unknown, applied: true, wait: waitPoll,
			why: "accepted by the provider, not done yet"}
	case outcomeRefused:
		return decideRefused(f)
	case outcomeNotSent:
		return decision{act: giveBack, wait: waitAsked}
	case outcomeNotLetIn:
		return decision{act: giveBack, wait: waitLong, alert: true}
	case outcomeDrained:
		return decision{act: giveBack, wait: waitShort}
	case outcomeHeld:
		return decision{act: giveBack, wait: waitAttempts}
	case outcomeCutShort:
		return decision{act: saveIt, status: idemstore.Unknown, applied: true, wait: waitShort, settled: settleUnkeyed,
			why: "the process stopped while the provider was at work"}
	case outcomeMisconfigured:
		return decision{act: saveIt, status: idemstore.Unknown, applied: true, wait: waitLong, alert: true,
			why: "the provider cannot be used as configured"}
	case outcomeConflict:
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseConflict, applied: f.sent, alert: true,
			why: "contradictory data or a missing record"}
	case outcomeInProgress:
		return decision{act: saveIt, status: idemstore.Unknown, applied: true, wait: waitAttempts, settled: settleUnkeyed,
			why: "the provider is still at work on an earlier request"}
	case outcomeReplayed:
		return decideReplayed(f)
	case outcomeAskAgain:
		return decision{act: saveIt, status: idemstore.Unknown, applied: true, wait: waitShort,
			why: "late proof came in, or the key grew too old; the provider is asked again"}
	case outcomeLost:
		return decision{act: nothing}
	case outcomeUnknown:
	}
	return decision{act: saveIt, status: idemstore.Unknown, cost: 1, applied: true, wait: waitAsked, settled: settleUnkeyed,
		why: "no outcome is known"}
}

// decideRefused: a refusal speaks for its own request. It is final only if no earlier attempt can have been
// applied, or if the provider would have replayed what that one got.
func decideRefused(f outcomeFacts) decision {
	if !f.unsure || f.replays {
		return decision{act: saveIt, status: idemstore.Failed, applied: true}
	}
	return decision{act: saveIt, status: idemstore.Unknown, cost: 1, applied: true, wait: waitFailures, settled: settleUnkeyed,
		why: "refused, but an earlier attempt may have been applied"}
}

// decideReplayed: the key brings nothing but the stored error, so what is left is to ask, once every request that left
// must show, and then a person.
func decideReplayed(f outcomeFacts) decision {
	if f.asked {
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: idemstore.CauseReplayedError, applied: true, alert: true,
			why: "the provider answers every resend with the same stored error, and no look-up knows the effect"}
	}
	return decision{act: saveIt, status: idemstore.Unknown, cost: 1, applied: true, wait: waitAsked, settled: settleAlways,
		why: "no outcome is known; the provider stores this error under the key"}
}

// decideHeld is for a task that is to be sent again while nothing may be sent.
func decideHeld(why string) decision {
	return decision{act: saveIt, status: idemstore.Unknown, wait: waitAttempts, why: "to be sent again, but not now: " + why}
}

// askFacts are what decides about a look-up.
type askFacts struct {
	lookup     bool // the kind has one
	verdict    Verdict
	knownID    bool // an external id, or late proof of one
	keyed      bool
	young      bool // the provider surely still has the key
	settled    bool // every request that left is decided and shows
	absentSeen bool // one settled "absent" is on the row already
	permitted  bool // the kind, or a person, allows a resend that does not rest on the key
	moved      bool // it was sent to another provider than the one that is asked
}

// decideAsk is the look-up table.
func decideAsk(f askFacts) decision {
	review := func(cause idemstore.Cause, why string) decision {
		return decision{act: saveIt, status: idemstore.NeedsReview, cause: cause, alert: true, why: why}
	}
	later := func(w wait, why string) decision {
		return decision{act: saveIt, status: idemstore.Unknown, wait: w, why: why}
	}
	switch {
	case !f.lookup && f.knownID:
		return review(idemstore.CauseNoLookup, "the provider has an id for it, and this kind has no look-up")
	case !f.lookup && f.keyed && f.young:
		return decision{act: sendIt, byKey: true, why: "no look-up; sent again under the same key, which the provider still keeps"}
	case !f.lookup:
		return review(idemstore.CauseNoLookup, "may have been applied; this kind has no look-up and the key no longer protects a resend")
	}
	switch f.verdict {
	case Found:
		return decision{act: saveIt, status: idemstore.Finished, why: "the provider was asked: it happened"}
	case FoundRefused:
		return decision{act: saveIt, status: idemstore.Failed, why: "the provider was asked: it refused"}
	case Contradictory:
		return review(idemstore.CauseContradictory, "the provider was asked: it has other content, or two effects")
	case Running:
		return later(waitPoll, "the provider was asked: still under way")
	case Absent:
		return decideAbsent(f, review, later)
	case CannotTell:
	}
	return later(waitAsked, "the provider was asked and cannot tell")
}

// decideAbsent: "the provider does not know it" permits a resend only under a young key, or once it is settled,
// read twice, and permitted.
func decideAbsent(f askFacts, review func(idemstore.Cause, string) decision, later func(wait, string) decision) decision {
	switch {
	case f.knownID:
		return review(idemstore.CauseVanished, "the provider does not know an effect whose id it once gave")
	case f.keyed && f.young:
		return decision{act: sendIt, byKey: true, why: "the provider does not know it; sent again under the same key"}
	case !f.settled:
		d := later(waitAttempts, "the provider does not know it yet; too early to believe")
		d.settled = settleAlways
		return d
	case !f.absentSeen:
		d := later(waitReading, "the provider does not know it; asked once more before that counts")
		d.absentNow = true
		return d
	case f.permitted:
		return decision{act: sendIt, why: "the provider does not know it, twice and settled; sent again as permitted"}
	}
	if f.moved {
		return review(idemstore.CauseAbsent, "it was sent to another provider than the one that is set up now, which does not know it")
	}
	return review(idemstore.CauseAbsent, "the provider does not know it; resend or resolve?")
}
