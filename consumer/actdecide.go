package consumer

import "github.com/settlemq/settle/idemstore"

// Act is what a person may do to one task.
type Act string

// The acts. Each compares the task with what was shown, counts as an attempt of its own (but for a note, and for asking in
// vain), and leaves an audit line.
const (
	ActAsk       Act = "ask"        // ask the provider now; closes the task if it knows
	ActRetry     Act = "retry"      // one more attempt, or only the local rows
	ActSendAgain Act = "send-again" // the same, and permission for one resend without the key's protection
	ActResolve   Act = "resolve"    // make it final by decision
	ActSupersede Act = "supersede"  // take another content
	ActCancel    Act = "cancel"     // give it up unsent
	ActNote      Act = "note"       // write something down
)

// operatorActs are all acts, in the order in which they are offered.
var operatorActs = []Act{ActAsk, ActRetry, ActSendAgain, ActSupersede, ActCancel, ActResolve, ActNote}

// actFacts are what decides whether an act is possible and what it comes to.
type actFacts struct {
	status    idemstore.Status
	lease     leaseState
	sending   bool
	unsure    bool
	firstSent bool
	knownID   bool // an external id, or late proof of one
	cause     idemstore.Cause
	stored    bool // a whole result is on the row
	archived  bool
	permitted bool // one resend is permitted already
	lookup    bool // the kind has one
	force     bool // resolve: also over a live lease
}

// actFactsOf reads the facts off a row.
func actFactsOf(t idemstore.Task, lookup, force bool) actFacts {
	f := actFacts{status: t.Status, sending: t.Sending, unsure: t.Unsure, firstSent: t.FirstSentAt != nil,
		knownID: t.ExternalID != "" || t.EvidenceID != "", cause: t.Cause, stored: t.Result != nil && !t.ResultAltered,
		archived: t.ArchivedAt != nil, permitted: t.ResendOnce, lookup: lookup, force: force}
	switch {
	case t.LeaseLive:
		f.lease = leaseLive
	case t.LeaseUntil != nil:
		f.lease = leaseExpired
	}
	return f
}

// touched: something may have left, as far as the row can tell.
func (f actFacts) touched() bool { return f.unsure || f.firstSent || f.knownID }

// released: known not to be applied, and free to be taken up.
func (f actFacts) released() bool {
	return f.status == idemstore.Started && f.lease == leaseNone && !f.unsure && !f.sending && !f.firstSent
}

// bookable: done at the provider, and the result that the local rows are made of is here.
func (f actFacts) bookable() bool { return f.cause == idemstore.CauseNotBooked && f.stored }

// deed is what an act comes to.
type deed int

const (
	deedNone     deed = iota // the act is not possible
	deedAsk                  // read-only, unless the provider knows the outcome
	deedBook                 // finished, from the stored result; nothing is sent or asked
	deedAskFirst             // unknown: the next attempt asks before it sends
	deedRelease              // started, released: the next attempt performs
	deedClose                // finished or failed
	deedReplace              // started, released, with other content
	deedNote                 // an audit line
)

// whyNot says why an act is not possible.
type whyNot int

const (
	whyNone whyNot = iota
	whyFinished
	whyFailed
	whyLive
	whyReleased
	whyExpired
	whyUnknown
	whyTouched
	whyUntouched
	whyKnownID
	whyBookable
	whyArchived
	whyNoLookup
	whyPermitted
)

// String is the reason as a person reads it.
func (w whyNot) String() string {
	switch w {
	case whyFinished:
		return "it is done, and what is done stays; a new operation needs a new business key"
	case whyFailed:
		return "it has failed for good; only a retry opens it again"
	case whyLive:
		return "an attempt is at work on it; wait until that has ended, or resolve it with force"
	case whyReleased:
		return "nothing was sent yet, and its next attempt comes by itself; it can be cancelled"
	case whyExpired:
		return "the attempt that had it has died, and a worker takes it up by itself; what became of it can be asked"
	case whyUnknown:
		return "a request may have left, and the provider is asked about it by itself"
	case whyTouched:
		return "a request may have left; ask, retry or resolve it"
	case whyUntouched:
		return "nothing was ever sent, so there is nothing to send again; retry it"
	case whyKnownID:
		return "the provider has given an id for it; that one is asked about, and no second one is ever created"
	case whyBookable:
		return "it is done at the provider; a retry books it here without sending anything"
	case whyArchived:
		return "its content is in the archive; restore it first"
	case whyNoLookup:
		return "its kind has no way to ask the provider"
	case whyPermitted:
		return "that is permitted already; the provider is asked by itself, and if it surely does not know it, it is sent once more"
	case whyNone:
	}
	return ""
}

// decideAct is the table of operator's acts. The statements in idemstore demand the same once more, under the row's lock,
// and a test compares the two on every combination.
func decideAct(f actFacts, a Act) (deed, whyNot) {
	switch a {
	case ActAsk:
		return decideAskNow(f)
	case ActRetry:
		return decideRetry(f)
	case ActSendAgain:
		return decideSendAgain(f)
	case ActResolve:
		return decideResolve(f)
	case ActSupersede, ActCancel:
		return decideUnsent(f, a)
	case ActNote:
	}
	return deedNote, whyNone
}

// started says why a task that is started allows nothing.
func (f actFacts) started() whyNot {
	switch {
	case f.lease == leaseLive:
		return whyLive
	case f.released():
		return whyReleased
	}
	return whyExpired
}

func decideAskNow(f actFacts) (deed, whyNot) {
	switch {
	case f.status == idemstore.Finished:
		return deedNone, whyFinished
	case f.status == idemstore.Failed:
		return deedNone, whyFailed
	case f.status == idemstore.Started && f.started() != whyExpired:
		return deedNone, f.started()
	case !f.lookup:
		return deedNone, whyNoLookup
	}
	return deedAsk, whyNone
}

func decideRetry(f actFacts) (deed, whyNot) {
	switch f.status {
	case idemstore.Finished:
		return deedNone, whyFinished
	case idemstore.Started:
		return deedNone, f.started()
	case idemstore.Unknown:
		return deedNone, whyUnknown
	case idemstore.Failed:
		if f.archived {
			return deedNone, whyArchived
		}
		return deedAskFirst, whyNone
	case idemstore.NeedsReview:
	}
	switch {
	case f.bookable():
		return deedBook, whyNone
	case f.touched():
		return deedAskFirst, whyNone
	}
	return deedRelease, whyNone
}

func decideSendAgain(f actFacts) (deed, whyNot) {
	switch f.status {
	case idemstore.Finished:
		return deedNone, whyFinished
	case idemstore.Failed:
		return deedNone, whyFailed
	case idemstore.Started:
		return deedNone, f.started()
	case idemstore.Unknown:
		if f.permitted { // pressed twice: a second permission could outlive the first
			return deedNone, whyPermitted
		}
	case idemstore.NeedsReview:
	}
	switch {
	case f.bookable():
		return deedNone, whyBookable
	case f.knownID:
		return deedNone, whyKnownID
	case !f.touched():
		return deedNone, whyUntouched
	case !f.lookup: // without a look-up nothing ever reads "absent", which is what the permission is about
		return deedNone, whyNoLookup
	}
	return deedAskFirst, whyNone
}

func decideResolve(f actFacts) (deed, whyNot) {
	switch {
	case f.status == idemstore.Finished:
		return deedNone, whyFinished
	case f.status == idemstore.Failed:
		return deedNone, whyFailed
	case f.status == idemstore.Started && f.lease == leaseLive && f.force:
		return deedClose, whyNone
	case f.status == idemstore.Started && f.started() != whyExpired:
		return deedNone, f.started()
	}
	return deedClose, whyNone
}

// decideUnsent is for the acts of which nothing may have left.
func decideUnsent(f actFacts, a Act) (deed, whyNot) {
	done := deedClose
	if a == ActSupersede {
		done = deedReplace
	}
	switch f.status {
	case idemstore.Finished:
		return deedNone, whyFinished
	case idemstore.Failed:
		return deedNone, whyFailed
	case idemstore.Unknown:
		return deedNone, whyUnknown
	case idemstore.Started:
		if !f.released() || a == ActSupersede {
			return deedNone, f.started()
		}
	case idemstore.NeedsReview:
	}
	if f.touched() {
		return deedNone, whyTouched
	}
	return done, whyNone
}

// AllowedAct is an act that is possible now.
type AllowedAct struct {
	Act    Act
	Effect string // what it would come to, in plain words
}

// options are the acts that a task allows, in the order in which they are offered.
func (f actFacts) options() (out []AllowedAct) {
	for _, a := range operatorActs {
		if d, _ := decideAct(f, a); d != deedNone {
			out = append(out, AllowedAct{a, d.effect(a)})
		}
	}
	return out
}

// effect is what an act comes to, as a person reads it before and after.
func (d deed) effect(a Act) string {
	switch d {
	case deedAsk:
		return "the provider is asked what became of it; a definite answer closes the task, anything else changes nothing"
	case deedBook:
		return "it is done at the provider; its local rows are committed here, and nothing is sent"
	case deedAskFirst:
		if a == ActSendAgain {
			return "one more attempt is due now; the provider is asked first, and if it surely does not know it, it is sent once more"
		}
		return "one more attempt is due now; the provider is asked before anything is sent"
	case deedRelease:
		return "one more attempt is due now; nothing was sent before"
	case deedClose:
		if a == ActCancel {
			return "it is given up; nothing was sent"
		}
		return "it is finished or failed by decision; the provider is asked first, and its answer goes before"
	case deedReplace:
		return "it takes the content of a refused message with the same key, and one more attempt is due now"
	case deedNote:
		return "its history gets a line"
	case deedNone:
	}
	return ""
}
