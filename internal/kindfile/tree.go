package kindfile

import (
	"bytes"
	"encoding/json"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// tree is a JSON value with placeholders in its texts. A text that is one placeholder becomes the value itself, with its
// type; any other text becomes a string. Values are encoded, never pasted, so that none can add a member.
type tree struct {
	literal []byte // JSON, where it has no placeholder
	text    text
	members []member // of an object, in the file's order
	items   []*tree  // of a list
	kind    treeKind
}

type treeKind int

const (
	literalTree treeKind = iota
	textTree
	objectTree
	listTree
)

type member struct {
	name  string
	value *tree
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// tree reads a node. allowed says which placeholders it may have.
func (r *reader) tree(n *yaml.Node, what string, allowed scopeRule) *tree {
	switch n.Kind { //nolint:exhaustive // documents and aliases are refused before
	case yaml.MappingNode:
		t := &tree{kind: objectTree}
		for _, p := range r.pairs(n, what) {
			t.members = append(t.members, member{p.name.Value, r.tree(p.value, what+"."+p.name.Value, allowed)})
		}
		return t
	case yaml.SequenceNode:
		t := &tree{kind: listTree}
		for _, item := range n.Content {
			t.items = append(t.items, r.tree(item, what, allowed))
		}
		return t
	case yaml.ScalarNode:
		return r.leaf(n, what, allowed)
	}
	r.fail(n, "%s: a JSON value is wanted", what)
	return &tree{literal: []byte("null")}
}

func (r *reader) leaf(n *yaml.Node, what string, allowed scopeRule) *tree {
	switch n.Tag {
	case "!!null":
		return &tree{literal: []byte("null")}
	case "!!bool":
		return &tree{literal: []byte(map[bool]string{true: "true", false: "false"}[n.Value[0]|0x20 == 't'])}
	case "!!int", "!!float":
		if !jsonNumber.MatchString(n.Value) {
			r.fail(n, "%s: a number is written as in JSON; put a text into quotes", what)
			return &tree{literal: []byte("null")}
		}
		return &tree{literal: []byte(n.Value)}
	}
	t := r.template(n, what, allowed)
	if len(t.refs()) == 0 {
		return &tree{literal: quote(literalOf(t))}
	}
	return &tree{kind: textTree, text: t}
}

func literalOf(t text) string {
	if len(t) == 0 {
		return ""
	}
	return t[0].literal
}

func quote(s string) []byte {
	text, _ := json.Marshal(s) // a string is always JSON
	return text
}

// encode is the tree as JSON.
func (t *tree) encode(s scope) ([]byte, error) {
	var b bytes.Buffer
	leftOut, err := t.write(&b, s)
	if err != nil {
		return nil, err
	}
	if leftOut {
		return []byte("null"), nil
	}
	return b.Bytes(), nil
}

// write appends the value, or reports that it is to be left out.
func (t *tree) write(b *bytes.Buffer, s scope) (leftOut bool, err error) {
	switch t.kind {
	case objectTree:
		return false, t.writeObject(b, s)
	case listTree:
		return false, t.writeList(b, s)
	case textTree:
		return t.writeText(b, s)
	case literalTree:
	}
	b.Write(t.literal)
	return false, nil
}

func (t *tree) writeObject(b *bytes.Buffer, s scope) error {
	b.WriteByte('{')
	comma := false
	for _, m := range t.members {
		before := b.Len()
		if comma {
			b.WriteByte(',')
		}
		b.Write(quote(m.name))
		b.WriteByte(':')
		leftOut, err := m.value.write(b, s)
		if err != nil {
			return err
		}
		if leftOut {
			b.Truncate(before)
			continue
		}
		comma = true
	}
	b.WriteByte('}')
	return nil
}

func (t *tree) writeList(b *bytes.Buffer, s scope) error {
	b.WriteByte('[')
	comma := false
	for _, item := range t.items {
		before := b.Len()
		if comma {
			b.WriteByte(',')
		}
		leftOut, err := item.write(b, s)
		if err != nil {
			return err
		}
		if leftOut {
			b.Truncate(before)
			continue
		}
		comma = true
	}
	b.WriteByte(']')
	return nil
}

func (t *tree) writeText(b *bytes.Buffer, s scope) (leftOut bool, err error) {
	if len(t.text) == 1 && !t.text[0].ref.asText {
		if v, ok := t.text[0].ref.find(s); ok {
			raw, err := json.Marshal(v)
			b.Write(raw)
			return false, err
		}
	}
	value, leftOut, err := t.text.render(s, nil)
	if err == nil && !leftOut {
		b.Write(quote(value))
	}
	return leftOut, err
}

// refs are all placeholders of the tree.
func (t *tree) refs() (out []*ref) {
	out = t.text.refs()
	for _, m := range t.members {
		out = append(out, m.value.refs()...)
	}
	for _, item := range t.items {
		out = append(out, item.refs()...)
	}
	return out
}

// at is the part of the tree that a path leads to; nil if there is none.
func (t *tree) at(p path) *tree {
	for _, s := range p {
		var next *tree
		for _, m := range t.members {
			if s.item < 0 && m.name == s.name {
				next = m.value
			}
		}
		if s.item >= 0 && s.item < len(t.items) {
			next = t.items[s.item]
		}
		if next == nil {
			return nil
		}
		t = next
	}
	return t
}
