package consumer

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// What tests of a handler ask: each constructor's errors are found by their own kind alone, also wrapped.
func TestErrorsIsTellsOutcomesApart(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	likes := map[string]error{"refused": Refused(nil), "not sent": NotSent(nil), "accepted": Accepted(0), "misconfigured": Misconfigured(nil),
		"conflict": Conflict(nil), "in progress": InProgress(nil), "replayed": Replayed(nil), "unknown after": UnknownAfter(0, nil)}
	for _, c := range []struct {
		like string // empty: none
		err  error
	}{
		{"refused", Refused(why)}, {"refused", fmt.Errorf("charge: %w", Refused(why))}, {"not sent", NotSent(why)},
		{"not sent", NotSentAfter(time.Second, why)}, {"accepted", Accepted(time.Minute)}, {"misconfigured", Misconfigured(why)},
		{"conflict", Conflict(why)}, {"in progress", InProgress(why)}, {"replayed", Replayed(why)}, {"unknown after", UnknownAfter(time.Second, why)},
		{"", why}, {"", nil}, {"", &InvalidJobError{}},
	} {
		for name, like := range likes {
			if errors.Is(c.err, like) != (name == c.like) {
				t.Errorf("%v (%s) is %s: %t", c.err, c.like, name, name != c.like)
			}
		}
		if c.like != "" && c.like != "accepted" && !errors.Is(c.err, why) {
			t.Errorf("%s hides why", c.like)
		}
	}
	if errors.Is(Refused(why), Refused(errors.New("other"))) {
		t.Error("refusals for different reasons are the same")
	}
}

// A test of a handler makes an attempt of its own.
func TestAnAttemptOutsideOfTheEngine(t *testing.T) {
	t.Parallel()
	a := &Attempt[payJob]{}
	a.KeepAnswer(200, []byte("{}"))
	if err := errors.Join(a.MaySend(), a.SaveExternalID(t.Context(), "ch_1")); err != nil {
		t.Error(err)
	}
}
