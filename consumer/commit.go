package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// Bounds of what is stored of an outcome.
const (
	maxErrorText = 2 << 10
	maxResult    = 64 << 10
	maxAnswer    = 4 << 10

	maxExternalID = 512
)

// conclude turns an outcome into a decision and commits it.
func (a *attempt) conclude(ctx context.Context, out outcome, c conclusion) settlement {
	p := a.kind.provider
	answered := c.sent || c.status != 0 // a refusal of our own is not what an earlier request got
	d := decideOutcome(outcomeFacts{outcome: out, unsure: a.task.Unsure, sent: c.sent,
		replays: answered && a.young() && p.storesRefusal(c.status),
		asked:   !p.Unkeyed && (a.kind.lookup == nil || a.surelyAbsent)})
	if out == outcomeDrained || out == outcomeCutShort {
		c.err = nil // "context canceled" is our doing, and no news about the job; the audit says what happened
	}
	switch d.act {
	case giveBack:
		return a.giveBack(ctx, d, c)
	case nothing:
		a.leaveEvidence(ctx, c)
		a.log.WarnContext(ctx, "lease lost; staying silent", "error", errorText(c.err))
		return settlement{verb: silent}
	case saveIt, sendIt:
	}
	return a.commit(ctx, d, c)
}

// commit saves a decision, with the local rows and events of a final one, and says how the delivery ends.
func (a *attempt) commit(ctx context.Context, d decision, c conclusion) settlement {
	a.saving.Store(true) // the heartbeat leaves the row alone from here on
	d = a.marked(d, c.after)
	ctx = context.WithoutCancel(ctx)
	s, err := a.saveOf(ctx, d, c)
	if err != nil { // Commit itself failed: the effect is real, its booking is not
		return a.unbooked(ctx, d, c, err)
	}
	saved, err := a.save(ctx, s)
	var local *idemstore.LocalRowsError
	switch {
	case err == nil:
		return a.saved(ctx, d, s, saved)
	case errors.As(err, &local):
		return a.unbooked(ctx, d, c, err)
	case errors.Is(err, idemstore.ErrOtherExternalID) && a.knownID() == "" && (s.ExternalID == "" || c.refused()):
		return a.conclude(ctx, outcomeAskAgain, conclusion{err: c.err})
	case errors.Is(err, idemstore.ErrOtherExternalID):
		return a.twoEffects(ctx, c, s)
	}
	return a.notSaved(ctx, c, err)
}

// saveTimeout bounds a save with its repetitions; at a drain the process waits this much longer.
const saveTimeout = 10 * time.Second

// save runs the save under a span of its own, and again after errors that leave nothing committed, while time
// remains: giving up early would only trade a stored result for a look-up.
func (a *attempt) save(ctx context.Context, s idemstore.Save) (out idemstore.Saved, err error) {
	ctx, span := a.engine.start(ctx, spanSave)
	defer func() { endSpan(span, scrubError(err)) }() // local rows of a handler: Postgres quotes what does not fit
	if span.IsRecording() {
		span.SetAttributes(append(idLabel(s.ExternalID), attribute.String(attrStatus, string(s.Status)))...)
	}
	began := now()
	limit := began.Add(saveTimeout)
	defer a.kind.meters.save.since(began)
	if out, err = a.engine.saves.do(ctx, s); err == nil {
		return out, nil
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	for passing(err) {
		a.log.WarnContext(ctx, "save failed; trying again", "error", err)
		select {
		case <-ctx.Done():
			return out, err
		case <-a.engine.after(saveAgain):
		}
		out, err = a.engine.saves.do(ctx, s)
	}
	return out, err
}

// passing reports whether a save may pass a moment later.
func passing(err error) bool {
	var local *idemstore.LocalRowsError
	return err != nil && !errors.Is(err, idemstore.ErrLost) && !errors.Is(err, idemstore.ErrOtherExternalID) && !errors.As(err, &local)
}

const saveAgain = 200 * time.Millisecond

// saveFor is what every save of this attempt has in common.
func (a *attempt) saveFor(d decision, cause error) idemstore.Save {
	s := idemstore.Save{
		Fence: a.task.Fence, Kind: a.task.Kind, Key: a.task.Key, Strict: a.kind.policy.Lease == Strict,
		Status: d.status, Cause: d.cause, MayBeApplied: d.applied, Reason: a.reason(d), Actor: a.by.actor, Trace: a.outcomeTrace(d.status),
		Cost: d.cost, MaxFailures: a.kind.policy.MaxFailures, Retention: a.kind.policy.Retention,
		LastError: errorText(cause), ErrorClass: errorClassOf(cause),
	}
	if answer := a.answer.Load(); answer != nil {
		s.ProviderStatus = answer.status
		s.Answer = scrubbed(string(answer.body), maxAnswer)
	}
	return s
}

// reason is what the audit says of a decision. A job that went well says nothing, unless somebody had to take it up.
func (a *attempt) reason(d decision) string {
	if d.why == "" && a.by != (taker{}) {
		return "settled without its message"
	}
	return d.why
}

// saveOf puts together what is stored.
func (a *attempt) saveOf(ctx context.Context, d decision, c conclusion) (idemstore.Save, error) {
	p := a.kind.provider
	s := a.saveFor(d, c.err)
	if c.detail != "" {
		s.Reason += ": " + c.detail
	}
	if d.status == idemstore.Finished {
		s.Applied = a.versionApplied(ctx, c)
	}
	asked := c.verdict != ""
	s.AbsentNow, s.ClearAbsent = d.absentNow, asked && c.verdict != Absent.String()
	s.Delay = a.jittered(d.wait, d.cost, c.after)
	if d.settled == settleAlways || d.settled == settleUnkeyed && p.usableKey(a.kind.policy.Deadline) == 0 {
		s.Settle = p.AbsentAfter
	}
	if !d.status.Final() {
		if c.refused() {
			return s, nil // asking about this one would settle nothing: the open question is another
		}
		s.ExternalID, _ = a.externalID(c.result) // beside most errors handlers return an empty result, or a nil one
		return s, nil
	}
	if err := a.addResult(&s, c); err != nil || a.kind.commit == nil {
		return s, err
	}
	err := a.addWrites(&s, c)
	return s, err
}

// addResult stores what the handler brought back. A row has a result only if it is final, or if all that it lacks is
// its booking: whatever else comes with an id may still turn out otherwise. A skipped event has no id.
func (a *attempt) addResult(s *idemstore.Save, c conclusion) (err error) {
	if c.result == nil {
		return nil
	}
	if c.source != Skipped {
		s.ExternalID, err = a.externalID(c.result)
	}
	if err != nil {
		return fmt.Errorf("take external id: %w", err)
	}
	raw, err := encoded(c.result)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	s.Result, s.ResultAltered = cleanJSON(raw, maxResult)
	return nil
}

// externalID takes the provider's id out of a result, as it is stored. No result has none.
func (a *attempt) externalID(result any) (string, error) {
	if result == nil {
		return "", nil
	}
	id, err := a.idOf(result)
	if err != nil {
		return "", err
	}
	id, _ = cleanText([]byte(id), maxExternalID)
	if id != "" {
		a.learntID.Store(&id)
	}
	return id, nil
}

// addWrites lets the kind queue its local rows and events.
func (a *attempt) addWrites(s *idemstore.Save, c conclusion) error {
	w := &Writes{}
	f := final{job: a.job, result: c.result, key: a.task.Key, taskID: a.task.TaskID, attempt: a.task.Attempt,
		externalID: s.ExternalID, source: c.source}
	if f.result == nil { // Check refused: there is none, not even that of a refusal
		f.result = a.kind.results.none()
	}
	if s.Status == idemstore.Failed {
		f.refused = or(errorText(c.err), "refused by the provider")
	}
	if _, err := contain(func() (any, error) { return nil, a.kind.commit(w, f) }); err != nil {
		return fmt.Errorf("commit of kind %s: %w", a.kind.name, err)
	}
	for _, x := range w.statements {
		s.Writes = append(s.Writes, idemstore.Statement{SQL: x.sql, Args: x.args})
	}
	for _, x := range w.emits {
		if err := checkOutgoing(x.subject); err != nil {
			return fmt.Errorf("emit: %w", err)
		}
		payload, err := encoded(x.payload)
		if err != nil {
			return fmt.Errorf("encode event %s: %w", x.subject, err)
		}
		s.Emits = append(s.Emits, idemstore.Emit{Subject: x.subject, Key: x.key, Payload: payload, Trace: s.Trace})
	}
	return nil
}

// saved ends a delivery whose outcome is committed.
func (a *attempt) saved(ctx context.Context, d decision, s idemstore.Save, saved idemstore.Saved) settlement {
	level := slog.LevelInfo
	if d.alert || saved.Status == idemstore.NeedsReview {
		level = slog.LevelWarn
	}
	if saved.Status == idemstore.NeedsReview {
		a.engine.alarm.raise(reviewAlert(a.kind.name, saved.Cause, a.task.TaskID))
	}
	if len(s.Emits) > 0 {
		a.engine.relay.emitted(s.Emits[0])
	}
	a.committed(saved.Status, s.ExternalID, or(d.why, string(saved.Status)))
	a.parked(saved.Cause)
	v := d.verb(saved.Status)
	if a.log.Enabled(ctx, level) {
		a.log.Log(ctx, level, "saved", "status", string(saved.Status), "external_id", s.ExternalID, "why", d.why,
			"error", s.LastError, "failures", saved.Failures, "settle", v.String())
	}
	return settlement{verb: v, delay: max(saved.Wait, time.Millisecond), reply: a.replyOf(&a.task, saved.Status, s.Result, false)}
}

// unbooked parks a task whose outcome is real and whose local rows are refused. With a stored result a retry runs
// only Commit; a refusal and a skipped event leave none, for a retry must not book them as done.
func (a *attempt) unbooked(ctx context.Context, unsaved decision, c conclusion, cause error) settlement {
	out := outcomeUnbooked
	switch {
	case unsaved.status == idemstore.Failed:
		out = outcomeUnbookedRefusal
	case c.source == Skipped:
		out = outcomeUnbookedSkip
	}
	d := decideOutcome(outcomeFacts{outcome: out})
	s := a.saveFor(d, cause)
	s.ErrorClass = "not_booked"
	_ = a.addResult(&s, c) // if it fails, this is the cause, or comes on top of it
	if out == outcomeUnbooked {
		s.Applied = a.versionApplied(ctx, c)
	} else {
		s.Result, s.ResultAltered = nil, false
	}
	return a.park(ctx, d, s, c)
}

// twoEffects parks a task whose row has one external id while this attempt brings another.
func (a *attempt) twoEffects(ctx context.Context, c conclusion, unsaved idemstore.Save) settlement {
	d := decideOutcome(outcomeFacts{outcome: outcomeTwoEffects})
	s := a.saveFor(d, c.err)
	s.ErrorClass, s.EvidenceID, s.Applied = "two_effects", unsaved.ExternalID, unsaved.Applied
	return a.park(ctx, d, s, c)
}

// park saves a needs_review that replaces an outcome that could not be saved.
func (a *attempt) park(ctx context.Context, d decision, s idemstore.Save, c conclusion) settlement {
	saved, err := a.save(ctx, s)
	if err != nil {
		return a.notSaved(ctx, c, err)
	}
	return a.saved(ctx, d, s, saved)
}

// notSaved: the task is another's, or nobody knows whether the save went through. Either way this delivery is
// silent; the row decides when the message comes again.
func (a *attempt) notSaved(ctx context.Context, c conclusion, err error) settlement {
	a.log.WarnContext(ctx, "not saved; staying silent", "error", err)
	if errors.Is(err, idemstore.ErrLost) {
		a.nowLost()
		a.leaveEvidence(ctx, c)
	}
	return settlement{verb: silent}
}

// leaveEvidence keeps the id of an effect that this attempt learnt although the task is not its own any more. That of a
// refusal proves nothing about what other attempts did.
func (a *attempt) leaveEvidence(ctx context.Context, c conclusion) {
	id, err := a.externalID(c.result)
	if err != nil || id == "" || c.refused() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	err = a.engine.store.SaveExternalID(ctx, a.task.Fence, id, a.trace)
	if !a.belied(ctx, id, err) {
		a.log.WarnContext(ctx, "external id left as evidence", "external_id", id, "answer", err)
	}
}

// belied calls a person if this attempt brought proof, saved with this answer, of another effect than the one that its task
// has ended with: nothing asks about a task that is over.
func (a *attempt) belied(ctx context.Context, id string, answer error) bool {
	if !errors.Is(answer, idemstore.ErrLost) || !errors.Is(answer, idemstore.ErrOtherExternalID) {
		return false
	}
	a.belie.Do(func() {
		a.log.ErrorContext(ctx, "two effects? the task is over, and a lost attempt brings an id that is not its own", "external_id", id)
		a.engine.alarm.raise(lateProofAlert(a.kind.name, a.task.TaskID))
	})
	return true
}

// giveBack releases a task that this attempt surely did not touch.
func (a *attempt) giveBack(ctx context.Context, d decision, c conclusion) settlement {
	a.saving.Store(true)
	d = a.marked(d, c.after)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	delay := a.jittered(d.wait, d.cost, c.after)
	ctx, span := a.engine.start(ctx, spanRelease)
	status, err := a.engine.store.Release(ctx, idemstore.Release{Fence: a.task.Fence, Kind: a.task.Kind, Key: a.task.Key,
		Delay: delay, Cost: d.cost, LastError: errorText(c.err), ErrorClass: errorClassOf(c.err), Reason: d.why, Actor: a.by.actor, Trace: a.trace})
	endSpan(span, err)
	if err != nil {
		return a.notSaved(ctx, c, err)
	}
	what := or(d.why, "given back unsent")
	a.committed(status, "", what)
	level := slog.LevelInfo
	if d.alert {
		level = slog.LevelWarn
	}
	//nolint:sloglint // what is one of a few constants
	a.log.Log(ctx, level, what, "status", string(status), "error", errorText(c.err), "delay", delay)
	return settlement{verb: nak, delay: delay}
}

// marked notes in the audit that a provider's wish was cut to the most that is obeyed: it may throttle again.
func (a *attempt) marked(d decision, asked time.Duration) decision {
	if cut := a.kind.policy.cut(asked); d.wait == waitAsked && cut != "" {
		d.why = strings.TrimPrefix(d.why+"; "+cut, "; ")
	}
	return d
}

// errorClassOf names the kind of an error for filters.
func errorClassOf(err error) string {
	var p *panicError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &p):
		return "panic"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrDeadline):
		return "timeout"
	}
	return classOf(err).String()
}

// String names an error class.
func (c errorClass) String() string {
	switch c {
	case classRefused:
		return "refused"
	case classAccepted:
		return "accepted"
	case classNotSent:
		return "not_sent"
	case classMisconfigured:
		return "misconfigured"
	case classConflict:
		return "conflict"
	case classInProgress:
		return "in_progress"
	case classReplayed:
		return "replayed_error"
	case classDone:
		return "done"
	case classNone:
	}
	return "unknown"
}
