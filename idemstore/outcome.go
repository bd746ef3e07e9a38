package idemstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// outcome reads what became of a key with this content, also if the result is archived.
const outcome = `/* settle:outcome */
select t.id, t.status, coalesce(t.result, a.result), t.stream_sequence
from settle.tasks t left join settle.tasks_archive a on a.task_id = t.id
where t.kind = $1 and t.key = $2 and t.payload_hash = $3`

// Outcome reads id, status and result of the task of a key, and the place in the stream of the message that brought it, for
// a caller that has no Store. It gives pgx.ErrNoRows where there is none, or one with other content.
func Outcome(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, kind, key string, hash []byte) (t Task, err error) {
	var (
		result   *string
		sequence int64
	)
	if err := db.QueryRow(ctx, outcome, kind, key, hash).Scan(&t.TaskID, &t.Status, &result, &sequence); err != nil {
		return t, fmt.Errorf("read outcome: %w", err)
	}
	t.Origin.Sequence = uint64(sequence)
	if result != nil {
		t.Result = []byte(*result)
	}
	return t, nil
}
