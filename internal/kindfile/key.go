package kindfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyText is the template of a business key. Two jobs that differ in a member of it never get the same key: between two
// placeholders stands a separator, and where it occurs in a value it is written as %XX, and % as %25. A key with one
// placeholder has nothing to be mistaken for, and its value stays as it is.
type keyText struct {
	text
	escaped string // characters that are escaped in values; empty: none are
}

const (
	separators = "/:_-.|#@~+=,;&! "
	keyTypes   = "id, integer and line"
)

// keyText reads the template of a key.
func (r *reader) keyText(n *yaml.Node, of members) (k keyText) {
	k.text = r.template(n, "key", scopeRule{sources: []source{fromJob}, members: of, isText: true, total: true})
	if k.text == nil {
		return k
	}
	if len(k.refs()) == 0 {
		r.fail(n, "key: it names no member of the job, so all jobs would be one")
		return k
	}
	for _, ref := range k.refs() {
		d, ok := of.of(ref.path)
		if ok && len(d.path) == len(ref.path) && !slices.Contains([]memberType{typeID, typeInteger, typeLine}, d.typ) {
			r.fail(n, "key: %s is %s; a key is made of members of the types %s, which have one spelling", d.name, d.typ, keyTypes)
		}
	}
	if len(k.refs()) > 1 {
		k.escaped = "%" + r.separatorsIn(n, k.text)
	}
	return k
}

// separatorsIn are the characters that end a value before another one.
func (r *reader) separatorsIn(n *yaml.Node, t text) (out string) {
	last := len(t) - 1
	for t[last].ref == nil {
		last--
	}
	for i := range last {
		if t[i].ref == nil {
			continue
		}
		next := t[i+1]
		if next.ref != nil || !strings.Contains(separators, next.literal[:1]) {
			r.fail(n, "key: after ${%s} a separator is wanted, one of %s: else two jobs could get the same key", t[i].ref.as, separators)
			continue
		}
		out += next.literal[:1]
	}
	return out
}

// of is the key of a job.
func (k keyText) of(job any) (string, error) {
	key, _, err := k.render(scope{job: job}, k.escape)
	return key, err
}

func (k keyText) escape(value string) string {
	if k.escaped == "" || !strings.ContainsAny(value, k.escaped) {
		return value
	}
	var b strings.Builder
	for i := range len(value) {
		if strings.IndexByte(k.escaped, value[i]) >= 0 {
			fmt.Fprintf(&b, "%%%02X", value[i])
			continue
		}
		b.WriteByte(value[i])
	}
	return b.String()
}
