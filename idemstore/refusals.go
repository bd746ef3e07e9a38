package idemstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// KeptRefusal is a message that was not accepted, as it is kept.
type KeptRefusal struct {
	Refusal              // Body is empty in lists, and only the beginning where Cut
	ID         int64     //
	At         time.Time // when it was refused
	Size       int       // of the whole body, in bytes
	Cut        bool      // only the beginning of the body was kept
	HeadersCut bool      // the headers were too large to be kept

	Republished *Republished // nil: it was not
}

// Republished says that a person published a refused message once more.
type Republished struct {
	At       time.Time
	Actor    string
	Reason   string
	Sequence uint64 // of the new message
}

// RefusalFilter selects refusals. Empty fields select all.
type RefusalFilter struct {
	Kind   string
	Reason Reason
	Since  time.Time
	Before int64 // for paging: the last id of the page before
	Limit  int   // 100
}

// Refusals returns refusals without their bodies, the newest first.
func (s *Store) Refusals(ctx context.Context, f RefusalFilter) ([]KeptRefusal, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	found, err := query(ctx, s, scanRefusal, listRefusals, orNull(f.Kind), orNull(string(f.Reason)), orNull(f.Since), orNull(f.Before), limit)
	if err != nil {
		return nil, fmt.Errorf("list refusals: %w", err)
	}
	return found, nil
}

// RefusalsOf returns the latest refusals of messages that are in conflict with a task, without their bodies, the newest first.
func (s *Store) RefusalsOf(ctx context.Context, taskID int64, limit int) ([]KeptRefusal, error) {
	found, err := query(ctx, s, scanRefusal, refusalsOfTask, taskID, limit)
	if err != nil {
		return nil, fmt.Errorf("list refusals of a task: %w", err)
	}
	return found, nil
}

// FindRefusal returns one refusal with its body, or ErrNotFound.
func (s *Store) FindRefusal(ctx context.Context, id int64) (KeptRefusal, error) {
	found, err := query(ctx, s, scanRefusal, findRefusal, id)
	switch {
	case err != nil:
		return KeptRefusal{}, fmt.Errorf("find refusal: %w", err)
	case len(found) == 0:
		return KeptRefusal{}, fmt.Errorf("find refusal: %w", ErrNotFound)
	}
	return found[0], nil
}

// MarkRepublished notes that a refusal was published once more, as the message with the given sequence. The first note
// stays. It is repeated until it is known to be committed or ctx ends.
func (s *Store) MarkRepublished(ctx context.Context, id int64, sequence uint64, by By) error {
	err := again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(markRepublished, id, int64(sequence), clean(by.Actor), clean(by.Reason))
		}, func(r pgx.BatchResults) error {
			_, err := r.Exec()
			return err
		}))
	})
	if err != nil {
		return fmt.Errorf("mark refusal as republished: %w", err)
	}
	return nil
}

func scanRefusal(row pgx.CollectableRow) (r KeptRefusal, err error) {
	var (
		headers       string
		sequence      int64
		stored, again *time.Time
		task, as      *int64
		who, why      *string
	)
	err = row.Scan(&r.ID, &r.At, &r.Kind, &r.Key, &r.Reason, &r.Detail, &r.Origin.Stream, &sequence, &stored, &r.Subject,
		&headers, &r.Body, &r.Size, &r.Cut, &task, &again, &who, &why, &as)
	r.Origin.Sequence, r.Origin.Stored, r.TaskID = uint64(sequence), value(stored), value(task)
	if json.Unmarshal([]byte(headers), &r.Headers) != nil {
		r.Headers, r.HeadersCut = nil, headers != ""
	}
	if again != nil {
		r.Republished = &Republished{At: *again, Actor: value(who), Reason: value(why), Sequence: uint64(value(as))}
	}
	return r, err
}

// refusalColumns are the columns of a KeptRefusal, in the order of scanRefusal. A refusal that came from no stream has no
// stored time.
const refusalColumns = `id, at, kind, key, reason, detail, stream, sequence, nullif(stored_at, '-infinity'), subject, headers, `

const moreRefusalColumns = `, body_size, cut, task_id, republished_at, republished_by, republish_reason, republished_as`

// listRefusals: $1 kind, $2 reason, $3 not before, $4 ids below, $5 limit.
const listRefusals = `/* settle:list-refusals */
select ` + refusalColumns + `'\x'::bytea` + moreRefusalColumns + ` from settle.refusals
where ($1::text is null or kind = $1) and ($2::text is null or reason = $2) and ($3::timestamptz is null or at >= $3)
  and ($4::bigint is null or id < $4)
order by id desc limit $5`

// refusalsOfTask: $1 task, $2 limit. The offset keeps the planner from going through all refusals by id.
const refusalsOfTask = `/* settle:refusals-of-task */
select * from (
  select ` + refusalColumns + `'\x'::bytea` + moreRefusalColumns + ` from settle.refusals where task_id = $1 offset 0) r
order by id desc limit $2`

const findRefusal = `/* settle:find-refusal */
select ` + refusalColumns + `body` + moreRefusalColumns + ` from settle.refusals where id = $1`

// markRepublished: $1 id, $2 sequence, $3 actor, $4 reason.
const markRepublished = `/* settle:mark-republished */
update settle.refusals set republished_at = clock_timestamp(), republished_by = $3, republish_reason = $4, republished_as = $2
where id = $1 and republished_at is null`
