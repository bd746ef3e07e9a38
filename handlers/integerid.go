package handlers

import (
	"encoding/json"
	"errors"
	"regexp"
)

// IntegerID is an id in a job that has to be a JSON integer, of any length, and is kept exactly. Decoding never fails: a body with something else in its place
// is refused by the kind's key, as one whose id is unusable. The zero value is an absent id.
type IntegerID struct{ raw string }

// NewIntegerID is the id with the given digits; whether they are an integer is asked later, with Text.
func NewIntegerID(digits string) IntegerID { return IntegerID{digits} }

var integerSyntax = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// Text is the id's digits. A string, a fraction, an exponent and anything else that is no integer is an error.
func (id IntegerID) Text() (string, error) {
	switch {
	case id.raw == "" || id.raw == "null":
		return "", errors.New("absent")
	case !integerSyntax.MatchString(id.raw):
		return "", errors.New("not an integer")
	}
	return id.raw, nil
}

// UnmarshalJSON takes any JSON value; see Text.
func (id *IntegerID) UnmarshalJSON(data []byte) error {
	id.raw = string(data)
	return nil
}

// MarshalJSON writes the value as it came, null if it is absent.
func (id IntegerID) MarshalJSON() ([]byte, error) {
	if id.raw == "" {
		return []byte("null"), nil
	}
	if !json.Valid([]byte(id.raw)) {
		return nil, errors.New("id is not JSON")
	}
	return []byte(id.raw), nil
}
