package consumer

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// Answers to whoever asked with Settle-Reply. JetStream uses a message's own reply subject, so publishers name another
// one in a header. It is answered by a core message, at most once: after the delivery was acked or termed, and not at
// all where that is not known. Who hears nothing reads the task.

// reply is what is told about a job.
type reply struct {
	task     int64  // 0 if there is none
	key      string // empty if it is not known
	status   string
	body     []byte // JSON; null if there is no result
	replayed bool   // it had been done before
}

// replyOf answers with a task as it stands after a commit, or as it was found. It is nil where nobody waits.
func (d *delivery) replyOf(task *idemstore.Task, status idemstore.Status, result []byte, replayed bool) *reply {
	if !d.waitsForAnswer() {
		return nil
	}
	if result == nil {
		result = []byte("null")
	}
	return &reply{task: task.TaskID, key: task.Key, status: string(status), body: result, replayed: replayed}
}

// statusRefused is the status in an answer to a message that was not accepted. No task has it.
const statusRefused = "refused"

func replyOfRefusal(r idemstore.Refusal) *reply {
	body, err := json.Marshal(map[string]string{"reason": string(r.Reason), "detail": r.Detail})
	if err != nil {
		panic("reply of a refusal: " + err.Error()) // both are text
	}
	return &reply{task: r.TaskID, key: r.Key, status: statusRefused, body: body}
}

// reply sends an answer to the subject that the message names, if it is one that may be used.
func (d *delivery) reply(ctx context.Context, r *reply) {
	subject := replySubject(d.msg.Headers())
	if r == nil || subject == "" {
		return
	}
	m := &nats.Msg{Subject: subject, Data: r.body, Header: nats.Header{
		headerKind: {d.kind.name}, headerStatus: {r.status}, headerReplayed: {strconv.FormatBool(r.replayed)},
	}}
	if r.key != "" {
		m.Header.Set(headerKey, r.key)
	}
	if r.task != 0 {
		m.Header.Set(headerTask, taskID(r.task))
	}
	propagator.Inject(ctx, headers(m.Header))
	if err := d.engine.js.Conn().PublishMsg(m); err != nil {
		d.log.InfoContext(ctx, "answer not sent; whoever waits has to read the task", "error", err)
	}
}

// waitsForAnswer reports whether somebody waits for what becomes of this message. It is then not handed back for long. A
// recovery has no message: whoever waits is answered when that comes again, or reads the task.
func (d *delivery) waitsForAnswer() bool {
	return d.msg != nil && replySubject(d.msg.Headers()) != ""
}
