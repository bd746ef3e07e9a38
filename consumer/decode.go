package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
)

// maxNesting bounds objects and arrays inside each other, the body's own object included.
const maxNesting = 64

// refusalError says why a message is not accepted. It is final: the same bytes are refused again.
// The detail says what and where (byte offsets count from 0). It never quotes a value of the body, because it
// is stored and logged; the only names it holds are those of the job's own fields.
type refusalError struct {
	reason idemstore.Reason
	detail string
}

func (e *refusalError) Error() string { return string(e.reason) + ": " + e.detail }

func malformed(format string, args ...any) error {
	return &refusalError{idemstore.Malformed, fmt.Sprintf(format, args...)}
}

func badKey(format string, args ...any) error {
	return &refusalError{idemstore.BadKey, fmt.Sprintf(format, args...)}
}

// document is a body that passed the strict rules, with its values as a tree.
type document struct {
	body []byte // as received; not copied
	root node   // an object
}

// parse accepts one JSON object and nothing else, by rules stricter than those of encoding/json: a body that
// two readers could understand differently is refused. Not accepted are: more than maxBytes bytes (0 means
// maxBody), more than 64 levels, bad UTF-8, a byte-order mark, half a surrogate pair, two members of one
// object with the same name or with names that differ by case alone, and anything but white space after the
// object. A NUL written as \u0000 is accepted and kept. Errors are of type *refusalError.
//
// The document refers to body, which must not change afterwards.
func parse(body []byte, maxBytes int) (*document, error) {
	if maxBytes <= 0 {
		maxBytes = maxBody
	}
	if len(body) > maxBytes {
		return nil, &refusalError{idemstore.TooLarge, fmt.Sprintf("body of %d bytes, limit %d: split the job, each part under a key of its own, or raise "+
			"the limit for publishers and workers alike (SETTLE_MAX_BODY, Content.MaxBody) up to max_payload of the NATS server", len(body), maxBytes)}
	}
	if err := checkEncoding(body); err != nil {
		return nil, err
	}
	s := scanner{in: string(body)}
	doc := &document{body: body}
	if err := s.document(&doc.root); err != nil {
		return nil, err
	}
	return doc, nil
}

func checkEncoding(body []byte) error {
	if bytes.HasPrefix(body, []byte("\uFEFF")) {
		return malformed("byte-order mark at offset 0")
	}
	if utf8.Valid(body) {
		return nil
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size <= 1 {
			return malformed("bad UTF-8 at offset %d", at)
		}
		at += size
	}
}

// decodeJob decodes a document into J. Member names must match exactly: where encoding/json would take
// ORDER_ID for the field order_id, the body is refused. Unknown members are fine, at every level. Numbers stay
// exact in fields of type ID, json.Number, any and the integers (an integer takes no fraction and no exponent);
// a float64 field rounds, so a kind must not use one for an id or an amount.
//
// A member of another type than its field refuses the body as malformed, or as bad_key where its top-level
// member is one of ids. As in encoding/json null leaves a field at its zero value: a key made of a plain
// integer or string field cannot see the difference, one made of an ID or a pointer can.
func decodeJob[J any](doc *document, ids ...string) (J, error) {
	var job, none J
	t := reflect.TypeFor[J]()
	if err := conform(&doc.root, t); err != nil {
		return none, doc.refusal(err, ids)
	}
	decode := unmarshal
	if shapeOf(t).typed {
		decode = json.Unmarshal // the same in half the time
	}
	if err := decode(doc.body, &job); err != nil {
		return none, doc.refusal(doc.misfit(t), ids)
	}
	return job, nil
}

// unmarshal is json.Unmarshal that keeps numbers exact where the field does not say which type it wants.
func unmarshal(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return d.Decode(into)
}

// fault is a member that does not fit the job's type.
type fault struct {
	at     int    // an offset inside the faulty top-level member
	detail string // without any content of the body
	name   bool   // the name is wrong, not the value
}

func (d *document) refusal(f *fault, ids []string) error {
	top := slices.IndexFunc(d.root.children, func(m node) bool { return m.nameAt <= f.at && f.at < m.end })
	if top >= 0 && !f.name && slices.Contains(ids, d.root.children[top].name) {
		return badKey("%s", f.detail)
	}
	return malformed("%s", f.detail)
}

// misfit finds the first top-level member that encoding/json does not accept for t, by decoding each alone.
// The error itself would not do: that of a custom UnmarshalJSON names no member and may quote the value.
func (d *document) misfit(t reflect.Type) *fault {
	members := slices.Clone(d.root.children)
	slices.SortFunc(members, func(a, b node) int { return a.nameAt - b.nameAt })
	for i := range members {
		m := &members[i]
		alone := slices.Concat([]byte("{"), d.body[m.nameAt:m.end], []byte("}"))
		if err := unmarshal(alone, reflect.New(t).Interface()); err != nil {
			return misfitOf(m, t, err)
		}
	}
	return &fault{at: d.root.start, detail: fmt.Sprintf("the body does not fit %s", t)}
}

func misfitOf(m *node, t reflect.Type, err error) *fault {
	what := "a member"
	if f, known := shapeOf(t).fields[m.name]; known {
		what, t = "member "+m.name, f.typ
	}
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		t = typeErr.Type
	}
	return &fault{at: m.start, detail: fmt.Sprintf("%s at offset %d does not fit %s", what, m.start, t)}
}
