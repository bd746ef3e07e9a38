package admin

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// mostShown bounds what a page shows of a body, in bytes.
const mostShown = 64 << 10

// shown is a body as a person may see it: laid out if it is JSON, with the names of its members, and without card numbers,
// e-mail addresses, passwords and tokens in the values, nor the values of hidden members. Escapes are undone first: they hide
// nothing.
func shown(body []byte, hidden []string) string {
	if len(hidden) > 0 && len(body) > 0 {
		var ok bool
		if body, ok = without(body, hidden); !ok {
			return notShown
		}
	}
	text, ok := laidOut(body)
	if !ok {
		text = string(body)
	}
	text = consumer.Scrub(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "\n" + bodyCut
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// notShown stands in the place of what is hidden, and kindNotKnown in that of what might have to be.
const (
	notShown     = "[not shown]"
	kindNotKnown = "[not shown: this program does not know the kind, and so not what of it nobody may see]"
)

// shownOf is a body of a kind as a person may see it. Of a kind that only another program knows it shows nothing.
func (s *screen) shownOf(kind string, body []byte) string {
	k, known := s.kinds[kind]
	if !known && len(body) > 0 {
		return kindNotKnown
	}
	return shown(body, k.Hidden)
}

// shownOfRefusal is the body of a refused message. One without a kind, or of a kind that no program had when it came, may have
// been meant for any: what one kind hides is hidden.
func (s *screen) shownOfRefusal(r idemstore.KeptRefusal) string {
	_, known := s.kinds[r.Kind]
	if known || r.Kind != "" && r.Reason != idemstore.UnknownKind {
		return s.shownOf(r.Kind, r.Body)
	}
	var hidden []string
	for _, k := range s.kinds {
		hidden = append(hidden, k.Hidden...)
	}
	return shown(r.Body, hidden)
}

// encodedData is the member of a CloudEvent that holds a job in base64, where no name can be found.
const encodedData = "data_base64"

// without is JSON without the values of the named members, at any depth. It is false for what is no JSON.
func without(body []byte, names []string) ([]byte, bool) {
	if !json.Valid(body) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var out bytes.Buffer
	err := copyValue(&out, d, names)
	return out.Bytes(), err == nil
}

// copyValue copies the next value.
func copyValue(out *bytes.Buffer, d *json.Decoder, names []string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		return write(out, token)
	}
	out.WriteByte(byte(open))
	for i := 0; d.More(); i++ {
		if i > 0 {
			out.WriteByte(',')
		}
		if open == '{' {
			err = copyMember(out, d, names)
		} else {
			err = copyValue(out, d, names)
		}
		if err != nil {
			return err
		}
	}
	closing, err := d.Token()
	if end, ok := closing.(json.Delim); ok {
		out.WriteByte(byte(end))
	}
	return err
}

// copyMember copies the next member of an object, or its name alone.
func copyMember(out *bytes.Buffer, d *json.Decoder, names []string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	name, _ := token.(string)
	if err := write(out, name); err != nil {
		return err
	}
	out.WriteByte(':')
	if name != encodedData && !slices.ContainsFunc(names, func(hidden string) bool { return strings.EqualFold(hidden, name) }) {
		return copyValue(out, d, names)
	}
	var skipped json.RawMessage
	if err := d.Decode(&skipped); err != nil {
		return err
	}
	return write(out, notShown)
}

func write(out *bytes.Buffer, v any) error {
	text, err := json.Marshal(v)
	out.Write(text)
	return err
}

// laidOut is JSON on lines of its own, each string in its shortest spelling. Numbers stay digit for digit, and members in
// their order. It is false for what is no JSON.
func laidOut(body []byte) (string, bool) {
	var flat bytes.Buffer
	if json.Indent(&flat, body, "", "  ") != nil {
		return "", false
	}
	var out strings.Builder
	for rest := flat.Bytes(); len(rest) > 0; {
		at := bytes.IndexByte(rest, '"')
		if at < 0 {
			out.Write(rest)
			break
		}
		end := at + 1
		for rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		out.Write(rest[:at])
		out.WriteString(respelled(rest[at : end+1]))
		rest = rest[end+1:]
	}
	return out.String(), true
}

// respelled is a JSON string with no more escapes than it needs.
func respelled(literal []byte) string {
	var text string
	if json.Unmarshal(literal, &text) != nil {
		return string(literal)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(text) != nil {
		return string(literal)
	}
	return strings.TrimSuffix(out.String(), "\n")
}
