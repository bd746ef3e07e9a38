package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/settlemq/settle/consumer"
)

// Words that providers put into the member "error".
const (
	wordNotFound   = "not_found"
	wordConflict   = "idempotency_conflict"
	wordInProgress = "request_in_progress"
)

const maxID = 255 // bytes of an id that a provider gives; a longer one could not be indexed

var (
	errTooLarge = errors.New("answer is too large")
	errNotJSON  = errors.New("answer is not the JSON that was expected")
	errBadID    = errors.New("answer has no usable id")
	errStatus   = errors.New("answer has a status that is not known")
)

// answer is what a provider said.
type answer struct {
	call       string // for error texts
	status     int
	body       []byte
	broken     error // why body is not the whole of it; nil if it is
	retryAfter time.Duration
	replayed   bool // a header says that the provider had stored this answer under the key
}

// outcome maps the answer to a POST. Nil means 200, 201 or 202: the body decides what is done.
func (a answer) outcome(p consumer.Provider) error {
	switch a.status {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted:
		return nil
	case http.StatusBadRequest, http.StatusPaymentRequired, http.StatusConflict, http.StatusUnprocessableEntity:
		return a.denied(p)
	case http.StatusTooManyRequests:
		return consumer.NotSentAfter(a.retryAfter, a.problem())
	}
	switch {
	case a.isMisconfigured():
		return consumer.Misconfigured(a.problem())
	case a.status >= 400 && a.isReplay():
		return consumer.Replayed(a.problem())
	}
	return a.unknown()
}

// isMisconfigured reports whether the status says that our side is set up wrongly: waiting does not mend it.
func (a answer) isMisconfigured() bool {
	switch a.status {
	case http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return a.status >= 300 && a.status < 400
}

// denied maps the statuses with which a provider says no: for good, or for now.
func (a answer) denied(p consumer.Provider) error {
	switch a.meaning(p) {
	case consumer.MeansRefused:
		return consumer.Refused(a.problem())
	case consumer.MeansConflict:
		return consumer.Conflict(a.problem())
	case consumer.MeansInProgress:
		return consumer.InProgress(a.problem())
	case consumer.MeansExists, consumer.MeansByBody:
	}
	return a.problem()
}

// meaning is what a denial says at this provider. MeansByBody is a 409 that says nothing, or no denial.
func (a answer) meaning(p consumer.Provider) consumer.Meaning {
	var said, otherwise consumer.Meaning
	switch a.status {
	case http.StatusBadRequest, http.StatusPaymentRequired:
		return consumer.MeansRefused
	case http.StatusConflict:
		said, otherwise = p.Status409, consumer.MeansByBody
	case http.StatusUnprocessableEntity:
		said, otherwise = p.Status422, consumer.MeansRefused
	default:
		return consumer.MeansByBody
	}
	switch {
	case said != consumer.MeansByBody:
		return said
	case a.word() == wordConflict:
		return consumer.MeansConflict
	case a.word() == wordInProgress:
		return consumer.MeansInProgress
	}
	return otherwise
}

// isReplay reports whether the provider marks the answer as stored under the key, in a header or as "replayed": true.
func (a answer) isReplay() bool {
	var body struct {
		Replayed bool `json:"replayed"`
	}
	return a.replayed || json.Unmarshal(a.body, &body) == nil && body.Replayed
}

// absent reports whether the provider surely does not know the effect.
func (a answer) absent() bool { return a.status == http.StatusNotFound && a.word() == wordNotFound }

// unknown is an answer that says nothing about the effect.
func (a answer) unknown() error {
	if a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests {
		return consumer.UnknownAfter(a.retryAfter, a.problem())
	}
	return a.problem()
}

// problem is the answer's error text: status and code, nothing else of the body.
func (a answer) problem() error {
	text := fmt.Sprintf("%s: %d", a.call, a.status)
	if name := http.StatusText(a.status); name != "" {
		text += " " + name
	}
	if code := a.code(); code != "" {
		text += " (" + code + ")"
	}
	return errors.New(text)
}

// about wraps what is wrong with the body of an answer.
func (a answer) about(err error) error { return fmt.Errorf("%s: %d: %w", a.call, a.status, err) }

// decode reads a whole body.
func (a answer) decode(into any) error {
	switch {
	case errors.Is(a.broken, errTooLarge):
		return a.about(a.broken)
	case a.broken != nil:
		return a.about(&callError{"answer is cut off: " + describe(a.broken), a.broken})
	case len(a.body) == 0:
		return a.about(fmt.Errorf("answer is empty: %w", io.ErrUnexpectedEOF))
	case json.Unmarshal(a.body, into) != nil:
		return a.about(errNotJSON) // the decoder's text quotes the body
	}
	return nil
}

var codeSyntax = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// code is the provider's error code, or nothing if it does not look like one.
func (a answer) code() string {
	for _, code := range []string{a.member("code"), a.word()} {
		if codeSyntax.MatchString(code) {
			return code
		}
	}
	return ""
}

func (a answer) word() string { return a.member("error") }

// member is a text member of the body, as far as the body can be read.
func (a answer) member(name string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(a.body, &members) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(members[name], &text) != nil {
		return ""
	}
	return text
}

// usableID tells whether an id that the provider gave can be stored, searched for and asked about.
func usableID(id string) bool {
	if id == "." || id == ".." || len(id) > maxID || !utf8.ValidString(id) {
		return false // dots would lead out of their place in a path
	}
	blank := true
	for _, r := range id {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return false
		}
		blank = blank && unicode.IsSpace(r)
	}
	return !blank
}
