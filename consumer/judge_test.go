package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The judgement of a perform: the handler's word, what the gate saw, and why the gate is shut.
const judgeTable = `
said          seen     knocked shut     lost stopping stored | outcome
panic         -        -       -        -    -        -      | unknown
done          -        -       -        -    -        -      | done
accepted      -        -       -        -    -        -      | accepted
refused       -        -       -        -    -        -      | refused
conflict      -        -       -        -    -        -      | conflict
in-progress   -        -       -        -    -        -      | in-progress
misconfigured maybe    -       -        -    -        -      | misconfigured
misconfigured -        -       -        -    -        -      | not-let-in
-             -        -       -        yes  -        -      | lost
-             harmless -       -        -    yes      -      | drained
-             harmless -       -        -    no       -      | not-sent
-             maybe    -       -        -    yes      -      | cut-short
replayed      maybe    -       -        -    no       -      | replayed
-             maybe    -       -        -    no       yes    | replayed
-             maybe    -       -        -    no       no     | unknown
not-sent      nothing  -       -        -    yes      -      | drained
not-sent      nothing  -       -        -    no       -      | not-sent
-             nothing  yes     -        -    yes      -      | drained
-             nothing  yes     -        -    no       -      | not-sent
-             nothing  no      draining -    yes      -      | drained
-             nothing  no      draining -    no       -      | not-sent
-             nothing  no      -        -    yes      -      | cut-short
replayed      nothing  no      -        -    no       -      | replayed
-             nothing  no      -        -    no       yes    | replayed
-             nothing  no      -        -    no       no     | unknown
`

var (
	said = map[string]error{"panic": &panicError{value: "boom"}, "done": nil, "accepted": Accepted(time.Second),
		"refused": Refused(errors.New("no")), "conflict": Conflict(errors.New("two")), "not-sent": NotSent(errors.New("throttled")),
		"misconfigured": Misconfigured(errors.New("403")), "in-progress": InProgress(errors.New("409")),
		"replayed": Replayed(errors.New("500")), "nothing-said": errors.New("EOF")}
	judgements = map[judgement]string{maybeApplied: "maybe", sentNothing: "nothing", appliedNothing: "harmless"}
	causes     = map[error]string{nil: "open", ErrLost: "lost", ErrDraining: "draining", ErrDeadline: "deadline"}
)

func TestJudge(t *testing.T) {
	t.Parallel()
	tab := parseTable(t, judgeTable)
	for name, f := range allJudgeFacts {
		tab.check(t, facts{"said": name, "seen": words(t, judgements, f.seen), "knocked": word(f.refused),
			"shut": words(t, causes, f.cause), "lost": word(f.lost), "stopping": word(f.draining), "stored": word(f.stored)},
			words(t, outcomeNames, judge(f)))
	}
	tab.complete(t)
}

func allJudgeFacts(yield func(string, judgeFacts) bool) {
	for name, err := range said {
		for seen := range judgements {
			for cause := range causes {
				for bits := range 1 << 4 {
					bit := func(n int) bool { return bits>>n&1 == 1 }
					f := judgeFacts{err: err, seen: seen, cause: cause, refused: bit(0), lost: bit(1), draining: bit(2), stored: bit(3)}
					if !yield(name, f) {
						return
					}
				}
			}
		}
	}
}

// A task is given back as untouched only where the gate agrees; no word of a handler can do it, and no panic.
func TestJudgeNeverGivesBackWhatMayBeApplied(t *testing.T) {
	t.Parallel()
	for name, f := range allJudgeFacts {
		d := decideOutcome(outcomeFacts{outcome: judge(f)})
		if d.act == giveBack && (f.seen == maybeApplied || name == "panic") {
			t.Errorf("%s, the gate saw %s: given back", name, judgements[f.seen])
		}
	}
}

// Handlers wrap and join errors; the class inside counts.
func TestClassOfWrappedError(t *testing.T) {
	t.Parallel()
	declined := Refused(errors.New("card declined"))
	for name, err := range map[string]error{
		"wrapped": fmt.Errorf("charge: %w", declined),
		"joined":  errors.Join(errors.New("close body"), declined),
	} {
		if got := classOf(err); got != classRefused {
			t.Errorf("%s: class %s", name, got)
		}
	}
	if got := askedFor(fmt.Errorf("charge: %w", NotSentAfter(7*time.Second, errors.New("429")))); got != 7*time.Second {
		t.Errorf("asked to wait %v", got)
	}
	if err := Refused(context.Canceled); !errors.Is(err, context.Canceled) || err.Error() != "context canceled" {
		t.Errorf("%v does not show what it wraps", err)
	}
}

func TestContain(t *testing.T) {
	t.Parallel()
	out, err := contain(func() (int, error) { return 7, errors.ErrUnsupported })
	if out != 7 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a panic: %d, %v", out, err)
	}
	for name, value := range map[string]any{"nil": nil, "text": "order_18452", "error": errors.New("order_18452")} {
		_, err := contain(func() (int, error) { panic(value) })
		var p *panicError
		switch {
		case !errors.As(err, &p):
			t.Errorf("panic with %s: %v", name, err)
		case strings.Contains(err.Error(), "18452"):
			t.Errorf("panic with %s: the text tells the value: %v", name, err)
		case !strings.Contains(string(p.stack), "TestContain"):
			t.Errorf("panic with %s: the stack does not lead to the handler:\n%s", name, p.stack)
		}
	}
}

// brokenError is an error that cannot be read, as a nil pointer in an interface is one.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

func TestContainUnreadableError(t *testing.T) {
	t.Parallel()
	_, err := contain(func() (int, error) { return 0, (*brokenError)(nil) })
	var p *panicError
	if !errors.As(err, &p) {
		t.Errorf("%T was let through", err)
	}
	for _, err := range []error{Refused(nil), NotSent(nil), NotSentAfter(time.Second, nil), UnknownAfter(time.Second, nil),
		Misconfigured(nil), Conflict(nil), InProgress(nil), Replayed(nil)} {
		if err.Error() != classOf(err).String() || errors.Unwrap(err) != nil {
			t.Errorf("made of nil: %q", err)
		}
	}
}
