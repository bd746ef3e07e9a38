package lab

import (
	"context"
	"fmt"
)

// deleteKeyRow is what a clean-up that is too early would do to the row that remembers a key. Nothing in Settle does it:
// the lab on retention does, to show what comes of it.
var deleteKeyRow = []string{
	`delete from settle.task_events where task_id = $1`,
	`delete from settle.task_refs where task_id = $1`,
	`delete from settle.tasks where id = $1`,
}

// keyRowGoes removes the row of the task at hand, and no other.
func keyRowGoes(ctx context.Context, p *play) error {
	t, err := p.row(ctx)
	if err != nil || t == nil {
		return err
	}
	for _, sql := range deleteKeyRow {
		if _, err := p.pool.Exec(ctx, sql, t.TaskID); err != nil {
			return fmt.Errorf("remove the key row: %w", err)
		}
	}
	return nil
}
