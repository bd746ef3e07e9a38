package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlemq/settle/idemstore"
)

// Ask asks the provider what became of a task that is unknown, needs review, or whose attempt has died. It is read-only
// there and here, but for a line in the history; a definite answer closes the task, with the kind's local rows. It blocks
// for at most the kind's deadline, and the errors and answers are those of Retry.
func (o *Operator) Ask(ctx context.Context, task idemstore.Task, by ActOptions) (Acted, error) {
	return o.press(ctx, ActAsk, task, by, false, func(ctx context.Context, x *pressing) (Acted, error) {
		a, no := x.attempt(ctx)
		if a == nil {
			return no, nil
		}
		r := x.look(ctx, a)
		if !r.definite() {
			return x.heard(ctx, OutcomeAsked, r.String(), r)
		}
		acted, err := x.adopt(ctx, a, r, closing{reason: "asked by hand"})
		if err != nil || acted.Outcome != OutcomeRefused {
			return acted, err
		}
		return x.heard(ctx, OutcomeRefused, acted.Message, r)
	})
}

// heard ends an act that only learnt something: its history says what.
func (x *pressing) heard(ctx context.Context, out ActOutcome, what string, r reading) (Acted, error) {
	acted, err := x.write(ctx, what, func(ctx context.Context) (idemstore.Task, error) {
		return x.task, x.o.engine.store.Note(ctx, x.task.TaskID, x.by(ctx, what), r.id)
	})
	if acted.Outcome == OutcomeDone || out == OutcomeRefused {
		acted.Outcome = out
	}
	return acted, err
}

// reading is what one look-up said.
type reading struct {
	result  any
	verdict Verdict
	err     error
	id      string // in the result
	moved   bool   // the task was sent to another provider than the one that was asked
}

func (r reading) definite() bool { return r.verdict == Found || r.verdict == FoundRefused }

// String is the reading as a person reads it.
func (r reading) String() string {
	said := r.said()
	if r.moved && !r.definite() {
		said += elsewhere
	}
	return said
}

// elsewhere warns of an answer that speaks for another provider.
const elsewhere = " (but it was sent to another provider than the one that is set here)"

func (r reading) said() string {
	switch r.verdict {
	case Found:
		return "the provider was asked: it happened" + as(r.id)
	case FoundRefused:
		return "the provider was asked: it refused it" + as(r.id)
	case Absent:
		return "the provider was asked: it does not know it"
	case Running:
		return "the provider was asked: it is still under way there"
	case Contradictory:
		return "the provider was asked: it has other content, or two effects" + as(r.id)
	case CannotTell:
	}
	if r.err != nil {
		return "the provider was asked and could not tell: " + errorText(r.err)
	}
	return "the provider was asked and could not tell"
}

// twoEffects reports whether two ids of the provider are known for one task.
func twoEffects(t idemstore.Task) bool {
	return t.ExternalID != "" && t.EvidenceID != "" && t.ExternalID != t.EvidenceID
}

func as(id string) string {
	if id == "" {
		return ""
	}
	return " as " + id
}

// look runs the kind's look-up. Nothing can leave that has an effect: no gate is open.
func (x *pressing) look(ctx context.Context, a *attempt) (r reading) {
	r.result, r.verdict, r.err = a.lookup(ctx)
	r.moved = a.moved()
	if r.result != nil {
		if id, err := a.idOf(r.result); err == nil {
			r.id, _ = cleanText([]byte(id), maxExternalID)
		}
	}
	return r
}

// adopt closes a task with what the provider says. Where two ids are known that answers for one of them only, so it takes
// a person who has looked at both.
func (x *pressing) adopt(ctx context.Context, a *attempt, r reading, c closing) (Acted, error) {
	if x.act == ActAsk && twoEffects(x.task) {
		return x.refuse("%s, and another effect is known%s; look at both and resolve it", r, as(x.task.EvidenceID)), nil
	}
	c.to, c.result, c.source, c.done = idemstore.Finished, r.result, LookedUp, r.String()
	if r.verdict == FoundRefused {
		c.to, c.cause = idemstore.Failed, errors.New("refused by the provider")
	}
	c.reason = fmt.Sprintf("%s; %s", c.reason, r)
	acted, err := x.close(ctx, a, c)
	if acted.Outcome == OutcomeRefused { // somebody knows the outcome, and the row does not
		acted.Message = fmt.Sprintf("%s; %s", r, acted.Message)
	}
	return acted, err
}
