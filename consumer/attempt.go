package consumer

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Attempt is one try at a task, as Perform and Lookup see it. The engine makes it. Tests of a handler may make their own with
// the fields that it looks at: then MaySend allows everything, and SaveExternalID and KeepAnswer keep nothing.
type Attempt[J any] struct {
	Job         J         // decoded from the row's payload: the same in every attempt
	TaskID      int64     // settle.tasks.id
	Number      int       // 1 for the first attempt. Never part of a key
	Key         string    // business key
	ProviderKey string    // the Idempotency-Key to send: the same in every attempt
	ExternalID  string    // the provider's id, if one is known
	Evidence    []string  // ids brought by attempts that had lost the task
	Deadline    time.Time // when ctx ends, by this process's clock; see Policy.Deadline

	run *attempt
}

// MaySend passes the send gate; call it immediately before each request that may cause an effect, unless the
// request goes through Transport. An error means that nothing may leave any more: the lease is lost, the
// process drains, or the deadline has passed. It does not block.
func (a *Attempt[J]) MaySend() error { return a.run.maySend() }

// SaveExternalID stores the provider's id as soon as it is known, in a commit of its own, so that a crash
// after it polls instead of creating. It blocks for one round trip to Postgres. ErrLost means that the task
// belongs to another attempt: send nothing more (the id is kept as evidence).
func (a *Attempt[J]) SaveExternalID(ctx context.Context, id string) error {
	return a.run.saveExternalID(ctx, id)
}

// KeepAnswer keeps the provider's answer on the row: HTTP status and body, bounded and cleaned when saved, without card
// numbers, e-mail addresses, passwords and tokens. The last call wins. It never reaches a log.
func (a *Attempt[J]) KeepAnswer(status int, body []byte) { a.run.keepAnswer(status, body) }

// Writes collects what commits together with a result. The zero value is empty and ready, for tests of a Commit; it is not safe
// for concurrent use.
type Writes struct {
	statements []statement
	emits      []emit
}

type statement struct {
	sql  string
	args []any
}

type emit struct {
	subject, key string
	payload      any
}

// Exec queues one statement of the handler's own tables. No rows come back: the result of an external kind
// must not depend on them. Name tables with their schema; nothing depends on search_path.
func (w *Writes) Exec(sql string, args ...any) {
	w.statements = append(w.statements, statement{sql, args})
}

// Emit queues an event ("events.payment.charged") or a follow-up job ("jobs.receipt.send"). It is written with
// the result, once per task, subject and key, however often Commit runs, and published right after the commit: by this
// process, or by another one if it dies. It arrives at least once, always with the same Nats-Msg-Id, after what the
// task emitted before it. payload is encoded as JSON; of a follow-up job it is the body, and the job's own Key
// function makes its key. A subject that is neither parks the task.
func (w *Writes) Emit(subject, key string, payload any) {
	w.emits = append(w.emits, emit{subject, key, payload})
}

// String lists what is queued, in order, one statement or event a line: for tests of a Commit.
func (w *Writes) String() string {
	var b strings.Builder
	for _, s := range w.statements {
		fmt.Fprintf(&b, "exec %s %v\n", strings.Join(strings.Fields(s.sql), " "), s.args)
	}
	for _, e := range w.emits {
		fmt.Fprintf(&b, "emit %s %s %v\n", e.subject, e.key, e.payload)
	}
	return b.String()
}
