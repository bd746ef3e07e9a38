package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// judgeFacts are what the engine saw of one perform.
type judgeFacts struct {
	err      error
	seen     judgement // what the gate's log says about the requests
	refused  bool      // the handler was turned away at the gate
	cause    error     // why the gate is shut
	lost     bool
	draining bool
	stored   bool // the answer is an error that the provider stores under the key
}

// judge names the outcome. A handler's own word counts for done, accepted, refused and conflict; "not sent" must
// agree with what the gate saw; what nothing else fits is unknown.
func judge(f judgeFacts) outcome {
	var p *panicError
	if errors.As(f.err, &p) {
		return outcomeUnknown
	}
	// A handler that knocked at the gate, or was stopped before it did, sent nothing. One that does neither may not
	// know the gate at all.
	stopped := f.refused || isStop(f.cause)
	untouched := f.seen == appliedNothing || f.seen == sentNothing && stopped
	switch classOf(f.err) {
	case classDone:
		return outcomeDone
	case classAccepted:
		return outcomeAccepted
	case classRefused:
		return outcomeRefused
	case classConflict:
		return outcomeConflict
	case classInProgress:
		return outcomeInProgress
	case classReplayed:
		f.stored = true
	case classMisconfigured:
		if f.seen != maybeApplied {
			return outcomeNotLetIn
		}
		return outcomeMisconfigured
	case classNotSent:
		untouched = f.seen != maybeApplied
	case classNone:
	}
	return judgeUnclassified(f, untouched)
}

// judgeUnclassified: the handler does not know what happened, or says that nothing was sent.
func judgeUnclassified(f judgeFacts, untouched bool) outcome {
	switch {
	case f.lost:
		return outcomeLost
	case untouched && f.draining:
		return outcomeDrained
	case untouched:
		return outcomeNotSent
	case f.draining:
		return outcomeCutShort
	case f.stored:
		return outcomeReplayed
	}
	return outcomeUnknown
}

// isStop reports whether an attempt that has sent nothing is stopped for reasons that are not its own.
func isStop(cause error) bool { return errors.Is(cause, ErrDraining) || errors.Is(cause, ErrPaused) }

// classOf is the class of a handler's error.
func classOf(err error) errorClass {
	var o *outcomeError
	switch {
	case err == nil:
		return classDone
	case errors.As(err, &o):
		return o.class
	}
	return classNone
}

// askedFor is the delay that an outcome error carries.
func askedFor(err error) time.Duration {
	var o *outcomeError
	if errors.As(err, &o) {
		return o.after
	}
	return 0
}

// panicError is a handler's panic. Its text names the type only: the value may hold anything.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("handler panicked (%T)", e.value) }

// contain runs f and turns a panic, also one with nil, into an error. An error that panics when it is read counts as
// a panic here, where it is contained, and not later in whoever logs it. The text of an error is scrubbed.
func contain[T any](f func() (T, error)) (out T, err error) {
	normal := false
	defer func() {
		if !normal {
			err = &panicError{value: recover(), stack: debug.Stack()}
		}
	}()
	out, err = f()
	err = scrubError(err)
	normal = true
	return out, err
}

// encoded is what a handler gave as JSON. How its types are written may be code of its own.
func encoded(v any) ([]byte, error) {
	return contain(func() ([]byte, error) { return json.Marshal(v) })
}

// check asks the kind whether the effect is there already.
func (a *attempt) check(ctx context.Context) (result any, done bool, err error) {
	if a.kind.check == nil {
		return nil, false, nil
	}
	ctx, span := a.engine.start(ctx, spanCheck)
	defer func() { endSpan(span, err) }()
	ctx, cancel := context.WithTimeoutCause(ctx, a.kind.policy.Deadline, ErrDeadline)
	defer cancel()
	result, err = contain(func() (any, error) {
		r, ok, err := a.kind.check(ctx, a.engine.pool, a.job)
		done = ok
		return r, err
	})
	return result, done && err == nil, err
}
