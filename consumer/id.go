package consumer

import (
	"encoding/json"
	"errors"
	"strings"
)

// ID is an id in a job that publishers may write as a JSON string or as an integer: "18452" and 18452 are the
// same ID, and equal under ==. No digit is lost, however long the integer is.
//
//	type Job struct {
//		OrderID consumer.ID `json:"order_id"`
//	}
//
// Name the member in Content.IDs as well, so that both spellings hash alike. Decoding never fails: whether the
// id is usable is asked with Text, in the kind's Key function, whose error refuses the message as bad_key.
// The zero value is an absent id.
type ID struct {
	form idForm
	text string
}

type idForm int

const (
	idAbsent idForm = iota
	idText
	idNull
	idBool
	idObject
	idArray
	idNotInteger
)

// NewID returns the ID with the text s, as if a body had held it as a string.
func NewID(s string) ID { return ID{idText, s} }

// Errors of Text.
var (
	errIDAbsent     = errors.New("id is absent")
	errIDNull       = errors.New("id is null")
	errIDBool       = errors.New("id is a boolean")
	errIDObject     = errors.New("id is an object")
	errIDArray      = errors.New("id is an array")
	errIDNotInteger = errors.New("id is a number with a fraction or an exponent")
	errIDEmpty      = errors.New("id is empty")
	errIDBlank      = errors.New("id is only white space")
)

// Text returns the exact text: a string as it is, untrimmed; an integer as its digits. The error says what else
// it is: absent, null, empty, only white space, a boolean, an object, an array, or a number that is not written
// as an integer (1.0 and 1e2 are not). The error quotes nothing of the id.
func (id ID) Text() (string, error) {
	if err := id.check(); err != nil {
		return "", err
	}
	if id.text == "" {
		return "", errIDEmpty
	}
	if strings.TrimSpace(id.text) == "" {
		return "", errIDBlank
	}
	return id.text, nil
}

func (id ID) check() error {
	switch id.form {
	case idText:
		return nil
	case idAbsent:
		return errIDAbsent
	case idNull:
		return errIDNull
	case idBool:
		return errIDBool
	case idObject:
		return errIDObject
	case idArray:
		return errIDArray
	case idNotInteger:
		return errIDNotInteger
	}
	return errIDAbsent
}

// UnmarshalJSON takes any JSON value and never fails for a valid one; see Text.
func (id *ID) UnmarshalJSON(data []byte) error {
	if !json.Valid(data) {
		return errors.New("decode id: not valid JSON")
	}
	data = []byte(strings.Trim(string(data), " \t\r\n"))
	*id = ID{form: idFormOf(data)}
	switch {
	case id.form != idText:
		return nil
	case data[0] == '"':
		return json.Unmarshal(data, &id.text)
	default:
		id.text = string(data)
		return nil
	}
}

func idFormOf(data []byte) idForm {
	switch data[0] {
	case 'n':
		return idNull
	case 't', 'f':
		return idBool
	case '{':
		return idObject
	case '[':
		return idArray
	case '"':
		return idText
	}
	if !isIntegerLiteral(string(data)) {
		return idNotInteger
	}
	return idText
}

// MarshalJSON writes the text as a JSON string, also when it was read from an integer. An absent or null id is
// written as null (the option omitzero leaves an absent one out). Any other id without a text is an error.
func (id ID) MarshalJSON() ([]byte, error) {
	switch err := id.check(); {
	case err == nil:
		return json.Marshal(id.text)
	case errors.Is(err, errIDAbsent), errors.Is(err, errIDNull):
		return []byte("null"), nil
	default:
		return nil, err
	}
}
