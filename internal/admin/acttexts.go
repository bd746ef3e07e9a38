package admin

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// The texts about acts; those that the engine says are its own.

// actWords are on the buttons.
var actWords = map[string]string{
	string(consumer.ActAsk): "Ask the provider now", string(consumer.ActRetry): "Try once more", string(consumer.ActSendAgain): "Send again",
	string(consumer.ActResolve): "Resolve", string(consumer.ActSupersede): "Take the corrected content", string(consumer.ActCancel): "Cancel",
	string(consumer.ActNote): "Add a note", actRepublish: "Publish again", actRecover: "Recover",
	"pause": "Pause", "keep-asking": "Pause, and go on asking", "resume": "Resume",
}

// modeEffects say what a mode comes to.
var modeEffects = map[idemstore.Mode]string{
	idemstore.ModePaused: "Workers take no more messages of this kind and none of its tasks, from their next heartbeat on and until it is resumed. " +
		"What was sent is not recalled.",
	idemstore.ModeAsking: "Workers send nothing of this kind, from their next heartbeat on and until it is resumed, but go on asking the provider " +
		"about tasks whose outcome is unknown. What was sent is not recalled.",
	idemstore.ModeRunning: "Workers serve this kind again, from their next heartbeat on.",
}

// outcomeWords begin the sentence that says what came of an act.
var outcomeWords = map[string]string{
	string(consumer.OutcomeDone): "Done.", string(consumer.OutcomeAsked): "Asked; nothing was changed.", string(consumer.OutcomeRefused): "Not done.",
	string(consumer.OutcomeOvertaken): "Not done.", string(consumer.OutcomeDropped): "Not published a second time.", outcomeRunning: "Still being done.",
	outcomeFailed: "Not known, or only in part.",
}

const (
	operatorsOnly = "Only operators may change something. Nothing was done."
	actsClosed    = "This screen is being stopped. Nothing was done."
	actsFull      = "Too much is being done at once. Nothing was done; try again in a minute."
	notBegun      = "The database cannot be written right now. Nothing was done."
	notKnownDone  = "It went wrong on the way, and the log of settle admin says how. The history tells what was done; doing it again is safe."
	stillRunning  = "It goes on whether or not you wait: look again."
	nobodyAtIt    = "This screen is not at work on it. If that stays so, it was interrupted: the history tells what was done, and doing it again is safe."

	formUsed      = "This form was sent before, with other content. Nothing more was done; here is a new one."
	formSpoilt    = "This form is not whole. Nothing was done; here is a new one."
	needsForm     = "This is for forms."
	needsJSON     = "Send application/json."
	noForm        = "This is no form that the screen gives out. Nothing was done."
	noOrder       = "This is not one JSON object with the members that this address knows. Nothing was done"
	orderTooLong  = "That is more than 64 KiB. Nothing was done."
	noReason      = "A reason is required: the history keeps why somebody stepped in."
	reasonTooLong = "The reason is longer than 1,800 bytes."
	reasonNoText  = "The reason has characters that cannot be seen, or line breaks."
	noRuling      = "Choose whether it is finished or failed."
	noRefusal     = "Choose the message whose content it is to take."

	unknownKind = "This build does not know the kind; the program that serves it can do this."
	noSuchKind  = "This build knows no such kind, and there is no task of it."
	noContent   = "No message with its key and other content was refused."
	noNATS      = "The screen is not connected to NATS. Give settle admin NATS_URL."
	factTask    = "Task"
	changedTask = "It has changed since it was looked at%s: it is %s now, after attempt %d. Look at it again."
	seenAs      = ", when it was %s after attempt %d"
	changedMode = "The kind %s has changed since it was looked at: it was %s, and is %s now. Look at it again."
	modeAlready = "It is that already: %s."
	modeSet     = "The kind %s is %s now; workers obey with their next heartbeat."

	wrongWindow    = "The youngest must be younger than the oldest, and the oldest at most 8760h (a year) old."
	wrongLimit     = "The limit must be 1 to 10,000."
	tooManyMatch   = "More than %d tasks match. Nothing was done: narrow it, or raise the limit."
	nothingMatches = "No task that matches is open."
	recoveredSome  = "%d of %d tasks were reached before it was interrupted: %s The others are as they were; doing it again is safe."
)

// recoveredNames say what came of the tasks of a recovery, or would come.
var recoveredNames = []struct {
	outcome consumer.RecoverOutcome
	words   string
}{
	{consumer.RecoverSettled, "settled"}, {consumer.RecoverOpen, "tried and due again later"}, {consumer.RecoverParked, "in need of a person now"},
	{consumer.RecoverStillParked, "asked about and still in need of a person"}, {consumer.RecoverWouldAsk, "would be asked about"},
	{consumer.RecoverWouldPerform, "would be performed"}, {consumer.RecoverWouldPark, "would need a person"}, {consumer.RecoverSkipped, "left alone"},
}

func recoveredWords(counts map[consumer.RecoverOutcome]int) string {
	var parts []string
	for _, n := range recoveredNames {
		if c := counts[n.outcome]; c > 0 {
			parts = append(parts, story.Grouped(c)+" "+n.words)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s.", strings.Join(parts, ", "))
}

// sentence makes a sentence of what the engine says.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[size:]
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
