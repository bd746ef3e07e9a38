package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// maxKey is the longest Idempotency-Key, in bytes.
const maxKey = 64

// operation is one route of the API.
type operation struct {
	key  func(*http.Request) string // as sent, not checked
	read func(*exchange) error      // checks the request; an error is the client's and becomes 400
	do   func(context.Context, *exchange) (answer, error)
}

// exchange is one request on its way through the server.
type exchange struct {
	*Server
	w       http.ResponseWriter
	r       *http.Request
	row     int64 // in provider.requests; 0 before it is counted
	call    Call
	content content // of a POST
	fault   Fault
}

func (s *Server) serve(op operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			panic(http.ErrAbortHandler) // closing: like a provider that is down
		}
		defer s.calls.Done()
		ctx, cancel := s.detach(r.Context())
		defer cancel()
		call := Call{Method: r.Method, Path: r.URL.Path, Key: op.key(r), UserAgent: r.UserAgent()}
		x := &exchange{Server: s, w: w, r: r, call: call}
		x.answer(ctx, x.run(ctx, op))
	})
}

// run takes the request to its answer. The order is the point: counted first, whatever happens then.
func (x *exchange) run(ctx context.Context, op operation) answer {
	if err := x.count(ctx); err != nil {
		return x.failed(ctx, err)
	}
	if err := op.read(x); err != nil {
		return badRequest(err)
	}
	own, err := headerFault(x.r.Header)
	if err != nil {
		return badRequest(err)
	}
	if a, ok := x.errors.of(x.call); ok {
		return a
	}
	x.fault = x.rules.take(own, x.call)
	x.pass(ctx, Received)

	if !pause(ctx, x.fault.DelayBefore, nil) {
		return answer{close: true}
	}
	if a, ok := x.fault.instead(); ok {
		return x.store(a)
	}
	a, err := op.do(ctx, x)
	if err != nil {
		return x.failed(ctx, err)
	}
	// A client that is gone cannot notice how long its answer would have taken.
	pause(ctx, x.fault.DelayAfter, x.r.Context().Done())
	return x.store(x.fault.after(a))
}

// count writes the row of the request. What cannot be counted is not served.
func (x *exchange) count(ctx context.Context) error {
	err := x.pool.QueryRow(ctx, countRequest, storable(x.call.Key), x.call.Method, storable(x.call.Path)).Scan(&x.row)
	if err != nil {
		return fmt.Errorf("count the request: %w", err)
	}
	return nil
}

// answer notes the status, sends the answer and passes the last point.
func (x *exchange) answer(ctx context.Context, a answer) {
	if !a.close {
		x.call.Status = a.status
		x.note(ctx)
	}
	x.call.describe(ctx)
	defer x.pass(ctx, Answered)
	a.send(x.w)
}

// note records the status before it is sent, so that whoever has the answer finds it recorded.
func (x *exchange) note(ctx context.Context) {
	if x.row == 0 {
		return
	}
	if _, err := x.pool.Exec(ctx, noteStatus, x.row, x.call.Status); err != nil {
		x.complain(ctx, fmt.Errorf("note the status: %w", err))
	}
}

func (x *exchange) pass(ctx context.Context, at Point) { x.onPoint(ctx, at, x.call) }

// failed answers for a failure of the provider's own, which leaves the outcome open.
func (x *exchange) failed(ctx context.Context, err error) answer {
	if ctx.Err() != nil {
		return answer{close: true}
	}
	x.complain(ctx, err)
	return errorAnswer(http.StatusInternalServerError, "internal", "")
}

func (x *exchange) complain(ctx context.Context, err error) {
	x.log.ErrorContext(ctx, "provider request failed", "method", x.call.Method, "error", err)
}

// pause waits for d, or until gone; it returns false if the server closed meanwhile.
func pause(ctx context.Context, d time.Duration, gone <-chan struct{}) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-gone:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// checkKey refuses keys that are not 1 to 64 printable ASCII characters.
func checkKey(key string) error {
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if key == "" || len(key) > maxKey || !printable {
		return fmt.Errorf("the idempotency key must be 1 to %d printable ASCII characters", maxKey)
	}
	return nil
}

// storable returns text from outside as Postgres can hold it, bounded; an empty one is null.
func storable(text string) *string {
	if text == "" {
		return nil
	}
	clean := strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), 256)], "?"), "\x00", "?")
	return &clean
}

// nothing serves the paths and methods that the API does not have. They are counted all the same: a request that
// went astray is something that a test wants to see.
var nothing = operation{
	key:  func(r *http.Request) string { return r.Header.Get("Idempotency-Key") },
	read: func(*exchange) error { return nil },
	do: func(_ context.Context, x *exchange) (answer, error) {
		if x.call.Path == reports.path || x.call.Path == charges.path {
			return errorAnswer(http.StatusMethodNotAllowed, "method_not_allowed", "use POST or GET"), nil
		}
		return errorAnswer(http.StatusNotFound, "no_such_path", "use /reports or /charges"), nil
	},
}

var errKeyTwice = errors.New("the header Idempotency-Key is there more than once; send one")
