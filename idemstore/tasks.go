package idemstore

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// FindByID returns a task, or ErrNotFound. It is repeated over broken connections.
func (s *Store) FindByID(ctx context.Context, id int64) (Task, error) {
	return s.find(ctx, findByID, id)
}

// Find returns the task of a key, or ErrNotFound. It is repeated over broken connections.
func (s *Store) Find(ctx context.Context, kind, key string) (Task, error) {
	return s.find(ctx, findByKey, kind, key)
}

func (s *Store) find(ctx context.Context, sql string, args ...any) (Task, error) {
	found, err := query(ctx, s, scanTask, sql, args...)
	switch {
	case err != nil:
		return Task{}, fmt.Errorf("find task: %w", err)
	case len(found) == 0:
		return Task{}, fmt.Errorf("find task: %w", ErrNotFound)
	}
	return found[0], nil
}

// Filter selects tasks. Empty fields select all.
type Filter struct {
	Kind    string
	Status  Status
	AfterID int64 // for paging: the last id of the page before
	Limit   int   // 100
}

// List returns tasks by ascending id.
func (s *Store) List(ctx context.Context, f Filter) ([]Task, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	found, err := query(ctx, s, scanTask, list, orNull(f.Kind), orNull(string(f.Status)), f.AfterID, limit)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return found, nil
}

// Events returns the audit lines of a task, oldest first.
func (s *Store) Events(ctx context.Context, taskID int64) ([]Event, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[Event], events, taskID)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return found, nil
}

func scanTask(row pgx.CollectableRow) (Task, error) { return scanTaskAnd(row) }

// scanTaskAnd also reads what a statement has behind the columns of the task.
func scanTaskAnd(row pgx.CollectableRow, more ...any) (Task, error) {
	var (
		t                                                           Task
		evidence, external, result, answer, lastError, class, cause *string
		providerStatus                                              *int32
		stored                                                      *time.Time
		sequence                                                    int64
	)
	err := row.Scan(append([]any{&t.TaskID, &t.Kind, &t.Key, &t.Attempt, &t.Token, &t.Status, &t.LeaseUntil, &t.Sending, &t.Unsure,
		&t.FirstSentAt, &t.LastSentBy, &t.AbsentAt, &evidence, &external, &t.Failures, &t.NextAttemptAt,
		&t.GiveUpAt, &t.ResendOnce, &t.Provider, &t.ProviderKey, &t.Hash, &t.HashAlgorithm, &t.Payload, &result, &answer,
		&t.ResultAltered, &providerStatus, &lastError, &class, &cause, &t.Duplicates, &t.Origin.Stream,
		&sequence, &stored, &t.Event.ID, &t.Event.Source, &t.Reply, &t.OriginTrace, &t.LastTrace, &t.CreatedAt, &t.UpdatedAt, &t.FinishedAt,
		&t.ExpiresAt, &t.ArchivedAt, &t.LeaseLive}, more...)...)
	t.EvidenceID, t.ExternalID, t.Answer = value(evidence), value(external), value(answer)
	t.LastError, t.ErrorClass, t.ProviderStatus = value(lastError), value(class), int(value(providerStatus))
	t.Cause = Cause(value(cause))
	t.Origin.Sequence, t.Origin.Stored = uint64(sequence), value(stored)
	if result != nil {
		t.Result = []byte(*result)
	}
	return t, err
}

// Bounds of what a refusal keeps.
const (
	maxRefusedBody    = 64 << 10
	maxRefusedHeaders = 8 << 10
)

// Refuse keeps messages that were not accepted, each with the beginning of its body. A redelivery adds nothing.
// It is repeated until it is known to be committed or ctx ends.
func (s *Store) Refuse(ctx context.Context, refusals ...Refusal) error {
	err := again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			for _, r := range refusals {
				queueRefusal(b, r)
			}
		}, func(results pgx.BatchResults) error {
			var errs error
			for range refusals {
				_, err := results.Exec()
				errs = errors.Join(errs, err)
			}
			return errs
		}))
	})
	if err != nil {
		return fmt.Errorf("refuse: %w", err)
	}
	return nil
}

// queueRefusal keeps the beginning of a body, which whoever published it has; of a row of the outbox nobody else has the rest.
func queueRefusal(b *pgx.Batch, r Refusal) {
	limit := min(len(r.Body), maxRefusedBody)
	if r.Reason == Unsendable {
		limit = len(r.Body)
	}
	body := append([]byte{}, r.Body[:limit]...) // a message without a body has nil
	digest := sha256.Sum256(r.Body)
	stored := storedTime(r.Origin)
	if stored == nil {
		stored = &time.Time{}
	}
	b.Queue(refuse, clean(r.Kind), clean(r.Key), string(r.Reason), clean(r.Detail), clean(r.Origin.Stream),
		int64(r.Origin.Sequence), stored, clean(r.Subject), boundedHeaders(r.Headers), body, len(r.Body), len(body) < len(r.Body), digest[:], orNull(r.TaskID))
}

// boundedHeaders are headers as JSON without anything that a text column refuses, or a note of their size.
func boundedHeaders(h map[string][]string) string {
	text, err := json.Marshal(h) // escapes control characters and replaces bytes that are not UTF-8
	if err != nil || len(text) > maxRefusedHeaders {
		return fmt.Sprintf(`{"too_large":%d}`, len(text))
	}
	return string(text)
}
