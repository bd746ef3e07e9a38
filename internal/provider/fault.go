package provider

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Moment says on which side of the effect something happens.
type Moment string

// The moments.
const (
	Before Moment = "before"
	After  Moment = "after"
)

// Cut says how a body is cut short.
type Cut string

// The cuts. Both send half of the body and close the connection.
const (
	CutLength Cut = "length" // fewer bytes than Content-Length promises
	CutChunk  Cut = "chunk"  // a chunk that is shorter than its size
)

// Fault is one way to misbehave; the names of its fields in header and JSON, and how several faults combine, are
// in the package comment. A zero field means "not this".
type Fault struct {
	// Which requests. Only rules have these; a fault in a request's header is for that request.
	Key    string // an Idempotency-Key, or its beginning and *; empty: any, and none
	Method string // empty: POST; *: all
	Path   string // a path, or its beginning and *; empty: any
	Count  int    // how many requests; 0: no limit

	// What becomes of the effect.
	IgnoreKeys   bool          // the key is recorded but deduplicates nothing
	ForgetAfter  time.Duration // age at which a key no longer deduplicates
	Hide         time.Duration // how long look-ups by key do not find what the request creates
	Pending      time.Duration // how long what the request creates is pending
	PendingFails bool          // what was pending ends as failed or declined
	Decline      bool          // a charge is declined

	// What becomes of the answer.
	DelayBefore time.Duration // before the effect
	DelayAfter  time.Duration // after the commit, before the answer
	Close       Moment        // close without an answer, before or after the effect
	Status      int           // answer with this status
	StatusAt    Moment        // whether Status comes instead of the effect or after it; empty: Before
	Stored      bool          // later requests with the key get the answer with Status again, for ever
	InProgress  bool          // 409 request_in_progress instead of the effect
	Redirect    string        // Location; Status 307 unless set
	RetryAfter  string        // the header, verbatim
	Cut         Cut           // cut the body short
	Body        []byte        // the body to send; nil: the true one; empty: none
}

// forRules says whether the fault has fields that only a rule may have.
func (f Fault) forRules() bool {
	return f.Key != "" || f.Method != "" || f.Path != "" || f.Count != 0
}

// onEffect says whether the fault changes what becomes of the effect.
func (f Fault) onEffect() bool {
	return f.IgnoreKeys || f.ForgetAfter != 0 || f.Hide != 0 || f.Pending != 0 || f.PendingFails || f.Decline
}

// onAnswer says whether the fault changes what becomes of the answer.
func (f Fault) onAnswer() bool {
	return f.DelayBefore != 0 || f.DelayAfter != 0 || f.Close != "" || f.Status != 0 || f.StatusAt != "" ||
		f.Stored || f.InProgress || f.Redirect != "" || f.RetryAfter != "" || f.Cut != "" || f.Body != nil
}

// meets says whether a rule is for this request.
func (f Fault) meets(call Call) bool {
	method := f.Method
	if method == "" {
		method = http.MethodPost
	}
	return (method == "*" || method == call.Method) && matches(f.Key, call.Key) && matches(f.Path, call.Path)
}

func matches(pattern, text string) bool {
	if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, beginning)
	}
	return pattern == "" || pattern == text
}

// check returns what is wrong with the fault as a whole.
func (f Fault) check() error {
	durations := []time.Duration{f.ForgetAfter, f.Hide, f.Pending, f.DelayBefore, f.DelayAfter}
	for _, d := range durations {
		if d < 0 {
			return errors.New("a duration is negative")
		}
	}
	switch {
	case !f.onEffect() && !f.onAnswer():
		return errors.New("nothing is to happen: name a fault besides key, method, path and count")
	case f.Count < 0:
		return errors.New("count is negative: leave it out for no limit")
	case f.PendingFails && f.Pending == 0:
		return errors.New("pending-fails needs pending=T")
	}
	return f.checkAnswer()
}

func (f Fault) checkAnswer() error {
	switch {
	case f.Close != "" && f.Close != Before && f.Close != After:
		return fmt.Errorf("close is %q: use before or after", f.Close)
	case f.StatusAt != "" && f.StatusAt != Before && f.StatusAt != After:
		return fmt.Errorf("status is at %q: use before or after", f.StatusAt)
	case f.StatusAt != "" && f.Status == 0, f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("status is %d: use 200 to 599", f.Status)
	case f.Stored && f.Status < 400:
		return errors.New("stored needs status=N of 400 and above: successes are always stored")
	case f.Cut != "" && f.Cut != CutLength && f.Cut != CutChunk:
		return fmt.Errorf("cut is %q: use length or chunk", f.Cut)
	case f.Redirect != "" && f.Status != 0 && (f.Status < 301 || f.Status > 308):
		return fmt.Errorf("status of a redirect is %d: use 301 to 308", f.Status)
	case f.InProgress && (f.Status != 0 || f.Redirect != "" || f.Close != ""):
		return errors.New("in-progress excludes status, redirect and close")
	case f.Close != "" && (f.Cut != "" || f.Body != nil):
		return errors.New("close excludes cut and body: it sends nothing")
	case hasControl(f.RetryAfter) || hasControl(f.Redirect):
		return errors.New("retry-after or redirect holds a control character, which no header can")
	}
	return nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}
