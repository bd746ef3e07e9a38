// Package story puts together what happened to one task, from its row and its history: the part that the commands and the
// support screen share. It shows nothing and reads nothing.
package story

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// What a moment is.
const (
	Stored  = "stored"  // the stream has the message
	Claimed = "claimed" // the first attempt begins
	Sending = "sending" // from here on a request may have left
	Saved   = "saved"   // an outcome is committed, or the task is given back
	Repair  = "repair"  // a take-over, a look-up, a decision to send again
	Acted   = "acted"   // somebody did something by hand
	Refused = "refused" // a message with other content
)

// Moment is one point of a time line.
type Moment struct {
	At         time.Time `json:"at"`
	What       string    `json:"what"`
	Attempt    int       `json:"attempt,omitempty"` // 0: of none
	Actor      string    `json:"actor,omitempty"`
	Text       string    `json:"text"`
	Status     string    `json:"status,omitempty"` // that it led to, if it is another one
	Settle     string    `json:"settle,omitempty"` // what the broker is told after it: ack, nak or term
	ExternalID string    `json:"external_id,omitempty"`
	TraceID    string    `json:"trace_id,omitempty"`
	Refusal    int64     `json:"refusal,omitempty"` // of Refused: its id
	Times      int       `json:"times,omitempty"`   // more than 1: so often in a row, the last time at At
}

// Timeline puts together what the row and what its history know, in the order of time. What is said more than twice in a
// row is two moments.
func Timeline(t idemstore.Task, events []idemstore.Event, refusals []idemstore.KeptRefusal) []Moment {
	line := beginning(t, events)
	for _, e := range events {
		line = append(line, momentOf(e))
	}
	for _, r := range refusals {
		line = append(line, Moment{At: r.At, What: Refused, Refusal: r.ID,
			Text: fmt.Sprintf("a message with other content was refused: settle refusals show %d", r.ID)})
	}
	if end, told := ending(t, events); !told {
		line = append(line, end)
	}
	slices.SortStableFunc(line, func(a, b Moment) int { return a.At.Compare(b.At) })
	return merged(line)
}

// beginning is what the row's own times say up to the first send.
func beginning(t idemstore.Task, events []idemstore.Event) (line []Moment) {
	if o := t.Origin; o.Sequence != 0 {
		stored := Moment{At: t.CreatedAt, What: Stored, Text: fmt.Sprintf("message %d of stream %s", o.Sequence, o.Stream)}
		if !o.Stored.IsZero() && o.Stored.Before(t.CreatedAt) {
			stored.At = o.Stored
		}
		line = append(line, stored)
	}
	claimed := Moment{At: t.CreatedAt, What: Claimed, Attempt: 1, Text: "claimed", TraceID: TraceID(t.OriginTrace)}
	switch sent := t.FirstSentAt; {
	case sent == nil:
	case sent.Sub(t.CreatedAt) < time.Second && len(events) == 0 || sent.Sub(t.CreatedAt) < 10*time.Millisecond:
		claimed.Text += "; from here on a request may have left"
	default:
		line = append(line, Moment{At: *sent, What: Sending, Text: "from here on a request may have left"})
	}
	return append(line, claimed)
}

// ending is the final save as the row has it. told says that the history has it as well, or that it has not come.
func ending(t idemstore.Task, events []idemstore.Event) (end Moment, told bool) {
	if t.FinishedAt == nil {
		return end, true
	}
	told = slices.ContainsFunc(events, func(e idemstore.Event) bool {
		return e.Attempt == t.Attempt && e.NewStatus == t.Status && e.OldStatus != t.Status
	})
	end = Moment{At: *t.FinishedAt, What: Saved, Attempt: t.Attempt, Text: "saved", Status: string(t.Status), Settle: "ack",
		ExternalID: t.ExternalID, TraceID: TraceID(t.LastTrace)}
	if t.Status == idemstore.Failed && t.LastError != "" {
		end.Text += ": " + t.LastError
	}
	return end, told
}

// momentOf is a line of the history.
func momentOf(e idemstore.Event) Moment {
	m := Moment{At: e.At, What: Repair, Attempt: e.Attempt, Actor: e.Actor, Text: e.Reason, ExternalID: e.ExternalID, TraceID: e.TraceID}
	saved := e.OldStatus == idemstore.Started && !strings.HasPrefix(e.Reason, "taken over: ") && !strings.HasPrefix(e.Reason, "taken up without")
	if e.NewStatus != e.OldStatus {
		m.Status = string(e.NewStatus)
	}
	switch byHand := e.Actor != Worker && e.Actor != Recovery; {
	case byHand:
		m.What = Acted
	case saved && m.Status != "":
		m.What = Saved
	}
	if m.Actor == Worker && m.What == Saved {
		m.Settle = settledAs(e.NewStatus)
	}
	return m
}

// Who acts without a person.
const (
	Worker   = "worker"
	Recovery = "recovery"
)

// settledAs is what the broker is told about the message after a save.
func settledAs(s idemstore.Status) string {
	switch s {
	case idemstore.Finished, idemstore.Failed:
		return "ack"
	case idemstore.NeedsReview:
		return "term"
	case idemstore.Unknown, idemstore.Started:
	}
	return "nak"
}

// merged makes one moment of those that say the same in a row, whatever attempts they are of.
func merged(line []Moment) (out []Moment) {
	for len(line) > 0 {
		n := 1
		for n < len(line) && sameAgain(line[0], line[n]) {
			n++
		}
		if n < 3 {
			out, line = append(out, line[0]), line[1:]
			continue
		}
		last := line[n-1]
		last.Times = n - 1
		out, line = append(out, line[0], last), line[n:]
	}
	return out
}

func sameAgain(a, b Moment) bool {
	b.At, b.Attempt, b.TraceID = a.At, a.Attempt, a.TraceID
	return a == b
}

// TraceID is the trace id in a traceparent; empty if there is none.
func TraceID(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}

// Skipped reports that a finished task was never sent, because a newer event of its entity had been applied.
func Skipped(t idemstore.Task, events []idemstore.Event) bool {
	return t.Status == idemstore.Finished && slices.ContainsFunc(events, func(e idemstore.Event) bool {
		return e.NewStatus == idemstore.Finished && e.OldStatus != e.NewStatus && Stale(e.Reason)
	})
}

// Stale reports whether the reason for which a task is finished says that a newer event of its entity had been applied.
func Stale(reason string) bool { return strings.HasPrefix(reason, "stale: ") }

// LastAttempt is when the latest attempt began; where neither row nor history tell, a moment not before that.
func LastAttempt(t idemstore.Task, events []idemstore.Event) time.Time {
	if t.Attempt == 1 {
		return t.CreatedAt
	}
	for _, e := range events {
		if e.Attempt == t.Attempt {
			return e.At
		}
	}
	if t.FinishedAt != nil {
		return *t.FinishedAt
	}
	return t.UpdatedAt
}
