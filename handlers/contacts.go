package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

const (
	importKind   = "contacts.import"
	importPrefix = "crm_batch_"
)

// ImportOptions are the settings of the kind contacts.import.
type ImportOptions struct {
	// Policy overrides Config.Policy; zero fields do not.
	Policy consumer.Policy
}

// ImportJob is a batch of contact events. A record that cannot be read is set aside, so each is decoded on its own.
type ImportJob struct {
	BatchID consumer.ID       `json:"batch_id"` // string or integer
	Records []json.RawMessage `json:"records"`  // bodies of contact.sync
}

// ImportResult counts what became of the records of a batch. It is stored, and replayed to every repeat.
type ImportResult struct {
	BatchID   string `json:"batch_id"`
	Records   int    `json:"records"`
	Imported  int    `json:"imported"`
	Stale     int    `json:"stale"`
	Duplicate int    `json:"duplicate"`
	Ties      int    `json:"ties"`
	SetAside  int    `json:"set_aside"` // their reasons are in shop.import_progress and on the task
}

// Import declares contacts.import: the records of a batch are imported one by one, each in a transaction of its own with
// its progress, under the same rules as contact.sync. A crash repeats none that is done, and a record that cannot be
// imported does not stop the others.
func Import(o ImportOptions) consumer.StepKind[ImportJob, json.RawMessage, ImportResult] {
	contact := Contact(ContactOptions{})
	return consumer.StepKind[ImportJob, json.RawMessage, ImportResult]{
		Name: importKind,
		Contract: consumer.Contract{
			Effect: "none outside: each contact of the batch becomes what its record says, if nothing newer is there",
			Rows: "shop.contacts and shop.import_events, in one transaction per record together with its progress " +
				"(seen as shop.import_progress)",
			Success:   "every record is imported, stale, a duplicate, a tie, or set aside with its reason",
			SecondRun: "goes on behind the last record that was committed; after the end it returns the stored counts",
			StopRule: "a record that cannot be imported is set aside. A worker that dies in a batch, or a fault that is not the record's, " +
				"costs one failure; the last of the budget calls a person, and a retry goes on where the batch was",
		},
		Policy:  o.Policy,
		Content: consumer.Content{IDs: []string{"batch_id"}},
		Key:     ImportJob.key,
		Refs:    func(j ImportJob) consumer.Refs { return consumer.Refs{"batch": textOf(j.BatchID)} },
		Steps:   func(j ImportJob) []json.RawMessage { return j.Records },
		Step: func(ctx context.Context, tx pgx.Tx, a *consumer.Attempt[ImportJob], i int, record json.RawMessage) (string, error) {
			j, err := consumer.ReadJob(contact, record)
			if err != nil {
				return "", err
			}
			return importRecord(ctx, tx, a, i, j)
		},
		Done: countImport,
	}
}

func (j ImportJob) key() (string, error) {
	batch, err := j.BatchID.Text()
	if err != nil {
		return "", fmt.Errorf("batch_id: %w", err)
	}
	if len(j.Records) == 0 {
		return "", errors.New("records: absent or empty")
	}
	return importPrefix + batch, nil
}

// importRecord does for one record what contact.sync does for a message.
func importRecord(ctx context.Context, tx pgx.Tx, a *consumer.Attempt[ImportJob], i int, record ContactJob) (string, error) {
	e, err := newContactEvent(record, a.TaskID, a.Number)
	if err != nil {
		return "", err
	}
	e.index = i
	r, err := e.apply(ctx, tx)
	return string(r.Result), err
}

func countImport(_ context.Context, _ pgx.Tx, a *consumer.Attempt[ImportJob], results []consumer.StepResult) (ImportResult, error) {
	out := ImportResult{BatchID: textOf(a.Job.BatchID), Records: len(results)}
	for _, r := range results {
		switch EventResult(r.Outcome) {
		case EventImported:
			out.Imported++
		case EventStale:
			out.Stale++
		case EventDuplicate:
			out.Duplicate++
		case EventTie:
			out.Ties++
		default:
			out.SetAside++
		}
	}
	return out, nil
}
