package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
)

func tasksTraceCommand() *cli.Command {
	return &cli.Command{
		Name:      "trace",
		Usage:     "draw what happened to one task as a time line",
		ArgsUsage: "TASK",
		Description: `From the message in the stream over attempts, look-ups, saves and repairs to the end, from the row and its history alone:
no trace collector is needed, and nothing is sampled. Trace ids lead on where there is one. What goes well is told by
the row's own times; an attempt that left no line in the history is not drawn. Long waits are written in words.`,
		Flags:  []cli.Flag{databaseFlag(), jsonFlag()},
		Action: action(1, 1, withStore(traceTask)),
	}
}

func traceTask(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	task, err := findTask(ctx, store, cmd.Args().First())
	if err != nil {
		return err
	}
	events, err := store.Events(ctx, task.TaskID)
	if err != nil {
		return err
	}
	refusals, err := store.RefusalsOf(ctx, task.TaskID, refusalsShown)
	if err != nil {
		return err
	}
	line := timeline(task, events, refusals)
	w := cmd.Root().Writer
	if cmd.Bool("json") {
		return json.NewEncoder(w).Encode(tracedObject{taskLine(task), line})
	}
	return drawTimeline(w, task, line)
}

// tracedObject is a task as tasks list prints it, and its time line.
type tracedObject struct {
	taskObject
	Timeline []moment `json:"timeline"`
}

// What a moment is.
const (
	momentStored  = "stored"  // the stream has the message
	momentClaimed = "claimed" // the first attempt begins
	momentSending = "sending" // from here on a request may have left
	momentSaved   = "saved"   // an outcome is committed, or the task is given back
	momentRepair  = "repair"  // a take-over, a look-up, a decision to send again
	momentActed   = "acted"   // somebody did something by hand
	momentRefused = "refused" // a message with other content
)

// moment is one point of a time line.
type moment struct {
	At         time.Time `json:"at"`
	What       string    `json:"what"`
	Attempt    int       `json:"attempt,omitempty"` // 0: of none
	Actor      string    `json:"actor,omitempty"`
	Text       string    `json:"text"`
	Status     string    `json:"status,omitempty"` // that it led to, if it is another one
	Settle     string    `json:"settle,omitempty"` // what the broker is told after it: ack, nak or term
	ExternalID string    `json:"external_id,omitempty"`
	TraceID    string    `json:"trace_id,omitempty"`
	Times      int       `json:"times,omitempty"` // more than 1: so often in a row, the last time at At
}

// timeline puts together what the row and what its history know.
func timeline(t idemstore.Task, events []idemstore.Event, refusals []idemstore.KeptRefusal) []moment {
	line := beginning(t, events)
	for _, e := range events {
		line = append(line, momentOf(e))
	}
	for _, r := range refusals {
		line = append(line, moment{At: r.At, What: momentRefused,
			Text: fmt.Sprintf("a message with other content was refused: settle refusals show %d", r.ID)})
	}
	if end, told := ending(t, events); !told {
		line = append(line, end)
	}
	slices.SortStableFunc(line, func(a, b moment) int { return a.At.Compare(b.At) })
	return merged(line)
}

// beginning is what the row's own times say up to the first send.
func beginning(t idemstore.Task, events []idemstore.Event) (line []moment) {
	if o := t.Origin; o.Sequence != 0 {
		stored := moment{At: t.CreatedAt, What: momentStored, Text: fmt.Sprintf("message %d of stream %s", o.Sequence, o.Stream)}
		if !o.Stored.IsZero() && o.Stored.Before(t.CreatedAt) {
			stored.At = o.Stored
		}
		line = append(line, stored)
	}
	claimed := moment{At: t.CreatedAt, What: momentClaimed, Attempt: 1, Text: "claimed", TraceID: traceOf(t.OriginTrace)}
	switch sent := t.FirstSentAt; {
	case sent == nil:
	case sent.Sub(t.CreatedAt) < time.Second && len(events) == 0 || sent.Sub(t.CreatedAt) < 10*time.Millisecond:
		claimed.Text += "; from here on a request may have left"
	default:
		line = append(line, moment{At: *sent, What: momentSending, Text: "from here on a request may have left"})
	}
	return append(line, claimed)
}

// ending is the final save as the row has it. told says that the history has it as well, or that it has not come.
func ending(t idemstore.Task, events []idemstore.Event) (end moment, told bool) {
	if t.FinishedAt == nil {
		return end, true
	}
	told = slices.ContainsFunc(events, func(e idemstore.Event) bool {
		return e.Attempt == t.Attempt && e.NewStatus == t.Status && e.OldStatus != t.Status
	})
	end = moment{At: *t.FinishedAt, What: momentSaved, Attempt: t.Attempt, Text: "saved", Status: string(t.Status), Settle: "ack",
		ExternalID: t.ExternalID, TraceID: traceOf(t.LastTrace)}
	if t.Status == idemstore.Failed && t.LastError != "" {
		end.Text += ": " + t.LastError
	}
	return end, told
}

// momentOf is a line of the history.
func momentOf(e idemstore.Event) moment {
	m := moment{At: e.At, What: momentRepair, Attempt: e.Attempt, Actor: e.Actor, Text: e.Reason, ExternalID: e.ExternalID, TraceID: e.TraceID}
	saved := e.OldStatus == idemstore.Started && !strings.HasPrefix(e.Reason, "taken over: ") && !strings.HasPrefix(e.Reason, "taken up without")
	if e.NewStatus != e.OldStatus {
		m.Status = string(e.NewStatus)
	}
	switch byHand := e.Actor != workerActor && e.Actor != recoveryActor; {
	case byHand:
		m.What = momentActed
	case saved && m.Status != "":
		m.What = momentSaved
	}
	if m.Actor == workerActor && m.What == momentSaved {
		m.Settle = settledAs(e.NewStatus)
	}
	return m
}

// Who acts without a person.
const (
	workerActor   = "worker"
	recoveryActor = "recovery"
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
func merged(line []moment) (out []moment) {
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

func sameAgain(a, b moment) bool {
	b.At, b.Attempt, b.TraceID = a.At, a.Attempt, a.TraceID
	return a == b
}

// traceOf is the trace id in a traceparent.
func traceOf(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}
