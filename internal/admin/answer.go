package admin

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// answer is the one sentence that a customer can be told. It claims nothing that the row does not prove: "once" only where
// there is no proof of a second effect, and "not" only where no request may have been applied.
func answer(t idemstore.Task, skipped bool, w Words) string {
	w = w.complete()
	switch t.Status {
	case idemstore.Finished:
		return w.finished(t, skipped)
	case idemstore.Failed:
		return join(w.NotDone, reasonOf(t), w.reference(t.ExternalID), onDay(t.FinishedAt)) + counts(t) + "." + w.secondEffect(t)
	case idemstore.NeedsReview:
		return w.inReview(t)
	case idemstore.Unknown:
		return notKnownYet + " " + w.Whether + "; " + askedAgain + " " + when(t.NextAttemptAt) + "." + w.secondEffect(t)
	case idemstore.Started:
		return w.started(t)
	}
	return strangeStatus
}

func (w Words) finished(t idemstore.Task, skipped bool) string {
	switch {
	case skipped:
		return join(notNeeded, onDay(t.FinishedAt)) + counts(t) + "."
	case w.secondEffect(t) != "":
		return join(w.Done, w.detail(t), w.reference(t.ExternalID), onDay(t.FinishedAt)) + counts(t) + "." + w.secondEffect(t)
	}
	return join(w.Done+" "+once, w.detail(t), w.reference(t.ExternalID), onDay(t.FinishedAt)) + counts(t) + "."
}

func (w Words) inReview(t idemstore.Task) string {
	why := cmp.Or(story.Cause(t.Cause), nothingMore)
	switch t.Cause {
	case idemstore.CauseNotBooked:
		return join(w.Done, w.detail(t), w.reference(t.ExternalID)) + "; " + notBooked + "." + w.secondEffect(t)
	case idemstore.CauseRefusalUnbooked:
		return w.NotDone + ": " + why + "; " + personDecides + "."
	case idemstore.CauseTwoEffects, idemstore.CauseContradictory:
		return join(maybeTwice, w.reference(t.ExternalID), w.reference(t.EvidenceID)) + ": " + why + "; " + personDecides + "."
	case idemstore.CauseBudget, idemstore.CauseAge, idemstore.CauseConflict, idemstore.CauseSkipUnbooked, idemstore.CauseAbsent,
		idemstore.CauseVanished, idemstore.CauseNoLookup, idemstore.CauseReplayedError:
	}
	start := notKnown + " " + w.Whether
	if !t.Unsure {
		start = w.NotDone
	}
	return start + ": " + why + "; " + personDecides + "." + w.secondEffect(t)
}

func (w Words) started(t idemstore.Task) string {
	begin := notKnownYet + " " + w.Whether
	switch {
	case t.LeaseUntil == nil:
		return w.NotDone + " " + yet + "; " + nextAttempt + " " + when(t.NextAttemptAt) + "."
	case t.LeaseLive:
		return begin + "; " + atWork(t.Attempt) + "."
	}
	return begin + "; " + notBack(t.Attempt) + "."
}

// secondEffect says that a task did not end as it says, or not only so.
func (w Words) secondEffect(t idemstore.Task) string {
	if t.EvidenceID == "" || t.EvidenceID == t.ExternalID {
		return ""
	}
	return " " + otherEffect(w.Reference, story.Printable(t.EvidenceID))
}

// complete fills in what a kind does not say.
func (w Words) complete() Words {
	w.Done, w.NotDone = cmp.Or(w.Done, plainDone), cmp.Or(w.NotDone, plainNotDone)
	w.Whether, w.Reference = cmp.Or(w.Whether, plainWhether), cmp.Or(w.Reference, plainReference)
	return w
}

func (w Words) detail(t idemstore.Task) string {
	if w.Detail == nil {
		return ""
	}
	return story.Printable(w.Detail(t.Payload))
}

func (w Words) reference(id string) string {
	if id == "" {
		return ""
	}
	return w.Reference + " " + story.Printable(id)
}

// answered is how a call's answer is written down: "POST /charges: 402 Payment Required (card_declined)". The code of the
// provider is all of it that a customer knows something with.
var answered = regexp.MustCompile(`^[A-Z]+ \S+: [0-9]{3}[^()]*(\([A-Za-z0-9_.-]+\))?$`)

// reasonOf is why a task failed, in few words: the page has the whole of it below.
func reasonOf(t idemstore.Task) string {
	const few = 160
	if parts := answered.FindStringSubmatch(t.LastError); parts != nil {
		return strings.TrimSpace(refusedThere + " " + parts[1])
	}
	text := []rune(story.Printable(t.LastError))
	if len(text) > few {
		return string(text[:few]) + "…"
	}
	return string(text)
}

func onDay(t *time.Time) string {
	if t == nil {
		return ""
	}
	return on + " " + when(*t)
}

// join makes one list of the parts that there are.
func join(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, ", ")
}

// counts says how often it was tried, and how many repeats came to nothing.
func counts(t idemstore.Task) string {
	return "; " + numberOf(t.Attempt, "attempt", "attempts") + ", " + numberOf(t.Duplicates, "duplicate", "duplicates") + " stopped"
}

func when(t time.Time) string { return t.UTC().Format("2 Jan 2006 at 15:04:05 UTC") }
