package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// delivery is one try of JetStream at a message: receive, decode, claim, then an attempt or an answer, settle. A task that
// is taken up without its message has neither msg nor meta, and nothing to settle; see recover.go.
type delivery struct {
	engine    *Engine
	kind      *kind
	msg       jetstream.Msg
	born      int64 // the consumer that it came from, by its time of creation
	meta      *jetstream.MsgMetadata
	by        taker  // of a recovery
	outcome   string // that was committed, in plain words
	span      trace.Span
	labels    labels
	permit    permit
	oursUntil atomic.Pointer[time.Time]
	handlers  sync.WaitGroup // handler calls that have not returned

	log  *slog.Logger
	key  string                         // once it is known
	task atomic.Pointer[idemstore.Task] // of the attempt; the heartbeat reads it for its lines

	learntID atomic.Pointer[string] // the provider's id of the effect, once the attempt brings one
}

func (e *Engine) newDelivery(k *kind) *delivery {
	d := &delivery{engine: e, kind: k}
	d.log = slog.New(journal{e.log.Handler(), d})
	return d
}

// handle runs one delivery to its end.
func (d *delivery) handle(ctx context.Context) {
	meta, err := d.msg.Metadata()
	if err != nil {
		d.log.ErrorContext(ctx, "message without JetStream metadata left alone", "error", err)
		return
	}
	d.meta = meta
	ctx, d.span = d.engine.startDelivery(ctx, d)
	defer d.span.End()
	if ignoresReply(d.msg.Headers()) {
		d.span.SetAttributes(attribute.Bool(attrReplyIgnored, true))
		d.log.InfoContext(ctx, "Settle-Reply ignored: no subject below _INBOX. or settle.reply. that can be used")
	}
	s := d.run(ctx)
	if d.span.IsRecording() {
		d.span.SetAttributes(attribute.String(attrVerb, s.verb.String()))
	}
	d.settle(context.WithoutCancel(ctx), s)
}

// run decodes and claims, and says how the delivery ends.
func (d *delivery) run(ctx context.Context) settlement {
	j, err := d.kind.readMessage(d.msg.Headers(), d.msg.Data(), d.engine.config.MaxBody)
	if err != nil {
		return d.refuse(ctx, idemstore.Refusal{}, err)
	}
	d.key = j.key
	d.label(attrKey, j.key)
	if d.kind.apply != nil && d.kind.steps == nil && d.meta.NumDelivered == 1 {
		return d.applyNew(ctx, j)
	}
	return d.claimAndProceed(ctx, d.claimOf(ctx, j), j)
}

func (d *delivery) claimAndProceed(ctx context.Context, c idemstore.Claim, j job) settlement {
	claimed, sent, err := d.claim(ctx, c)
	if err != nil {
		return d.notClaimed(ctx, err)
	}
	return d.proceed(ctx, claimed, sent, j)
}

// proceed does what a claim calls for.
func (d *delivery) proceed(ctx context.Context, claimed idemstore.Claimed, sent time.Time, j job) settlement {
	d.describe(claimed)
	linkTo(d.span, claimed.PreviousTrace) // of a repeat: the attempt that did the work
	//nolint:exhaustive // answer decides the rest, in a switch over all of them
	switch claimed.Found {
	case idemstore.Inserted, idemstore.Perform, idemstore.Ask:
		return d.attempt(ctx, claimed, sent, j)
	case idemstore.Conflicting:
		return d.refuse(ctx, idemstore.Refusal{Key: j.key, TaskID: claimed.Task.TaskID}, &refusalError{
			reason: idemstore.Conflict, detail: conflictDetail(j, claimed.Task)})
	}
	return d.answer(ctx, claimed)
}

// claim asks for an attempt at a key. sent is a moment before the claim left: the lease cannot have begun
// earlier.
func (d *delivery) claim(ctx context.Context, claim idemstore.Claim) (c idemstore.Claimed, sent time.Time, err error) {
	ctx, span := d.engine.start(ctx, spanClaim)
	defer func() { endSpan(span, err) }()
	ctx = context.WithoutCancel(ctx)
	sent = now()
	defer d.kind.meters.claim.since(sent)
	if !claim.Recovery && d.meta.NumDelivered == 1 { // a hint only: Claim is right for every key, ClaimNew is faster for a new one
		c, err = d.engine.newClaims.do(ctx, claim)
		claim.Taken = c.Found == idemstore.Taken
	}
	if err == nil && c.Found == idemstore.Taken {
		c, err = d.engine.claims.do(ctx, claim)
	}
	if err != nil {
		return c, sent, err
	}
	if span.IsRecording() {
		span.SetAttributes(append(taskLabels(&c.Task), attribute.String(attrFound, string(c.Found)))...)
	}
	return c, sent, nil
}

// claimOf is the claim of a message.
func (d *delivery) claimOf(ctx context.Context, j job) idemstore.Claim {
	c := d.claimKey(ctx, j.key)
	c.Payload, c.Hash, c.HashAlgorithm, c.Refs, c.Event = j.payload, j.hash, hashAlgorithm, j.refs, j.event
	c.Origin = idemstore.Origin{Stream: d.meta.Stream, Sequence: d.meta.Sequence.Stream, Stored: d.meta.Timestamp}
	c.Reply, c.OriginTrace = replySubject(d.msg.Headers()), or(originTrace(d.msg.Headers()), c.Trace)
	return c
}

// claimKey is what every claim has, with a fresh token. Its trace is the delivery's: later attempts link to it.
func (d *delivery) claimKey(ctx context.Context, key string) idemstore.Claim {
	return idemstore.Claim{
		Kind: d.kind.name, Key: key, Token: uuid.New(), Trace: traceparent(ctx),
		Provider:    d.kind.provider.Identity,
		ProviderKey: d.kind.providerKey(key),
		Lease:       d.engine.config.Lease, MaxAge: d.kind.policy.MaxAge, MaxFailures: d.kind.policy.MaxFailures,
		Local: d.kind.apply != nil, Actor: d.by.actor,
	}
}

// notClaimed: without an answer from the database nothing is known, so nothing is done. If the claim may have been
// committed the delivery stays silent, for a nak would bring the message back while that lease still runs.
func (d *delivery) notClaimed(ctx context.Context, err error) settlement {
	d.engine.database.failed(err)
	if errors.Is(err, idemstore.ErrCommitUnanswered) {
		d.log.WarnContext(ctx, "claim not answered; staying silent", "error", err)
		return settlement{verb: silent}
	}
	wait := d.kind.policy.delay(waitFailures, counts{failures: int(d.meta.NumDelivered) - 1, jitter: rand.Float64()})
	d.log.WarnContext(ctx, "claim failed; giving the message back", "error", err, "delay", wait)
	return settlement{verb: nak, delay: wait}
}

// answer ends a delivery that got no attempt.
func (d *delivery) answer(ctx context.Context, c idemstore.Claimed) settlement {
	a := answerTo(c.Found)
	wait := d.kind.policy.delay(a.wait, counts{hint: c.Wait, jitter: rand.Float64()})
	level := slog.LevelInfo
	if a.alert {
		level = slog.LevelWarn
		d.alert(c)
	}
	if d.log.Enabled(ctx, level) {
		d.log.Log(ctx, level, "answered from the row", "task", c.Task.TaskID, "found", string(c.Found),
			"status", string(c.Task.Status), "attempt", c.Task.Attempt, "provider_key", c.Task.ProviderKey, "external_id", c.Task.ExternalID,
			"settle", a.verb.String(), "delay", wait)
	}
	if c.Found == idemstore.Busy && d.waitsForAnswer() {
		wait = min(wait, d.kind.policy.delay(waitShort, counts{jitter: rand.Float64()}))
	}
	return settlement{verb: a.verb, delay: wait, reply: d.replyOf(&c.Task, c.Task.Status, c.Task.Result, c.Found != idemstore.Spent)}
}

// alert calls a person about what a claim found.
func (d *delivery) alert(c idemstore.Claimed) {
	if c.Found == idemstore.Incomparable {
		d.engine.alarm.raise(incomparableAlert(d.kind.name, c.Task.TaskID))
		return
	}
	d.engine.alarm.raise(reviewAlert(d.kind.name, c.Task.Cause, c.Task.TaskID))
}

// refuse keeps a message that is not accepted and then ends it. Without the line there is no term: the message
// would be lost.
func (d *delivery) refuse(ctx context.Context, r idemstore.Refusal, cause error) settlement {
	reason := refusalReason(cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	refusal := attribute.String(attrRefusal, string(reason))
	d.span.SetAttributes(refusal)
	ctx, span := d.engine.start(ctx, spanRefuse, refusal)
	r.Kind, r.Reason, r.Subject = d.kind.name, reason, d.msg.Subject()
	r.Detail = errorText(cause)
	r.Origin = idemstore.Origin{Stream: d.meta.Stream, Sequence: d.meta.Sequence.Stream, Stored: d.meta.Timestamp}
	r.Headers, r.Body = d.msg.Headers(), d.msg.Data()
	err := d.engine.store.Refuse(ctx, r)
	endSpan(span, err)
	if err != nil {
		return d.notClaimed(ctx, err)
	}
	d.engine.meters.refusals[reason].one()
	if reason == idemstore.Conflict {
		d.engine.alarm.raise(conflictAlert(d.kind.name, r.TaskID))
	}
	d.log.WarnContext(ctx, "message refused", "reason", string(reason), "detail", r.Detail)
	return settlement{verb: term, reply: d.replyOfRefusal(r)}
}

// refusalReason is the reason of a refusal; an error that does not say is a malformed message.
func refusalReason(err error) idemstore.Reason {
	var r *refusalError
	if errors.As(err, &r) {
		return r.reason
	}
	return idemstore.Malformed
}
