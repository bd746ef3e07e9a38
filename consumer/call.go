package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// Answer is what became of a job that was called.
type Answer[R any] struct {
	Status   idemstore.Status // Finished, Failed or NeedsReview
	Result   R                // of Finished, and of Failed where the refusal has one
	Replayed bool             // an earlier message of the same key had done it
	TaskID   int64
	Key      string
}

// CallOf is a definition whose jobs are J and whose results are R. It lets Call infer both from the kind.
type CallOf[J, R any] interface {
	JobOf[J]
	result(R)
}

func (Kind[J, R]) result(R)      {}
func (LocalKind[J, R]) result(R) {}

// Call publishes a job and waits for what becomes of it. A repeat of a finished job answers at once, with the stored
// result. Calling again after an error is safe: the same key has one effect.
//
// It waits for the worker's answer and, because that may be lost, looks at the task in db from time to time; with a nil
// db it only waits. It blocks until ctx ends, which says nothing about the job: that goes on. The error is a
// *RefusedError for a job that no worker accepts, here or there.
func Call[J, R any](ctx context.Context, js jetstream.JetStream, db DB, kind CallOf[J, R], job J) (Answer[R], error) {
	var none Answer[R]
	body, err := json.Marshal(job)
	if err != nil {
		return none, fmt.Errorf("call: encode job: %w", err)
	}
	a, err := CallRaw(ctx, js, db, kind, body, nil)
	if err != nil {
		return none, err
	}
	out := Answer[R]{Status: a.Status, Replayed: a.Replayed, TaskID: a.TaskID, Key: a.Key}
	if len(a.Result) > 0 {
		if err := json.Unmarshal(a.Result, &out.Result); err != nil {
			return none, fmt.Errorf("call: decode result of task %d: %w", a.TaskID, err)
		}
	}
	return out, nil
}

// CallRaw is Call for a body as it will travel, with headers of its own; its Result is the stored JSON.
func CallRaw(ctx context.Context, js jetstream.JetStream, db DB, kind Definition, body []byte, header map[string][]string) (Answer[json.RawMessage], error) {
	var none Answer[json.RawMessage]
	d, err := kind.define()
	if err != nil {
		return none, err
	}
	j, err := d.read(body, maxBody)
	if err != nil {
		return none, refused(err)
	}
	inbox := js.Conn().NewInbox()
	answers, err := js.Conn().SubscribeSync(inbox)
	if err != nil {
		return none, fmt.Errorf("call: %w", err)
	}
	defer answers.Unsubscribe() //nolint:errcheck // the connection is closed, and the subscription with it
	all := map[string][]string{headerReply: {inbox}}
	for k, v := range header {
		if !strings.EqualFold(k, headerReply) {
			all[k] = v
		}
	}
	p, err := PublishRaw(ctx, js, kind, body, all)
	if err != nil {
		return none, err
	}
	return (&call{kind: d.name, key: j.key, hash: j.hash, db: db, answers: answers, dropped: p.Outcome == Duplicate}).wait(ctx)
}

// call is one job that is waited for.
type call struct {
	kind, key string
	hash      []byte // of the content: another one under the same key is not ours
	db        DB
	answers   *nats.Subscription
	dropped   bool // the stream had the message: no worker will see ours, and nobody answers it
}

// Looks at the task begin with callLook, and become rarer: the answer is the rule.
const (
	callLook    = 100 * time.Millisecond
	callLookMax = 2 * time.Second
)

func (c *call) wait(ctx context.Context) (out Answer[json.RawMessage], err error) {
	for pause := callLook; ; pause = min(2*pause, callLookMax) {
		if c.db != nil && c.dropped || pause > callLook {
			if out, ok, err := c.look(ctx); ok || err != nil {
				return out, err
			}
		}
		waiting, cancel := context.WithTimeout(ctx, pause)
		m, err := c.answers.NextMsgWithContext(waiting)
		cancel()
		switch {
		case err == nil:
			return answerIn(m)
		case ctx.Err() != nil:
			return out, fmt.Errorf("call: the job goes on: %w", context.Cause(ctx))
		case !errors.Is(err, context.DeadlineExceeded):
			return out, fmt.Errorf("call: the job goes on: wait for the answer: %w", err)
		}
	}
}

// look reads the task. A task that is not there yet, or not over, is waited for; and so is a database that is away.
func (c *call) look(ctx context.Context) (out Answer[json.RawMessage], over bool, err error) {
	if c.db == nil {
		return out, false, nil
	}
	t, err := idemstore.Outcome(ctx, c.db, c.kind, c.key, c.hash)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err != nil && ctx.Err() == nil:
		return out, false, nil
	case err != nil:
		return out, false, fmt.Errorf("call: the job goes on: %w", err)
	case !t.Status.Final() && t.Status != idemstore.NeedsReview:
		return out, false, nil
	}
	return Answer[json.RawMessage]{Status: t.Status, Result: t.Result, Replayed: c.dropped, TaskID: t.TaskID, Key: c.key}, true, nil
}

// answerIn reads a worker's answer.
func answerIn(m *nats.Msg) (out Answer[json.RawMessage], err error) {
	h := headers(m.Header)
	if h.Get(headerStatus) == statusRefused {
		var r struct {
			Reason idemstore.Reason `json:"reason"`
			Detail string           `json:"detail"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return out, fmt.Errorf("call: read the refusal: %w", err)
		}
		return out, &RefusedError{Reason: r.Reason, Detail: r.Detail}
	}
	out.Status, out.Key, out.Replayed = idemstore.Status(h.Get(headerStatus)), h.Get(headerKey), h.Get(headerReplayed) == "true"
	if out.TaskID, err = strconv.ParseInt(h.Get(headerTask), 10, 64); err != nil {
		return out, fmt.Errorf("call: read the answer: %w", err)
	}
	if string(m.Data) != "null" {
		out.Result = m.Data
	}
	return out, nil
}
