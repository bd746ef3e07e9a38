package admin

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// pausedWords say how a kind is served, who wanted that and why; empty while it runs.
func pausedWords(c *idemstore.Control) string {
	if c == nil || c.Mode == idemstore.ModeRunning {
		return ""
	}
	return fmt.Sprintf(pausedBy, modeWords[string(c.Mode)], story.Printable(c.Actor), when(c.At), story.Printable(c.Reason))
}

// waits says why a task is not over and when it goes on. Nothing is said of one that an attempt holds, that is over, or about
// which a person decides: its answer says that.
func (s *screen) waits(ctx context.Context, t idemstore.Task, control *idemstore.Control) ([]string, error) {
	if t.LeaseLive || t.Status != idemstore.Started && t.Status != idemstore.Unknown {
		return nil, nil
	}
	served, err := s.Store.ServedKinds(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	if t.LeaseUntil == nil {
		out = append(out, goesOn(t, time.Now()))
	}
	if words := pausedWords(control); words != "" {
		out = append(out, kindIs+" "+words)
	}
	at := slices.IndexFunc(served, func(k idemstore.Served) bool { return k.Kind == t.Kind })
	switch {
	case at < 0:
		out = append(out, neverServed)
	case served[at].Seen > silentAfter:
		out = append(out, fmt.Sprintf(notServed, story.Wait(served[at].Seen)))
	case served[at].BreakerOpen:
		out = append(out, heldBack)
	}
	return out, nil
}

// goesOn says when a task goes on by itself.
func goesOn(t idemstore.Task, now time.Time) string {
	what := sendsAgain
	if t.Status == idemstore.Unknown {
		what = asksAgain
	}
	left := t.NextAttemptAt.Sub(now)
	if left <= 0 {
		return what + " " + dueNow
	}
	return what + " " + fmt.Sprintf(dueIn, story.Wait(left))
}

// status of an answer, in the text of an error.
var answeredWith = regexp.MustCompile(`^[A-Z]+ \S+: ([0-9]{3}) `)

// plainError says what an error means; empty if there is none, or nothing is known of its class.
func plainError(class, text string) string {
	if text == "" {
		return ""
	}
	answer := answeredWith.FindStringSubmatch(text)
	switch {
	case class == "unknown" && strings.HasPrefix(text, "GET "): // a look-up
		return askedInVain
	case class != "not_sent":
	case answer == nil:
		return nothingSent
	case answer[1] == "429":
		return tooMany
	default:
		return letNothingIn
	}
	return errorWords[class]
}
