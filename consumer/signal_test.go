package consumer

import (
	"context"
	"errors"
	"testing"
)

func TestSignalOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts signalFacts
		want  signal
	}{
		"done":                             {signalFacts{outcome: outcomeDone, seen: maybeApplied, status: 201}, signalWorks},
		"done by another protocol":         {signalFacts{outcome: outcomeDone, seen: sentNothing}, signalWorks},
		"two effects":                      {signalFacts{outcome: outcomeTwoEffects, seen: maybeApplied, status: 200}, signalWorks},
		"accepted":                         {signalFacts{outcome: outcomeAccepted, seen: maybeApplied, status: 202}, signalWorks},
		"refused":                          {signalFacts{outcome: outcomeRefused, seen: maybeApplied, status: 402}, signalWorks},
		"refused by the handler":           {signalFacts{outcome: outcomeRefused, seen: sentNothing}, signalNone},
		"conflict":                         {signalFacts{outcome: outcomeConflict, seen: maybeApplied, status: 409}, signalWorks},
		"conflict of our own data":         {signalFacts{outcome: outcomeConflict, seen: sentNothing}, signalNone},
		"no connection":                    {signalFacts{outcome: outcomeNotSent, seen: appliedNothing, unconnected: true}, signalUnreached},
		"throttled":                        {signalFacts{outcome: outcomeNotSent, seen: appliedNothing, status: 429}, signalNone},
		"turned away at the gate":          {signalFacts{outcome: outcomeNotSent, seen: sentNothing}, signalNone},
		"not let in":                       {signalFacts{outcome: outcomeNotLetIn, seen: appliedNothing, status: 401}, signalBarred},
		"forbidden":                        {signalFacts{outcome: outcomeMisconfigured, seen: maybeApplied, status: 403}, signalRebuffed},
		"drained":                          {signalFacts{outcome: outcomeDrained}, signalNone},
		"cut short by a drain":             {signalFacts{outcome: outcomeCutShort, seen: maybeApplied}, signalNone},
		"lease lost":                       {signalFacts{outcome: outcomeLost, seen: maybeApplied}, signalNone},
		"held back":                        {signalFacts{outcome: outcomeHeld}, signalNone},
		"timeout or cut":                   {signalFacts{outcome: outcomeUnknown, seen: maybeApplied}, signalFails},
		"unavailable":                      {signalFacts{outcome: outcomeUnknown, seen: maybeApplied, status: 503}, signalFails},
		"a body cut short":                 {signalFacts{outcome: outcomeUnknown, seen: maybeApplied, status: 200}, signalFails},
		"request timeout":                  {signalFacts{outcome: outcomeUnknown, seen: maybeApplied, status: 408}, signalFails},
		"another request is still at work": {signalFacts{outcome: outcomeUnknown, seen: maybeApplied, status: 409}, signalWorks},
		"another protocol, no outcome":     {signalFacts{outcome: outcomeUnknown, seen: sentNothing}, signalFails},
		"panic":                            {signalFacts{outcome: outcomeUnknown, seen: maybeApplied, status: 201, panicked: true}, signalNone},
		"panic after an error":             {signalFacts{outcome: outcomeUnknown, seen: maybeApplied, status: 503, panicked: true}, signalNone},
	} {
		if got := signalOf(c.facts); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestLookupSignal(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	for name, c := range map[string]struct {
		verdict Verdict
		err     error
		cause   error
		status  int
		want    signal
	}{
		"found":                    {verdict: Found, want: signalAnswered},
		"absent":                   {verdict: Absent, status: 404, want: signalAnswered},
		"contradictory":            {verdict: Contradictory, want: signalAnswered},
		"no verdict that exists":   {verdict: Contradictory + 1, want: signalNone},
		"cannot tell":              {verdict: CannotTell, want: signalNone},
		"no answer":                {err: cut, want: signalMute},
		"an error beside found":    {verdict: Found, err: cut, want: signalMute},
		"unavailable":              {err: cut, status: 503, want: signalMute},
		"throttled":                {err: cut, status: 429, want: signalNone},
		"not the 404 that we know": {err: cut, status: 404, want: signalNone},
		"panic":                    {err: &panicError{}, want: signalNone},
		"lease lost":               {err: cut, cause: ErrLost, want: signalNone},
		"draining":                 {err: cut, cause: ErrDraining, want: signalNone},
		"too late":                 {err: cut, cause: ErrDeadline, want: signalMute},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		if got := lookupSignal(ctx, c.verdict, c.err, c.status); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		cancel(nil)
	}
}
