package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// Operator does by hand what the engine does not do by itself: it takes a person's decisions about single tasks. It works
// beside any number of engines, through the same table: whatever it does is compared with what the person saw, in the
// statement, so that two people, or a person and a worker, never overwrite each other. It sends nothing: attempts are left
// to the engines.
//
// It is safe for concurrent use and runs nothing in the background.
type Operator struct {
	engine *Engine // never runs; its parts do the asking
	kinds  map[string]*kind
}

// NewOperator checks a configuration and the kinds against each other, as New does. They must be those of the engines that
// serve the kinds: age limits, retention and the provider come from there. The pool stays the caller's.
func NewOperator(pool *pgxpool.Pool, c Config, kinds ...Definition) (*Operator, error) {
	c = c.withDefaults()
	defs, err := defineAll(c, kinds)
	if err := errors.Join(c.check(), err); err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("consumer: NewOperator needs a pool")
	}
	o := &Operator{kinds: map[string]*kind{}, engine: &Engine{config: c, pool: pool, store: idemstore.New(pool, c.Lease),
		log: textualLog(c.Logger), tracer: c.TracerProvider.Tracer(scopeName), meters: &meters{off: true}, alarm: newAlarm()}}
	for _, d := range defs {
		k := &kind{definition: d, meters: unmeasured}
		o.kinds[d.name], o.engine.kinds = k, append(o.engine.kinds, k)
	}
	o.engine.addRemotes() // without breakers and caps: a person asks about one task
	return o, nil
}

// ActOptions say who acts, and why. Both are kept in the audit for ever.
type ActOptions struct {
	Actor  string // who; required
	Reason string // why; required, but by Ask and in a dry run
	DryRun bool   // say what would happen and write nothing; the provider may be asked
}

// ActOutcome says what came of an act.
type ActOutcome string

// The outcomes of an act.
const (
	OutcomeDone      ActOutcome = "done"
	OutcomeAsked     ActOutcome = "asked"   // the provider was asked and settled nothing: only the history has a new line
	OutcomeRefused   ActOutcome = "refused" // the task's state, the provider or the database forbids it; nothing was changed
	OutcomeOvertaken ActOutcome = "changed" // somebody else was faster; nothing was changed
	OutcomeWouldDo   ActOutcome = "dry_run" // it would be done
	OutcomeDropped   ActOutcome = "dropped" // of Republish: the stream has the message from before and took it for a repeat
)

// Acted is what came of an act.
type Acted struct {
	Task    idemstore.Task // as the act left it, or as it is if the act was refused
	Outcome ActOutcome
	Message string // in plain words, without the key
}

// AllowedActs are the acts that a task allows at the moment when it was read. It does no I/O, and the statement of an act
// compares again.
func (o *Operator) AllowedActs(t idemstore.Task) []AllowedAct {
	k, known := o.kinds[t.Kind]
	if !known {
		return []AllowedAct{{ActNote, deedNote.effect(ActNote)}}
	}
	return actFactsOf(t, k.lookup != nil, false).options()
}

// Retry lets a task that needs review, or has failed, be attempted once more by the engines, under the same provider key,
// with its budget given back. If it may have been sent, the provider is asked first. A task that is done at the provider
// and only lacks its local rows gets them at once, and nothing is sent.
//
// task is what the person saw. An error means that nobody knows, or that the input cannot be used (ErrInput); that the
// task does not allow it is no error. The other acts answer in the same way.
func (o *Operator) Retry(ctx context.Context, task idemstore.Task, by ActOptions) (Acted, error) {
	return o.press(ctx, ActRetry, task, by, false, func(ctx context.Context, x *pressing) (Acted, error) {
		if x.deed == deedBook {
			return x.book(ctx)
		}
		return x.again(ctx)
	})
}

// SendAgain is Retry with permission for one resend that does not rest on the provider's key, once the provider surely does
// not know the effect. It is for a task that may have been sent and of which no external id is known.
func (o *Operator) SendAgain(ctx context.Context, task idemstore.Task, by ActOptions) (Acted, error) {
	return o.press(ctx, ActSendAgain, task, by, false, func(ctx context.Context, x *pressing) (Acted, error) { return x.again(ctx) })
}

// Cancel gives up a task of which nothing can have left. It becomes failed, and the kind's Commit runs with the reason as
// the refusal.
func (o *Operator) Cancel(ctx context.Context, task idemstore.Task, by ActOptions) (Acted, error) {
	return o.press(ctx, ActCancel, task, by, false, func(ctx context.Context, x *pressing) (Acted, error) {
		a, no := x.attempt(ctx)
		if a == nil {
			return no, nil
		}
		switch done, err := o.engine.store.StepsDone(ctx, task.TaskID); {
		case err != nil:
			return Acted{}, fmt.Errorf("cancel: %w", err)
		case len(done) > 0:
			return x.refuse("%d of its records are done already, and stay; retry does the others", len(done)), nil
		}
		return x.close(ctx, a, x.failed("cancelled", closing{unsent: true, done: x.effect()}))
	})
}

// Supersede gives a task of which nothing can have left the content of a refused message with the same key, and lets it be
// attempted. refusal is the id of settle.refusals.
func (o *Operator) Supersede(ctx context.Context, task idemstore.Task, by ActOptions, refusal int64) (Acted, error) {
	return o.press(ctx, ActSupersede, task, by, false, func(ctx context.Context, x *pressing) (Acted, error) {
		return x.supersede(ctx, refusal)
	})
}

func (x *pressing) supersede(ctx context.Context, refusal int64) (Acted, error) {
	store := x.o.engine.store
	r, err := store.FindRefusal(ctx, refusal)
	switch {
	case errors.Is(err, idemstore.ErrNotFound):
		return Acted{}, fmt.Errorf("supersede: %w: there is no refusal %d", ErrInput, refusal)
	case err != nil:
		return Acted{}, fmt.Errorf("supersede: %w", err)
	}
	j, err := x.contentOf(r)
	if err != nil {
		return Acted{}, fmt.Errorf("supersede: %w: refusal %d: %w", ErrInput, refusal, err)
	}
	switch done, err := store.StepsDone(ctx, x.task.TaskID); {
	case err != nil:
		return Acted{}, fmt.Errorf("supersede: %w", err)
	case len(done) > 0:
		return x.refuse("%d records of its content are done already", len(done)), nil
	}
	return x.write(ctx, x.effect(), func(ctx context.Context) (idemstore.Task, error) {
		return store.Supersede(ctx, x.task.Shown(), x.by(ctx, fmt.Sprintf("content replaced by that of refusal %d", refusal)),
			idemstore.Another{Payload: j.payload, Hash: j.hash, HashAlgorithm: hashAlgorithm, Refs: j.refs, MaxAge: x.kind.policy.MaxAge})
	})
}

// contentOf reads the job that a task is to take from a refusal.
func (x *pressing) contentOf(r idemstore.KeptRefusal) (job, error) {
	switch {
	case r.Kind != x.task.Kind:
		return job{}, fmt.Errorf("it is of kind %q", r.Kind)
	case r.Cut:
		return job{}, errors.New("only the beginning of its body was kept")
	}
	j, err := x.kind.readMessage(r.Headers, r.Body, x.o.engine.config.MaxBody)
	switch {
	case err != nil:
		return job{}, err
	case j.key != x.task.Key:
		return job{}, errors.New("it has another key")
	}
	return j, nil
}

// Note adds a line to the history of a task, whatever its status and its kind.
func (o *Operator) Note(ctx context.Context, task idemstore.Task, by ActOptions) (Acted, error) {
	return o.press(ctx, ActNote, task, by, false, func(ctx context.Context, x *pressing) (Acted, error) {
		return x.write(ctx, x.effect(), func(ctx context.Context) (idemstore.Task, error) {
			return task, o.engine.store.Note(ctx, task.TaskID, x.by(ctx, "note"), "")
		})
	})
}

// pressing is an act while it is done.
type pressing struct {
	o        *Operator
	delivery *delivery // for the parts of the engine that work on one; it has no message
	kind     *kind
	task     idemstore.Task
	press    ActOptions
	act      Act
	deed     deed
}

// effect is what the act comes to.
func (x *pressing) effect() string { return x.deed.effect(x.act) }

// press checks an act and does it, under a span of its own.
func (o *Operator) press(ctx context.Context, a Act, t idemstore.Task, p ActOptions, force bool,
	do func(context.Context, *pressing) (Acted, error)) (out Acted, err error) {
	if err := p.check(a); err != nil {
		return Acted{}, err
	}
	k, known := o.kinds[t.Kind]
	if !known && a != ActNote {
		return Acted{}, fmt.Errorf("%s: %w: this build knows no kind %q", a, ErrInput, t.Kind)
	}
	d, why := decideAct(actFactsOf(t, known && k.lookup != nil, force), a)
	if d == deedNone {
		return Acted{t, OutcomeRefused, why.String()}, nil
	}
	x := &pressing{o: o, kind: k, task: t, press: p, act: a, deed: d, delivery: o.engine.newDelivery(k)}
	x.delivery.key = t.Key
	x.delivery.task.Store(&t)
	ctx = o.engine.startAct(ctx, x.delivery, t, a)
	defer func() {
		x.delivery.span.SetAttributes(attribute.String(attrOutcome, string(out.Outcome)), attribute.String(attrStatus, string(out.Task.Status)))
		endSpan(x.delivery.span, err)
	}()
	return do(ctx, x)
}

func (p ActOptions) check(a Act) error {
	switch {
	case strings.TrimSpace(p.Actor) == "":
		return fmt.Errorf("%s: %w: nobody is named who does it", a, ErrInput)
	case strings.TrimSpace(p.Reason) == "" && a != ActAsk && !p.DryRun:
		return fmt.Errorf("%s: %w: a reason is required", a, ErrInput)
	}
	return nil
}

// maxActor bounds a name in the audit, in bytes.
const maxActor = 128

// by is who acts and why, for the audit: what was done, and the person's own words.
func (x *pressing) by(ctx context.Context, what string) idemstore.By {
	actor, _ := cleanText([]byte(x.press.Actor), maxActor)
	if x.press.Reason != "" {
		what += ": " + x.press.Reason
	}
	reason, _ := cleanText([]byte(what), maxErrorText)
	return idemstore.By{Actor: actor, Reason: reason, Trace: traceparent(ctx)}
}

// again lets the engines attempt the task once more.
func (x *pressing) again(ctx context.Context) (Acted, error) {
	effect := x.effect()
	if x.act == ActSendAgain && sentElsewhere(x.task, x.kind) {
		effect += elsewhere
	}
	return x.write(ctx, effect, func(ctx context.Context) (idemstore.Task, error) {
		return x.o.engine.store.Retry(ctx, x.task.Shown(), x.by(ctx, string(x.act)),
			idemstore.RetryTo{MaxAge: x.kind.policy.MaxAge, ResendOnce: x.act == ActSendAgain})
	})
}

// book commits the local rows of an effect whose result is on the row.
func (x *pressing) book(ctx context.Context) (Acted, error) {
	a, no := x.attempt(ctx)
	if a == nil {
		return no, nil
	}
	result, err := x.kind.results.stored(x.task.Result)
	if err != nil {
		return x.refuse("this build cannot read the stored result (%s); resolve it with a result", errorText(err)), nil
	}
	return x.close(ctx, a, closing{to: idemstore.Finished, result: result, source: Performed, reason: "booked from the stored result",
		done: x.effect()})
}

func (x *pressing) refuse(format string, args ...any) Acted {
	return Acted{x.task, OutcomeRefused, fmt.Sprintf(format, args...)}
}

// write does what an act comes to, unless this is a dry run. Once begun it does not end with ctx, but within the time of a save.
func (x *pressing) write(ctx context.Context, effect string, do func(context.Context) (idemstore.Task, error)) (Acted, error) {
	if x.press.DryRun {
		return Acted{x.task, OutcomeWouldDo, effect}, nil
	}
	if ctx.Err() != nil {
		return Acted{}, fmt.Errorf("%s: nothing was changed: %w", x.act, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	t, err := do(ctx)
	return x.answer(ctx, t, err, effect)
}

// answer tells a person what came of an act.
func (x *pressing) answer(ctx context.Context, t idemstore.Task, err error, done string) (Acted, error) {
	var rows *idemstore.LocalRowsError
	switch {
	case err == nil:
		return Acted{t, OutcomeDone, done}, nil
	case errors.As(err, &rows):
		return x.refuse("nothing was changed, for the database refuses its local rows: %s", errorText(rows.Err)), nil
	case errors.Is(err, idemstore.ErrOtherExternalID):
		return x.refuse("another external id is known already (%s); an external id is never replaced",
			or(x.task.ExternalID, x.task.EvidenceID)), nil
	case !errors.Is(err, idemstore.ErrChanged):
		return Acted{}, err
	}
	fresh, err := x.o.engine.store.FindByID(ctx, x.task.TaskID)
	if err != nil {
		return Acted{}, fmt.Errorf("%s: %w", x.act, err)
	}
	return Acted{fresh, OutcomeOvertaken, fmt.Sprintf("it has changed since it was looked at: it is %s now, after attempt %d; look again",
		fresh.Status, fresh.Attempt)}, nil
}
