package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"
)

// maxBody is the largest request body, in bytes.
const maxBody = 256 << 10

// readBody reads the whole body. It must be read before a connection is closed on purpose: closing with unread
// bytes resets the connection, and the client may then lose what was sent to it.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// The deadline is lifted again afterwards; a delayed answer may take longer. Not every writer has deadlines.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, fmt.Errorf("the body is larger than %d bytes", maxBody)
	}
	if err != nil {
		return nil, errors.New("the body did not arrive whole")
	}
	return body, nil
}

// member is one member of a JSON object; value has at least one byte.
type member struct {
	name  string
	value json.RawMessage
}

// members reads one JSON object with nothing behind it. Names are exact and come once each, unlike in
// encoding/json, where letter case is ignored and the last of several wins.
func members(data []byte) ([]member, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the JSON is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var list []member
	seen := map[string]bool{}
	for d.More() {
		m, err := nextMember(d)
		if err != nil {
			return nil, err
		}
		if seen[m.name] {
			return nil, fmt.Errorf("member %.40q is there twice", m.name)
		}
		seen[m.name] = true
		list = append(list, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON object does not end")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return list, nil
}

func nextMember(d *json.Decoder) (m member, err error) {
	token, err := d.Token()
	if err != nil {
		return m, errors.New("the JSON is malformed")
	}
	m.name, _ = token.(string) // inside an object the decoder accepts nothing else as a name
	if err := d.Decode(&m.value); err != nil {
		return m, fmt.Errorf("member %.40q is malformed", m.name)
	}
	return m, nil
}

// object is a JSON object whose members are taken out one by one; what is left over is unknown.
type object map[string]json.RawMessage

func parseObject(data []byte) (object, error) {
	list, err := members(data)
	o := make(object, len(list))
	for _, m := range list {
		o[m.name] = m.value
	}
	return o, err
}

// take removes a member that must be there.
func (o object) take(name string) (json.RawMessage, error) {
	raw, ok := o[name]
	if !ok {
		return nil, fmt.Errorf("%s is missing", name)
	}
	delete(o, name)
	return raw, nil
}

// text removes a string that is not empty and that Postgres can store.
func (o object) text(name string) (string, error) {
	raw, err := o.take(name)
	if err != nil {
		return "", err
	}
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil || *text == "" {
		return "", fmt.Errorf("%s must be a string that is not empty", name)
	}
	if bytes.IndexByte([]byte(*text), 0) >= 0 {
		return "", fmt.Errorf("%s must not hold U+0000", name)
	}
	return *text, nil
}

// end refuses members that nobody has taken.
func (o object) end() error {
	for name := range o {
		return fmt.Errorf("member %.40q is unknown here; leave it out", name)
	}
	return nil
}
