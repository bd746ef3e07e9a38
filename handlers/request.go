package handlers

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/settlemq/settle/consumer"
)

// Request is one call to a provider by the rules of this package, for kinds that are declared elsewhere.
type Request struct {
	Method string
	// Path are the segments below the base URL. Each is escaped as a whole, so that no value leads out of its place.
	Path []string
	// Route is the path as error texts show it: without ids and other values.
	Route string
	// Query is added to that of the base URL.
	Query url.Values
	// Header replaces what the client sets itself: Accept, User-Agent and, with a body, Content-Type: application/json.
	// Names are canonical. Credentials belong to ClientOptions.Authorize.
	Header http.Header
	// Body is sent as it is; nil: none.
	Body []byte
	// Deadline is the attempt's; the client's timeout cuts it.
	Deadline time.Time
}

// Answer is what a provider said to a Request: the first 64 KiB of it.
type Answer struct{ got answer }

// Do sends a request once, through the send gate of the attempt whose context ctx is, and reads the answer. It blocks
// until the answer is read, the deadline or ctx is over. An error means that there is no answer at all; it says whether
// anything was sent, as an error of Perform does, and quotes neither the URL nor what was sent.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	ask := call{method: r.Method, path: r.Path, route: r.Route, query: r.Query, header: r.Header, deadline: r.Deadline}
	if r.Body != nil {
		ask.body = rawBody(r.Body)
	}
	got, err := c.do(ctx, ask)
	return Answer{got}, err
}

// Status is the HTTP status.
func (a Answer) Status() int { return a.got.status }

// Body is what was read of the body, which is all of it if Decode finds no fault.
func (a Answer) Body() []byte { return a.got.body }

// Whole reports whether the whole body was read: not where it was longer than 64 KiB, or the connection broke.
func (a Answer) Whole() bool { return a.got.broken == nil }

// Decode reads a whole body as JSON into what into points to, and fails for a body that is not whole. The error quotes nothing
// of it.
func (a Answer) Decode(into any) error { return a.got.decode(into) }

// RetryAfter is how long the provider asks to be left alone (Retry-After, by the Date of the answer where it is a date); 0: it
// does not.
func (a Answer) RetryAfter() time.Duration { return a.got.retryAfter }

// Problem is the answer as an error: its text is the status and the provider's short code, and nothing else of the body. It
// says nothing about the outcome until one of consumer's constructors does, as in consumer.Refused(a.Problem()).
func (a Answer) Problem() error { return a.got.problem() }

// About is err with the call (method and route) and the answer's status before it. err says what is wrong with the answer, and must quote nothing of it.
func (a Answer) About(err error) error { return a.got.about(err) }

// Failure is what the answer to a request for an effect means where the kind says nothing about it: 401, 403, 404, 405 and
// 3xx misconfigured, 429 not sent, an error that is marked as replayed consumer.Replayed, everything else unknown, 2xx too. It
// is never nil.
func (a Answer) Failure() error {
	switch {
	case a.got.status == http.StatusTooManyRequests, a.got.isMisconfigured():
		return a.got.outcome(consumer.Provider{})
	case a.got.status >= http.StatusBadRequest && a.got.isReplay():
		return consumer.Replayed(a.got.problem())
	}
	return a.got.unknown()
}

// Unclear is the error that goes with consumer.CannotTell for an answer to a look-up that settles nothing. It is never nil.
func (a Answer) Unclear() error { return a.got.unknown() }

// UsableID reports whether an id that a provider gave can be stored, searched for and put into a path: 1 to 255 bytes of
// UTF-8 without control characters, not only white space, and not dots that would lead out of their place.
func UsableID(id string) bool { return usableID(id) }
