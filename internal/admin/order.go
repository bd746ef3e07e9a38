package admin

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/settlemq/settle/internal/story"
)

const (
	maxReason = 1800     // bytes; the history keeps 2 KiB with what it says by itself
	maxOrder  = 64 << 10 // bytes of a form
)

// order is what a form, or a request to the API, asks for. The names are the same in both.
type order struct {
	ID     string `json:"id"` // of the form; a request to the API may leave it out
	Reason string `json:"reason"`
	DryRun bool   `json:"dry_run"`

	// What was seen: an act on something else is not done.
	Status   string `json:"status"`
	Attempts int    `json:"attempts"`
	Mode     string `json:"mode"`

	As         string   `json:"as"` // of resolve
	ExternalID string   `json:"external_id"`
	Result     verbatim `json:"result"`
	Force      bool     `json:"force"`

	Refusal int64 `json:"refusal"` // of supersede

	Kind      string `json:"kind"` // of recover
	OlderThan string `json:"older_than"`
	Within    string `json:"within"`
	Limit     int    `json:"limit"`

	form bool // and not a request to the API
}

// verbatim is a JSON value as it was written.
type verbatim string

// UnmarshalJSON keeps the bytes.
func (v *verbatim) UnmarshalJSON(b []byte) error {
	*v = verbatim(b)
	return nil
}

// readOrder reads a form.
func readOrder(w http.ResponseWriter, r *http.Request) (order, error) {
	body, err := readBody(w, r, "application/x-www-form-urlencoded", needsForm)
	if err != nil {
		return order{}, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return order{}, badRequest(noForm)
	}
	return orderOf(form)
}

// orderOf reads an order off the values of a form or of an address.
func orderOf(v url.Values) (o order, err error) {
	o = order{ID: v.Get("id"), Reason: v.Get("reason"), Status: v.Get("status"), Mode: v.Get("mode"), As: v.Get("as"),
		ExternalID: v.Get("external_id"), Result: verbatim(strings.TrimSpace(v.Get("result"))), Force: v.Get("force") != "",
		Kind: v.Get("kind"), OlderThan: v.Get("older_than"), Within: v.Get("within"), form: true}
	for name, into := range map[string]*int{"attempts": &o.Attempts, "limit": &o.Limit} {
		if text := v.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return order{}, badRequest(noNumber)
			}
		}
	}
	o.Refusal, err = number(v.Get("refusal"))
	return o, err
}

// readAPIOrder reads the body of a request to the API: one JSON object without anything that is not known.
func readAPIOrder(w http.ResponseWriter, r *http.Request) (o order, err error) {
	body, err := readBody(w, r, "application/json", needsJSON)
	if err != nil {
		return order{}, err
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return order{}, badRequest(noOrder + ": " + story.Printable(err.Error()))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return order{}, badRequest(noOrder)
	}
	return o, nil
}

func readBody(w http.ResponseWriter, r *http.Request, contentType, otherwise string) ([]byte, error) {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != contentType {
		return nil, &refused{http.StatusUnsupportedMediaType, otherwise}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrder))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, &refused{http.StatusRequestEntityTooLarge, orderTooLong}
	case err != nil:
		return nil, badRequest(noForm)
	case !utf8.Valid(body):
		return nil, badRequest(noForm)
	}
	return body, nil
}

// reason is why something is done, as the history keeps it.
func (o order) reason() (string, error) {
	reason := strings.TrimSpace(o.Reason)
	switch {
	case reason == "" && !o.DryRun:
		return "", badRequest(noReason)
	case len(reason) > maxReason:
		return "", badRequest(reasonTooLong)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", badRequest(reasonNoText)
	}
	return reason, nil
}
