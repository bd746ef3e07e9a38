package admin

import (
	"fmt"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// The texts of the screen are in this file, those about acts in acttexts.go, and those about a task that the commands say as
// well in package story.

// Parts of the sentence that answers a customer.
const (
	plainDone      = "Done"
	plainNotDone   = "Not done"
	plainWhether   = "whether it was done"
	plainReference = "reference"

	once          = "once"
	yet           = "yet"
	on            = "on"
	notKnown      = "Not known"
	notKnownYet   = "Not known yet"
	askedAgain    = "the provider is asked again, not before"
	nextAttempt   = "nothing was sent, and the next attempt starts not before"
	notNeeded     = "Not sent, because a newer event had been applied"
	refusedThere  = "the provider refused it"
	notBooked     = "it is not in our own books yet, and a person decides"
	maybeTwice    = "It may have happened more than once"
	personDecides = "a person decides, and nothing is sent meanwhile"
	nothingMore   = "the cause is not one that this build knows"
	oneHit        = "task has this."
	manyHits      = "tasks have this, the most direct match first."
	sendsAgain    = "The next attempt comes by itself,"
	asksAgain     = "The provider is asked again by itself,"
	dueNow        = "and is due now."
	dueIn         = "in %s."
	pausedBy      = "%s (by %s, since %s: %s)."
	kindIs        = "Its kind is"
	neverServed   = "No worker has served its kind in the last day, as far as can be seen."
	notServed     = "No worker that serves its kind has been heard of for %s."
	heldBack      = "The provider keeps failing: only one request now and then goes out, until one succeeds (its breaker is open)."
	askedInVain   = "The provider was asked what became of it, and could not tell."
	nothingSent   = "Nothing was sent: there was no connection to the provider."
	tooMany       = "The provider takes no more requests for now; nothing was done."
	letNothingIn  = "The provider let nothing in; nothing was done."
	strangeStatus = "It has a status that this build does not know."
)

func atWork(attempt int) string { return fmt.Sprintf("attempt %d is at work right now", attempt) }

func notBack(attempt int) string {
	return fmt.Sprintf("attempt %d has not come back, and another worker takes it up", attempt)
}

func otherEffect(reference, id string) string {
	return fmt.Sprintf("But there is proof of another effect, %s %s: look at it at the provider.", reference, id)
}

func numberOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return story.Grouped(n) + " " + many
}

// Problems.
const (
	noSuchPage  = "There is no such page."
	noSuchThing = "There is nothing with this id."
	noNumber    = "This is not a number that the screen gives out."
	noSuchSpan  = "This is not a length of time: 1h, 24h and 168h are."
	tooLong     = "What is searched for is longer than anything there is."
	noText      = "What is searched for is not text."
	cannotRead  = "This cannot be read right now. The log of settle admin says why."
	notInTime   = "No answer in time: the database may be down. Nothing was changed; try again in a minute."
	readsOnly   = "This screen reads only."
	bodyCut     = "… (the rest is not shown)"
	recordOf    = "record %s of %s, %s set aside"
)

// errorWords say in plain words what the class of an error means.
var errorWords = map[string]string{
	"refused":        "The provider refused it.",
	"accepted":       "The provider has taken it on and is still at it.",
	"misconfigured":  "The provider does not let us in as things are set up; somebody has to look at the settings.",
	"conflict":       "The data contradict each other, or a record is missing.",
	"in_progress":    "The provider is still at an earlier request of the same task.",
	"replayed_error": "The provider repeats an error that it has stored.",
	"timeout":        "No answer came in time; the request may have been carried out.",
	"panic":          "The program that handles it failed; the request may have been carried out.",
	"unknown":        "The answer does not say whether it was carried out.",
	"two_effects":    "The provider gave two references for it.",
	"not_booked":     "It is done at the provider, and our own books refused it.",
}

// reasonWords say why a message was not accepted. The word that commands and alerts use stands behind them.
var reasonWords = map[idemstore.Reason]string{
	idemstore.Malformed: "cannot be read", idemstore.TooLarge: "too large", idemstore.BadKey: "no usable key", idemstore.UnknownKind: "no such kind here",
	idemstore.Conflict: "its key has other content", idemstore.Unsendable: "cannot be published",
}

// reasonIn gives a reason in words.
func reasonIn(reason string) string {
	if words, ok := reasonWords[idemstore.Reason(reason)]; ok {
		return words + " (" + reason + ")"
	}
	return reason
}

// matchWords say what of a task was found.
var matchWords = map[string]string{
	"task": "task id", "key": "key", "provider_key": "request id", "trace_id": "trace id", "external_id": "external reference",
}

// texts are those of the templates.
var texts = map[string]string{
	"product": "Settle support", "skip": "Skip to the content", "nav": "Pages", "signed_in": "Signed in as", "sign_out": "Sign out",
	"find": "Find", "find_label": "Customer, order, reference, key, request id, task id or trace id",
	"overview": "Overview", "kinds": "Kinds", "refresh": "Refresh", "fresh_note": "Refreshes by itself every ten seconds where scripts run.",

	"find_none":   "Nothing has, or begins with, this. Large and small letters differ.",
	"find_begin":  "Nothing equals it; these begin with it.",
	"find_more":   "There may be more: type more of it.",
	"find_newest": "50 tasks with exactly this; there may be more.",
	"find_empty":  "Type what the customer gave you. What equals it is shown first; else what begins with it.",

	"task": "Task", "kind": "Kind", "key": "Key", "status": "Status", "attempts": "Attempts", "duplicates": "Duplicates stopped",
	"external": "External reference", "updated": "Updated", "created": "Created", "found_by": "Found by", "begun": "created", "age": "Waiting",
	"cause": "Why", "last_error": "Last error", "raw": "The exact text", "details": "Details", "timeline": "What happened",
	"time": "Time", "who": "Who", "what": "What", "attempt": "Attempt", "trace": "trace", "times_more": "times more",
	"job": "The job", "result": "The result", "provider_answer": "The provider's last answer",
	"hidden_note": "Card numbers, e-mail addresses, passwords and tokens are not shown.",
	"archived":    "They are in the archive.", "aside": "Records that were set aside", "record": "Record", "reason": "Reason",
	"task_refusals": "Refused messages with its key and other content",
	"leads_to":      "now", "as": "as", "by_worker": "worker", "by_recovery": "recovery",

	"job_id": "Job id", "request_id": "Request id", "other_external": "Other external reference", "last_attempt": "Last attempt",
	"progress": "Progress", "next_attempt": "Next attempt", "not_before": "not before", "age_limit": "Age limit", "finished": "Finished",
	"archived_at": "Archived", "provider": "Provider", "message": "Message", "event_id": "Event id", "event_source": "Event source",
	"trace_id": "Trace id", "no_outcome": "without an outcome", "earlier_error": "An earlier error", "why_waits": "Why it waits",
	"refused": "Refused", "conflicts_with": "Conflicts with task", "by": "By",

	"all_kinds": "all kinds", "any_time": "any time", "last_1h": "last hour", "last_24h": "last day", "last_168h": "last 7 days",
	"within": "Created in", "show": "Show", "next_page": "Next page", "first_page": "First page", "list_empty": "There is nothing in this list.",
	"page_short": "The part that was looked at has no more; the next page goes on.",
	"list_cut":   "More than 100,000 tasks are open; only those that are due first were looked at.",
	"in_all":     "in all, the oldest for", "size": "Bytes", "subject": "Subject", "refusal": "Refusal", "detail": "Detail",
	"failures": "Failed tries", "since": "Since", "body": "The message", "other_body": "The job of the task that has its key", "refused_when": "Refused in", "oldest_ago": "the oldest", "is": "is", "since_when": "since", "headers": "Headers", "again": "Published again",
	"no_nats":      "The screen is not connected to NATS, so it cannot look for these. Give settle admin NATS_URL.",
	"stray_note":   "No consumer is given these messages. They stay in the stream until one is, or a person removes them.",
	"refused_day":  "Refused in the last day",
	"none_refused": "Nothing was refused in the last day.",
	"count":        "Count", "oldest": "Oldest",

	"waiting": "What is not over", "nothing_waits": "Everything is over: nothing waits.", "pending": "Pending", "of_these_held": "at work",
	"unknown": "Being checked", "review": "Needs review", "failed": "Failed", "outbox_jobs": "follow-up jobs", "outbox_events": "events",
	"undelivered": "In the stream, given to no worker yet", "stream_away": "The stream does not answer, so what waits in it cannot be seen.",
	"outbox": "Not published yet", "oldest_for": "the oldest for", "activity": "What workers came to", "served": "How the kinds are served",
	"chart_hour": "The last hour, by minutes", "chart_day": "The last day, by quarters of an hour", "began_hour": "an hour ago", "began_day": "a day ago",
	"highest": "most in one bar:", "now": "now", "ago": "Bars ago", "activity_none": "No attempt ended in this time.",
	"workers": "Workers", "heard": "heard", "last_seen": "the last one heard", "silent": "no worker", "recovered": "Last recovery", "recovered_never": "not in the last day", "before": "ago",
	"breaker": "Provider", "breaker_open": "keeps failing (breaker open)", "breaker_shut": "not held back", "done_hour": "Done in the last hour", "done_day": "Done in the last day",
	"duplicates_day": "Duplicates stopped in the last day", "served_none": "No worker has run in the last day.",
	"done": "Done", "as_table": "As a table",
	"alerts": "What people were called for", "alerts_none": "Nobody was called.", "last_time": "Last time",
	"paused": "Paused", "lower_bound": "More than 100,000 tasks are open: counts and ages are lower bounds.",
	"mode": "Now", "running": "running", "contract": "What it promises", "no_kinds": "This build has no kinds.", "problem": "Not found, or not now",
	"acts": "What can be done", "recover": "Recover", "why": "Why, for the history", "back": "Back, without doing anything", "look_again": "Look again", "by_whom": "by",
	"would": "What would happen", "cannot": "This cannot be done", "as_finished": "finished: it happened", "as_failed": "failed: it did not happen, or is given up",
	"ruling": "What became of it", "external_hint": "The provider's reference of the effect, if there is one",
	"result_hint": "The result as JSON, if the kind has local rows and the provider cannot tell",
	"force_hint":  "Also while an attempt or the provider is still at work; what was sent stays sent",
	"job_now":     "The content that it has now",
	"choose":      "The message whose content it takes", "recover_note": "Workers recover by themselves. This does it now, for the tasks of a window of time: the provider is asked before anything is sent again, and what is held or not due is left alone.",
	"older_than": "Created at least so long ago", "newer_than": "and at most so long ago", "limit": "Do nothing if more match than", "foresee": "Show what would happen",
	"more_tasks": "more are not shown",
	"try_find":   "Search for it above, or go to the overview.",
}

// text is a text of the templates.
func text(name string) (string, error) {
	if t, ok := texts[name]; ok {
		return t, nil
	}
	return "", fmt.Errorf("there is no text %q", name)
}

// modeWords say how a kind is served.
var modeWords = map[string]string{
	"running": "running", "asking": "paused; tasks whose outcome is unknown are still asked about", "paused": "paused; nothing is taken, sent or asked",
}

// listName is a list in the navigation.
type listName struct{ Name, Title, Note string }

// listNames are the lists in their order.
var listNames = []listName{
	{"review", "Needs review", "Nobody can tell what happened, or what is right; a person decides. The oldest first."},
	{"unknown", "Being checked", "A request may have left and its outcome is not known; the provider is asked. The oldest first."},
	{"failed", "Failed", "Refused for good, or ended by a person. The newest first."},
	{"long", "Running long", "Begun, not over, and older than is usual. The oldest first."},
	{"refusals", "Refusals", "Messages that were never accepted. The newest first."},
	{"strays", "Strays", "Messages that nobody is given."},
	{"outbox", "Outbox", "Events and follow-up jobs that are committed and not published yet. The oldest first."},
}
