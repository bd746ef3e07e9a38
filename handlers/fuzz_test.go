package handlers

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/settlemq/settle/consumer"
)

// Whatever a provider answers, an effect counts as done only where a whole answer of success says so and has an id that can
// be used; and no error quotes what was in the body.
func FuzzAnswer(f *testing.F) {
	for _, body := range slices.Sorted(func(yield func(string) bool) {
		for _, a := range bodies {
			if !yield(string(a.body)) {
				return
			}
		}
	}) {
		f.Add(201, body, "", "", true)
		f.Add(201, body, "", "", false)
		f.Add(409, body, "30", "", true)
	}
	f.Add(503, `{"error":"busy","charge_id":"../x"}`, "Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:00:00 GMT", true)
	f.Add(429, `[[[[`, "99999999999999999999", "never", true)
	f.Add(200, `{"charge_id":"ch\u0000","status":"succeeded"}`, "-1", "", true)
	f.Fuzz(func(t *testing.T, status int, body, after, date string, whole bool) {
		h := http.Header{"Retry-After": {after}, "Date": {date}}
		wait := retryAfter(h)
		if wait < 0 || wait > maxRetryAfter {
			t.Fatalf("Retry-After %q, Date %q: %v", after, date, wait)
		}
		got := answer{call: "POST /charges", status: status, body: []byte(body), retryAfter: wait}
		if !whole {
			got.broken = io.ErrUnexpectedEOF
		}
		e, err := charges.performed(got, consumer.Provider{}, time.Second)
		if err == nil && (status < 200 || status > 202 || !whole || !json.Valid([]byte(body)) || !usableID(e.id) || e.status != charges.done) {
			t.Fatalf("%d %q is done: %+v", status, body, e)
		}
		if e.id != "" && (!usableID(e.id) || strings.ContainsFunc(e.id, unicode.IsControl) || len(e.id) > maxID || strings.Trim(e.id, ".") == "" && len(e.id) < 3) {
			t.Fatalf("%d %q has the id %q", status, body, e.id)
		}
		keepsQuiet(t, got, err)
		same := func(answer) (bool, error) { return true, nil }
		if e, err = charges.read(got); err != nil {
			keepsQuiet(t, got, err)
			return
		}
		if _, verdict, _ := charges.verdict(got, e, "another", same); verdict != consumer.Contradictory && e.id != "another" {
			t.Fatalf("%q is another effect, and the verdict is %v", body, verdict)
		}
	})
}

// keepsQuiet fails if an error quotes a body: only a short code may be in it.
func keepsQuiet(t *testing.T, got answer, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if text := err.Error(); len(text) > 300 || len(got.body) > 80 && strings.Contains(text, string(got.body)) {
		t.Fatalf("the error quotes the answer: %s", text)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			t.Fatalf("the error has the decoder's: %v", err)
		}
	}
}
