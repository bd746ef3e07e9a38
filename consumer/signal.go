package consumer

import (
	"context"
	"errors"
	"net/http"
)

// signalFacts are what a perform tells about the provider.
type signalFacts struct {
	outcome     outcome
	panicked    bool
	seen        judgement
	unconnected bool // a request got no connection
	status      int  // of the last answer; 0 if there was none, or nobody saw it
}

// signalOf says what an outcome means for the breaker. What came to nothing on our side says nothing.
func signalOf(f signalFacts) signal {
	switch f.outcome {
	case outcomeDone, outcomeTwoEffects, outcomeUnbooked, outcomeUnbookedRefusal, outcomeAccepted, outcomeInProgress:
		return signalWorks
	case outcomeRefused, outcomeConflict:
		if f.seen == maybeApplied {
			return signalWorks
		}
		return signalNone // the handler found out by itself
	case outcomeNotSent:
		if f.unconnected {
			return signalUnreached
		}
		return signalNone // throttled, or turned away at the gate
	case outcomeNotLetIn:
		return signalBarred
	case outcomeMisconfigured:
		return signalRebuffed
	case outcomeDrained, outcomeCutShort, outcomeLost, outcomeHeld, outcomeUnbookedSkip, outcomeAskAgain:
		return signalNone
	case outcomeReplayed:
		return signalNone // an error of before, about this key alone
	case outcomeUnknown:
	}
	switch {
	case f.panicked:
		return signalNone
	case isClientError(f.status):
		return signalWorks // it understood, and answered for this job
	}
	return signalFails
}

// isClientError tells answers that are about the request (RFC 9110, 15.5) from those of a provider in trouble.
func isClientError(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// lookupSignal says what a look-up means for the breaker. status is that of the kept answer, 0 if there is none.
func lookupSignal(ctx context.Context, v Verdict, err error, status int) signal {
	var p *panicError
	switch {
	case err == nil && v > CannotTell && v <= Contradictory:
		return signalAnswered
	case err == nil, errors.As(err, &p), isClientError(status):
		return signalNone
	case errors.Is(context.Cause(ctx), ErrLost), errors.Is(context.Cause(ctx), ErrDraining):
		return signalNone
	}
	return signalMute
}

// report tells the breaker of a kind's provider what a call for a task said about it.
func (e *Engine) report(ctx context.Context, k *kind, task int64, s signal) {
	r := k.remote
	if s == signalBarred || s == signalRebuffed {
		e.alarm.raise(r.barredAlert(task))
	}
	if r.breaker == nil {
		return
	}
	switch r.breaker.report(s, now()) {
	case opens:
		c := r.breaker.state()
		e.log.WarnContext(ctx, "breaker open: the provider's kinds take no messages; it is tried now and then",
			"provider", r.name, "failures", c.failures, "misconfigured", c.barred, "every", c.every)
		if !c.barred {
			e.alarm.raise(r.downAlert(c))
		}
	case closes:
		e.log.InfoContext(ctx, "breaker closed: the provider works; its kinds take messages again", "provider", r.name)
		r.bell.ring()
	case stays:
	}
}
