package main

import (
	"encoding/json"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// taskObject is a task as --json prints it. The first eight fields are common to all operator commands.
type taskObject struct {
	Task       int64  `json:"task"`
	Kind       string `json:"kind"`
	Key        string `json:"key"`
	Status     string `json:"status"`
	Attempts   int    `json:"attempts"`
	ExternalID string `json:"external_id"`
	Outcome    string `json:"outcome"` // "shown", or what came of an act
	Message    string `json:"message"`

	Failures      int        `json:"failures"`
	Duplicates    int        `json:"duplicates"`
	LastError     string     `json:"last_error,omitempty"`
	ErrorClass    string     `json:"error_class,omitempty"`
	Cause         string     `json:"cause,omitempty"` // why a person is asked
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	GiveUpAt      *time.Time `json:"give_up_at,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
	FinishedAt    *time.Time `json:"finished_at,omitempty"`
	ArchivedAt    *time.Time `json:"archived_at,omitempty"`

	EventID     string          `json:"event_id,omitempty"` // of the CloudEvent that brought it
	EventSource string          `json:"event_source,omitempty"`
	ProviderKey string          `json:"provider_key,omitempty"`
	EvidenceID  string          `json:"evidence_id,omitempty"`
	Job         *string         `json:"job,omitempty"` // text, because it need not be JSON
	Result      json.RawMessage `json:"result,omitempty"`
	Answer      string          `json:"answer,omitempty"`
	KindMode    string          `json:"kind_mode,omitempty"` // running, asking or paused
	Refusals    []int64         `json:"refusals,omitempty"`  // of messages with its key and other content, the newest first
	History     []eventObject   `json:"history,omitempty"`
	Progress    *progressObject `json:"progress,omitempty"` // of a batch that is done record by record, from its first record on
	Next        []nextObject    `json:"next,omitempty"`     // what a person may do now
}

type eventObject struct {
	At         time.Time `json:"at"`
	Actor      string    `json:"actor"`
	Attempt    int       `json:"attempt"`
	OldStatus  string    `json:"old_status,omitempty"`
	NewStatus  string    `json:"new_status,omitempty"`
	Reason     string    `json:"reason"`
	ExternalID string    `json:"external_id,omitempty"`
	TraceID    string    `json:"trace_id,omitempty"`
}

func taskLine(t idemstore.Task) taskObject {
	o := taskObject{
		Task: t.TaskID, Kind: t.Kind, Key: t.Key, Status: string(t.Status), Attempts: t.Attempt,
		ExternalID: t.ExternalID, Outcome: "shown", Message: summary(t),
		Failures: t.Failures, Duplicates: t.Duplicates, LastError: t.LastError, ErrorClass: t.ErrorClass, Cause: string(t.Cause),
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, FinishedAt: t.FinishedAt, ArchivedAt: t.ArchivedAt,
	}
	if !t.Status.Final() {
		o.NextAttemptAt, o.GiveUpAt = &t.NextAttemptAt, &t.GiveUpAt
	}
	return o
}

func taskStory(t idemstore.Task, events []idemstore.Event, content bool) taskObject {
	o := taskLine(t)
	o.EventID, o.EventSource = t.Event.ID, t.Event.Source
	o.ProviderKey, o.EvidenceID = t.ProviderKey, t.EvidenceID
	if content {
		job := string(t.Payload)
		o.Job, o.Result, o.Answer = &job, asJSON(t.Result), t.Answer
	}
	for _, e := range events {
		o.History = append(o.History, eventObject{
			At: e.At, Actor: e.Actor, Attempt: e.Attempt, OldStatus: string(e.OldStatus),
			NewStatus: string(e.NewStatus), Reason: e.Reason, ExternalID: e.ExternalID, TraceID: e.TraceID,
		})
	}
	return o
}

// add tells what stands beside the row.
func (o *taskObject) add(b beside) {
	o.Progress = b.progress
	o.KindMode = string(b.control.Mode)
	for _, r := range b.refusals {
		o.Refusals = append(o.Refusals, r.ID)
	}
}

// asJSON is stored text as a JSON value; what is no JSON becomes a string.
func asJSON(text []byte) json.RawMessage {
	if len(text) == 0 || json.Valid(text) {
		return text
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return nil
	}
	return quoted
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func clockOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}
