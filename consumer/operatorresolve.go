package consumer

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
)

// Ruling is what a person says became of a task.
type Ruling struct {
	As         idemstore.Status // Finished or Failed
	ExternalID string           // the provider's id, if one is known
	// Result is the result of Finished as JSON, decoded strictly into the kind's own type. A kind with local rows needs it
	// unless the provider says that it happened, or the row has a whole one.
	Result []byte
	// Force decides also over an attempt that is at work, and while the provider still is. What was sent stays sent.
	Force bool
}

func (r Ruling) check() error {
	switch {
	case !r.As.Final():
		return fmt.Errorf("resolve: %w: a task is resolved as finished or as failed, not as %q", ErrInput, r.As)
	case r.As == idemstore.Failed && r.Result != nil:
		return fmt.Errorf("resolve: %w: only what is finished has a result; what failed has the reason", ErrInput)
	case !asWritten(r.ExternalID):
		return errNotAsWritten
	}
	return nil
}

// errNotAsWritten refuses an id before it is stored for ever.
var errNotAsWritten = fmt.Errorf("resolve: %w: the external id has spaces around it, unprintable characters, or more than %d bytes", ErrInput, maxExternalID)

// asWritten reports whether an id can be what a provider gave, and not what else came with it from a clipboard.
func asWritten(id string) bool {
	return len(id) <= maxExternalID && utf8.ValidString(id) && strings.TrimSpace(id) == id &&
		!strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Resolve makes a task final that is unknown, needs review, or whose attempt has died. The provider is asked first, by what
// the row knows and then by the external id of the ruling, and what it surely says is taken, with its own result. If that
// contradicts the ruling, or if the provider is still at work, nothing is changed. Otherwise the ruling counts: finished with its result, or failed with the
// reason as the result. Either way the kind's Commit runs in the same transaction.
//
// It blocks for at most twice the kind's deadline. The errors and answers are those of Retry.
func (o *Operator) Resolve(ctx context.Context, task idemstore.Task, by ActOptions, r Ruling) (Acted, error) {
	if err := r.check(); err != nil {
		return Acted{}, err
	}
	return o.press(ctx, ActResolve, task, by, r.Force, func(ctx context.Context, x *pressing) (Acted, error) {
		a, no := x.attempt(ctx)
		if a == nil {
			return no, nil
		}
		given, err := x.given(a, &r)
		if err != nil {
			return Acted{}, err
		}
		heard := x.hear(ctx, a, r)
		switch decideRuling(r, heard) {
		case rulingKnown:
			return x.adopt(ctx, a, heard, closing{reason: "resolved as " + string(r.As), force: r.Force})
		case rulingContradicted:
			return x.refuse("nothing was changed: %s, which contradicts the decision; ask takes the provider's answer", heard), nil
		case rulingTooEarly:
			return x.refuse("nothing was changed: %s; wait until that has ended, or resolve it with force", heard), nil
		case rulingCounts:
		}
		return x.rule(ctx, a, r, given, heard)
	})
}

// given decodes the result of a ruling, if there is one, and lets it and the external id agree.
func (x *pressing) given(a *attempt, r *Ruling) (any, error) {
	if r.Result == nil {
		return nil, nil
	}
	result, err := x.kind.results.given(r.Result)
	if err != nil {
		return nil, err
	}
	id, err := a.idOf(result)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: result: take external id: %w", ErrInput, err)
	case !asWritten(id):
		return nil, errNotAsWritten
	case r.ExternalID != "" && r.ExternalID != id:
		return nil, fmt.Errorf("%w: the external id %q is not the one in the result, %q", ErrInput, r.ExternalID, id)
	}
	r.ExternalID = id
	return result, nil
}

// hear asks the provider by what the row knows, and if that settles nothing by the external id that the person names.
func (x *pressing) hear(ctx context.Context, a *attempt, r Ruling) reading {
	if x.kind.lookup == nil {
		return reading{}
	}
	first := x.look(ctx, a)
	if first.definite() || r.ExternalID == "" || a.knownID() != "" {
		return first
	}
	a.task.ExternalID = r.ExternalID // of the look-up only: the task itself has none
	second := x.look(ctx, a)
	if second.definite() || second.verdict == Contradictory {
		second.id = or(second.id, r.ExternalID)
		return second
	}
	return first
}

// ruling is what counts.
type ruling int

const (
	rulingCounts       ruling = iota // the person's word: nobody else can tell
	rulingKnown                      // the provider says the same, and knows more
	rulingContradicted               // the provider says otherwise
	rulingTooEarly                   // the provider is still at work, so either may come of it
)

// decideRuling weighs a person's word against the provider's. Only a definite answer is more than a word; other content
// counts against it if it was found under the very id that the person names. While the provider is still at work nobody can
// know, so a word takes force.
func decideRuling(r Ruling, heard reading) ruling {
	agrees := r.ExternalID == "" || heard.id == r.ExternalID
	switch heard.verdict {
	case Found:
		if r.As == idemstore.Finished && agrees {
			return rulingKnown
		}
		return rulingContradicted
	case FoundRefused:
		if r.As == idemstore.Failed && agrees {
			return rulingKnown
		}
		return rulingContradicted
	case Contradictory:
		if r.As == idemstore.Finished && r.ExternalID != "" && heard.id == r.ExternalID {
			return rulingContradicted
		}
	case Running:
		if !r.Force {
			return rulingTooEarly
		}
	case CannotTell, Absent:
	}
	return rulingCounts
}

// rule closes a task by a person's word.
func (x *pressing) rule(ctx context.Context, a *attempt, r Ruling, given any, heard reading) (Acted, error) {
	said := "; " + heard.String()
	if x.kind.lookup == nil {
		said = "; the provider cannot be asked"
	}
	if x.kind.apply != nil {
		said = ""
	}
	if r.As == idemstore.Failed {
		c := x.failed("failed", closing{externalID: r.ExternalID, force: r.Force, done: "it has failed, by decision" + said})
		c.reason = "resolved as failed" + said
		return x.close(ctx, a, c)
	}
	if given == nil && actFactsOf(x.task, false, false).bookable() {
		given, _ = x.kind.results.stored(x.task.Result) // if this build cannot read it, one must be given
	}
	if given == nil && x.kind.commit != nil {
		return x.refuse("nothing was changed: local rows are made of its result, so a result must be given%s", said), nil
	}
	return x.close(ctx, a, closing{to: idemstore.Finished, result: given, externalID: r.ExternalID, source: Resolved, force: r.Force,
		reason: "resolved as finished" + said, done: "it is finished" + as(or(r.ExternalID, x.task.ExternalID)) + ", by decision" + said})
}
