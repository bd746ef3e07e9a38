package consumer

import (
	"errors"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// Verdict is what a look-up says about an effect. The zero value guesses nothing.
type Verdict int

// The verdicts.
const (
	CannotTell    Verdict = iota // no answer, or one that settles nothing
	Found                        // it happened, with the content that was asked for
	FoundRefused                 // the provider refused it, for good
	Absent                       // the provider says that it does not know it
	Running                      // it is still under way
	Contradictory                // it happened with other content, or twice
)

// Outcome errors. A handler returns one of these to say what it knows; every other error means unknown.
//
//	Refused       the provider said no, for good (a declined card). The result is stored and replayed.
//	Accepted      the provider took it and is not done (202). The external id is polled.
//	NotSent       nothing left. A claim: it counts only where the engine's own judgement agrees.
//	Misconfigured our side is set up wrongly (403, 404, redirect). Tried again much later, with an alert.
//	Conflict      contradictory data, or a record that must exist does not. A person decides.
//	InProgress    an earlier request with this key is still at work. Unknown, and no failure.
//	Replayed      an error that the provider stores under the key: sending again is of no use. Unknown.
type outcomeError struct {
	class errorClass
	after time.Duration
	err   error
}

type errorClass int

const (
	classNone errorClass = iota // not made by a constructor: unknown
	classRefused
	classAccepted
	classNotSent
	classMisconfigured
	classConflict
	classInProgress
	classReplayed
	classDone // no error
)

func (e *outcomeError) Error() string {
	if e.err == nil {
		return e.class.String() // a constructor was given nil
	}
	return e.err.Error()
}
func (e *outcomeError) Unwrap() error { return e.err }

// Is lets tests of a handler tell what an error says: errors.Is(err, Refused(nil)).
func (e *outcomeError) Is(target error) bool {
	asked, ok := target.(*outcomeError)
	return ok && asked.class == e.class && (asked.err == nil || asked.class == classAccepted)
}

// Refused says that the provider refused for good and that a repeat would be refused as well. The task becomes failed, the
// result that Perform returned with it is stored and replayed, and err is why.
//
// Tests of a handler ask for it, as for all errors made by these constructors, with errors.Is(err, Refused(nil)): that holds
// for any error of the same constructor, whatever is in it, and for one that wraps it.
func Refused(err error) error { return &outcomeError{class: classRefused, err: err} }

// Accepted says that the provider has accepted the job and is not done with it; Lookup asks again after poll (at least
// Policy.BackoffMin), until the age limit. The result must carry the external id.
func Accepted(poll time.Duration) error {
	return &outcomeError{class: classAccepted, after: poll, err: errors.New("accepted, not done yet")}
}

// NotSent says that no request left, or that the provider surely applied none. The engine believes it only if
// it saw the same itself, at the gate and on the connection; otherwise the outcome is unknown. Of a kind that once
// brought a result without a request at the gate it is not believed.
func NotSent(err error) error { return &outcomeError{class: classNotSent, err: err} }

// NotSentAfter is NotSent with the provider's wish not to be called again before d has passed (Retry-After), which
// Policy.RetryAfterMax bounds. errors.Is finds NotSent(nil) in it.
func NotSentAfter(d time.Duration, err error) error {
	return &outcomeError{class: classNotSent, after: d, err: err}
}

// UnknownAfter says that the outcome is unknown, as any other error would, and that the provider asked not to
// be called again before d has passed (Retry-After of a 503), which Policy.RetryAfterMax bounds.
func UnknownAfter(d time.Duration, err error) error {
	return &outcomeError{class: classNone, after: d, err: err}
}

// Misconfigured says that retrying soon cannot help: wrong address, missing right, a redirect. It is tried again after
// Policy.MisconfiguredWait, and a person is told. Whether something was sent the engine judges by itself.
func Misconfigured(err error) error { return &outcomeError{class: classMisconfigured, err: err} }

// Conflict says that the data contradict each other or that a record is missing: a person has to look. If no request of any
// attempt has passed the send gate, that person may cancel the task or give it other content.
func Conflict(err error) error { return &outcomeError{class: classConflict, err: err} }

// InProgress says that the provider is still at work on an earlier request with the same key and has done nothing
// for this one. The outcome is unknown; the provider is asked again after a growing back-off, at no cost to the
// budget of failures, until the age limit.
func InProgress(err error) error { return &outcomeError{class: classInProgress, err: err} }

// Replayed says that the provider answered with an error that it has stored under the key and will give to
// every resend. The outcome is unknown: the stored error says nothing about the effect. Once a look-up surely does
// not find the effect either, or where there is no look-up, a person decides instead of more resends.
func Replayed(err error) error { return &outcomeError{class: classReplayed, err: err} }

// Reasons why nothing may leave any more, for errors.Is: as causes of a cancelled attempt (context.Cause), in errors of MaySend
// and of Transport.
var (
	// ErrLost: the lease is over or was not confirmed in time, or another attempt has the task.
	ErrLost = idemstore.ErrLost
	// ErrDraining: the process is stopping and this attempt has not sent anything yet.
	ErrDraining = errors.New("draining: nothing more is sent")
	// ErrPaused: somebody has paused the kind, or this worker's share of the provider's cap is used up.
	ErrPaused = errors.New("held back: nothing more is sent for now")
	// ErrDeadline: the total time of one attempt, or the safe age of the provider's key, has passed.
	ErrDeadline = errors.New("deadline of the attempt has passed")
)
