package consumer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/settlemq/settle/idemstore"
)

// attempt is what the parts of the engine work on: it holds nothing and can neither send nor save.
func (x *pressing) attempt(ctx context.Context) (*attempt, Acted) {
	value, err := x.kind.decodeRow(x.task.Payload)
	if err != nil {
		return nil, x.refuse("this build cannot read its content (%s)", errorText(err))
	}
	return &attempt{delivery: x.delivery, task: x.task, job: value, trace: traceparent(ctx), readOnly: true}, Acted{}
}

// closing is a final outcome that no attempt brings.
type closing struct {
	to         idemstore.Status
	result     any    // of the kind's type; nil if there is none, and then the kind has no local rows
	word       []byte // what is stored instead, of a decision without a result
	externalID string // if the result has none
	cause      error  // of failed
	class      string
	source     Source
	reason     string // for the audit
	done       string // for the person
	force      bool
	unsent     bool
}

// failed completes a closing that rests on a person's word alone: the word is the result that is replayed.
func (x *pressing) failed(word string, c closing) closing {
	reason, _ := cleanText([]byte(x.press.Reason), maxErrorText)
	c.to, c.source, c.result = idemstore.Failed, Resolved, x.kind.results.none()
	c.class, c.reason, c.cause = "resolved", word, fmt.Errorf("%s by a person: %s", word, reason)
	c.word, _ = json.Marshal(struct { // strings always encode
		Resolved string `json:"resolved"`
		Reason   string `json:"reason"`
	}{word, reason})
	return c
}

// close commits a final outcome with the kind's local rows and events.
func (x *pressing) close(ctx context.Context, a *attempt, c closing) (Acted, error) {
	s := a.saveFor(decision{status: c.to}, c.cause)
	if s.Result = c.word; c.word == nil {
		if err := a.addResult(&s, conclusion{result: c.result, source: c.source}); err != nil {
			return x.refuse("its result cannot be stored: %s", errorText(err)), nil
		}
	}
	s.ExternalID, s.ErrorClass = or(or(s.ExternalID, c.externalID), x.task.ExternalID), c.class
	a.task.Attempt++ // the act counts as one
	if a.kind.commit != nil {
		if err := a.addWrites(&s, conclusion{result: c.result, err: c.cause, source: c.source}); err != nil {
			return x.refuse("nothing was changed, for its local rows cannot be made: %s", errorText(err)), nil
		}
	}
	if c.to == idemstore.Finished {
		s.Applied = a.versionApplied(ctx, conclusion{source: c.source})
	}
	return x.write(ctx, c.done, func(ctx context.Context) (idemstore.Task, error) {
		return x.o.engine.store.Resolve(ctx, x.task.Shown(), x.by(ctx, c.reason), idemstore.Resolution{To: c.to,
			ExternalID: s.ExternalID, Result: s.Result, ResultAltered: s.ResultAltered, ProviderStatus: s.ProviderStatus, Answer: s.Answer,
			LastError: s.LastError, ErrorClass: s.ErrorClass, Retention: s.Retention, Applied: s.Applied,
			Writes: s.Writes, Emits: s.Emits, Force: c.force, Unsent: c.unsent})
	})
}
