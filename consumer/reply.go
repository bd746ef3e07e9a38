package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// Answers to whoever asked with Settle-Reply. JetStream uses a message's own reply subject, so publishers name another
// one in a header. It is answered by a core message after the commit, once the delivery was acked or termed, and not at
// all where that is not known. Nothing waits for the answer and nothing depends on it: who has gone away, or hears
// nothing, loses an answer, and reads the task or asks again.
//
//	finished, failed     the result; a repeat gets the same bytes, marked as replayed
//	needs_review         what there is of a result, mostly null; what a person decides later is not told
//	not accepted         status "refused", with reason and detail
//	anything else        nothing yet: the message comes again, and so does that of a repeat, soon

// reply is what is told about a job.
type reply struct {
	to       string // subject
	task     int64  // 0 if there is none
	key      string // empty if it is not known
	status   string
	body     []byte // JSON; null if there is no result
	replayed bool   // it had been done before
}

// replyOf answers with a task as it stands after a commit, or as it was found. It is nil where nobody waits.
func (d *delivery) replyOf(task *idemstore.Task, status idemstore.Status, result []byte, replayed bool) *reply {
	to := usableReply(task.Reply)
	if d.msg != nil {
		to = replySubject(d.msg.Headers())
	}
	if to == "" {
		return nil
	}
	if result == nil {
		result = []byte("null")
	}
	return &reply{to: to, task: task.TaskID, key: task.Key, status: string(status), body: result, replayed: replayed}
}

// statusRefused is the status in an answer to a message that was not accepted. No task has it.
const statusRefused = "refused"

func (d *delivery) replyOfRefusal(r idemstore.Refusal) *reply {
	to := replySubject(d.msg.Headers())
	if to == "" {
		return nil
	}
	body, err := json.Marshal(map[string]string{"reason": string(r.Reason), "detail": r.Detail})
	if err != nil {
		panic("reply of a refusal: " + err.Error()) // both are text
	}
	return &reply{to: to, task: r.TaskID, key: r.Key, status: statusRefused, body: body}
}

// reply sends an answer, if there is one.
func (d *delivery) reply(ctx context.Context, r *reply) {
	if r == nil {
		return
	}
	m := &nats.Msg{Subject: r.to, Data: r.body, Header: nats.Header{
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

// waitsForAnswer reports whether somebody waits for what becomes of this message. It is then not handed back for long.
func (d *delivery) waitsForAnswer() bool {
	return d.msg != nil && replySubject(d.msg.Headers()) != ""
}

// replyWithoutMessage answers for a task that was settled without its message. As long as that is in the stream it comes
// again and is answered then, so this is for messages that were purged, or lost with their stream. Where the stream
// cannot tell, nothing is said.
func (d *delivery) replyWithoutMessage(ctx context.Context, task *idemstore.Task, s settlement) {
	if s.reply == nil || s.verb != ack && s.verb != term || d.engine.js == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
	defer cancel()
	gone, err := messageGone(ctx, d.engine.js, task.Origin)
	switch {
	case err != nil:
		d.log.InfoContext(ctx, "answer not sent: the stream does not say whether the message comes again", "error", err)
	case gone:
		d.reply(ctx, s.reply)
	}
}

// messageGone reports whether a message is in its stream no more. Another one with its sequence, in a stream that was made
// anew, counts as the message.
func messageGone(ctx context.Context, js jetstream.JetStream, of idemstore.Origin) (bool, error) {
	if of.Stream == "" {
		return false, errors.New("it is not known which message it was")
	}
	stream, err := js.Stream(ctx, of.Stream)
	if err == nil {
		_, err = stream.GetMsg(ctx, of.Sequence)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

// replySubject is the subject that wants the result, if there is one that may be used.
func replySubject(h nats.Header) string { return usableReply(headers(h).Get(headerReply)) }

// ignoresReply reports whether a message asks for an answer on a subject that may not be used.
func ignoresReply(h nats.Header) bool {
	return headers(h).Get(headerReply) != "" && replySubject(h) == ""
}

// maxReply bounds a subject that wants an answer.
const maxReply = 256

// usableReply is s if a worker may publish there, else empty. Whoever can publish a job chooses it, so it must be below
// _INBOX. or settle.reply., where neither jobs, events nor the server's own interfaces are; and it goes into a line of
// the protocol and into a column, so it is plain: tokens of printable ASCII, no wildcards. settle.enqueue has the same
// rule.
func usableReply(s string) string {
	rest, ours := strings.CutPrefix(s, "_INBOX.")
	if !ours {
		rest, ours = strings.CutPrefix(s, "settle.reply.")
	}
	if !ours || len(s) > maxReply {
		return ""
	}
	for token := range strings.SplitSeq(rest, ".") {
		if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '*' || c == '>' }) {
			return ""
		}
	}
	return s
}
