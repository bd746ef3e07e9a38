package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// Answer is what became of a job that was called.
type Answer[R any] struct {
	Status   idemstore.Status // Finished, Failed or NeedsReview
	Result   R                // of Finished, and of Failed where the refusal has one
	Replayed bool             // answered from the row: it was done before this message was handled
	TaskID   int64
	Key      string
}

// ErrUnanswered is in the error of a call that published its job and does not know what became of it. The job goes on
// without its caller; calling again is safe.
var ErrUnanswered = errors.New("no answer yet, and the job goes on")

// What is in the error of a call whose job is over and not finished. The Answer beside it is whole.
var (
	ErrFailed      = errors.New("the job has failed for good")    // a declined card: a repeat gets the same answer
	ErrNeedsReview = errors.New("a person decides about the job") // calling again later hears of that
)

// CallOf is a definition whose jobs are J and whose results are R. It lets Call infer both from the kind.
type CallOf[J, R any] interface {
	JobOf[J]
	result(R)
}

func (Kind[J, R]) result(R)      {}
func (LocalKind[J, R]) result(R) {}

// Call publishes a job and waits for what becomes of it. It returns no error only if the job is finished; of one that failed, or
// that waits for a person, the error is ErrFailed or ErrNeedsReview beside the Answer. A repeat answers at once, with the stored
// result. Calling again after an error is safe: the same key has one effect.
//
// It waits for the worker's answer and, because that may be lost, looks at the task in db from time to time; with a nil
// db it only waits, so that a lost answer is heard by calling again. It blocks until ctx ends, which says nothing about
// the job: that goes on, and the error is ErrUnanswered. It is an *InvalidJobError for a job that no worker accepts, here or
// there.
func Call[J, R any](ctx context.Context, db DB, js jetstream.JetStream, kind CallOf[J, R], job J) (Answer[R], error) {
	var none Answer[R]
	body, err := json.Marshal(job)
	if err != nil {
		return none, unencodable(err)
	}
	c, err := StartCall(ctx, db, js, kind, body, nil)
	if err != nil {
		return none, err
	}
	a, err := c.Wait(ctx)
	if err != nil {
		return none, err
	}
	out := Answer[R]{Status: a.Status, Replayed: a.Replayed, TaskID: a.TaskID, Key: a.Key}
	if len(a.Result) > 0 {
		err = json.Unmarshal(a.Result, &out.Result)
	}
	switch {
	case a.Status == idemstore.NeedsReview:
		return out, fmt.Errorf("call: task %d: %w", a.TaskID, ErrNeedsReview)
	case a.Status == idemstore.Failed: // where a person said so there is no result of the kind
		return out, fmt.Errorf("call: task %d: %w", a.TaskID, ErrFailed)
	case err != nil:
		return none, fmt.Errorf("call: decode result of task %d: %w", a.TaskID, err)
	}
	return out, nil
}

// StartedCall is a job that was published and whose answer is on its way. Wait ends it.
type StartedCall struct {
	Publication Publication

	kind, key string
	hash      []byte // of the content: another one under the same key is not ours
	db        DB
	answers   *nats.Subscription
}

// StartCall is the first half of Call, for a body as it will travel, with headers of its own: it blocks and fails as
// PublishRaw does. A Settle-Reply among the headers is replaced. With a nil db and without a Nats-Msg-Id the message gets
// an id of its own, because a message that the stream drops as a repeat is answered by nobody.
func StartCall(ctx context.Context, db DB, js jetstream.JetStream, kind Definition, body []byte, header map[string][]string) (*StartedCall, error) {
	d, err := kind.define()
	if err != nil {
		return nil, err
	}
	j, err := d.readMessage(header, body, maxBody)
	if err != nil {
		return nil, refused(err)
	}
	c := &StartedCall{kind: d.name, key: j.key, hash: j.hash, db: db}
	inbox := js.Conn().NewInbox()
	if c.answers, err = js.Conn().SubscribeSync(inbox); err != nil {
		return nil, fmt.Errorf("call: %w", err)
	}
	c.Publication, err = PublishRaw(ctx, js, kind, body, callHeaders(header, inbox, db == nil))
	if err == nil && c.dropped() && db != nil && !c.accepted(ctx) { // the one before it may have been refused: whoever asks again is told why
		again := callHeaders(header, inbox, false)
		maps.DeleteFunc(again, func(name string, _ []string) bool { return strings.EqualFold(name, headerMessageID) })
		c.Publication, err = PublishRaw(ctx, js, kind, body, callHeaders(again, inbox, true))
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// accepted reports whether there is a task of this job, as far as can be told.
func (c *StartedCall) accepted(ctx context.Context) bool {
	_, err := idemstore.Outcome(ctx, c.db, c.kind, c.key, c.hash)
	return !errors.Is(err, pgx.ErrNoRows)
}

func callHeaders(given map[string][]string, inbox string, ownID bool) map[string][]string {
	all := map[string][]string{headerReply: {inbox}}
	for k, v := range given {
		if !strings.EqualFold(k, headerReply) {
			all[k] = v
		}
	}
	if ownID && headers(all).Get(headerMessageID) == "" {
		all[headerMessageID] = []string{"call-" + uuid.NewString()}
	}
	return all
}

// end is called once nobody waits any more.
func (c *StartedCall) end() {
	_ = c.answers.Unsubscribe() // else the connection is closed, and the subscription with it
}

// dropped: the stream had the message already. No worker will see ours, and nobody answers it.
func (c *StartedCall) dropped() bool { return c.Publication.Outcome == PublishDuplicate }

// Looks at the task begin with callLook, and become rarer: the answer is the rule.
const (
	callLook    = 100 * time.Millisecond
	callLookMax = 2 * time.Second
)

// Wait waits for the answer, as Call does: until ctx ends, or at once with ErrUnanswered where none can come. It is called
// once, also by who does not want to wait any more, with a ctx that has ended.
func (c *StartedCall) Wait(ctx context.Context) (out Answer[json.RawMessage], err error) {
	defer c.end()
	if c.dropped() && c.db == nil {
		return out, fmt.Errorf("call: %w: the stream had a message with this id, and only that one is answered", ErrUnanswered)
	}
	for pause := callLook; ; pause = min(2*pause, callLookMax) {
		if c.db != nil && (c.dropped() || pause > callLook) {
			if out, ok, err := c.look(ctx); ok || err != nil {
				return out, err
			}
		}
		waiting, cancel := context.WithTimeout(ctx, pause)
		m, err := c.answers.NextMsgWithContext(waiting)
		cancel()
		switch {
		case err == nil:
			return c.answerIn(m)
		case ctx.Err() != nil:
			return out, fmt.Errorf("call: %w: %w", ErrUnanswered, context.Cause(ctx))
		case !errors.Is(err, context.DeadlineExceeded):
			return out, fmt.Errorf("call: %w: wait for the answer: %w", ErrUnanswered, err)
		}
	}
}

// look reads the task. A task that is not there yet, or not over, is waited for; and so is a database that is away.
func (c *StartedCall) look(ctx context.Context) (out Answer[json.RawMessage], over bool, err error) {
	t, err := idemstore.Outcome(ctx, c.db, c.kind, c.key, c.hash)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err != nil && ctx.Err() == nil:
		return out, false, nil
	case err != nil:
		return out, false, fmt.Errorf("call: %w: %w", ErrUnanswered, context.Cause(ctx))
	case !t.Status.Final() && t.Status != idemstore.NeedsReview:
		return out, false, nil
	}
	byAnother := c.dropped() || t.Origin.Sequence != c.Publication.Sequence // message was the task brought
	return Answer[json.RawMessage]{Status: t.Status, Result: t.Result, Replayed: byAnother, TaskID: t.TaskID, Key: c.key}, true, nil
}

// answerIn reads a worker's answer.
func (c *StartedCall) answerIn(m *nats.Msg) (out Answer[json.RawMessage], err error) {
	h := headers(m.Header)
	if h.Get(headerStatus) == statusRefused {
		var r struct {
			Reason idemstore.Reason `json:"reason"`
			Detail string           `json:"detail"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return out, fmt.Errorf("call: read the refusal: %w", err)
		}
		return out, &InvalidJobError{Reason: r.Reason, Detail: r.Detail}
	}
	out.Status, out.Key, out.Replayed = idemstore.Status(h.Get(headerStatus)), c.key, h.Get(headerReplayed) == "true"
	if out.TaskID, err = strconv.ParseInt(h.Get(headerTask), 10, 64); err != nil {
		return out, fmt.Errorf("call: read the answer: %w", err)
	}
	if string(m.Data) != "null" {
		out.Result = m.Data
	}
	return out, nil
}
