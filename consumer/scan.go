package consumer

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// nodeKind is the type of a JSON value. The bytes are part of the canonical form and thereby of every hash.
type nodeKind byte

const (
	nullNode   nodeKind = 'n'
	trueNode   nodeKind = 't'
	falseNode  nodeKind = 'f'
	numberNode nodeKind = '#'
	stringNode nodeKind = '"'
	arrayNode  nodeKind = '['
	objectNode nodeKind = '{'
)

// node is one JSON value and, inside an object, the member that holds it.
type node struct {
	kind       nodeKind
	name       string // of the member, decoded
	text       string // a string, decoded; a number, as it was written
	children   []node // members of an object, sorted by the bytes of their names; items of an array, in order
	nameAt     int    // offset of the member's name
	start, end int    // the value is body[start:end]
}

// scanner reads JSON from valid UTF-8. Its recursion is bounded by maxNesting.
type scanner struct {
	in    string
	pos   int
	depth int
}

func (s *scanner) document(root *node) error {
	s.space()
	if s.peek() != '{' && s.pos < len(s.in) {
		return malformed("not a JSON object at offset %d", s.pos)
	}
	if err := s.value(root); err != nil {
		return err
	}
	if s.space(); s.pos < len(s.in) {
		return malformed("text after the object at offset %d", s.pos)
	}
	return nil
}

func (s *scanner) value(n *node) (err error) {
	n.start = s.pos
	switch c := s.peek(); {
	case c == '{':
		err = s.nested(n, objectNode, s.object)
	case c == '[':
		err = s.nested(n, arrayNode, s.array)
	case c == '"':
		n.kind = stringNode
		n.text, err = s.str()
	case c == '-' || isDigit(c):
		n.kind = numberNode
		n.text, err = s.number()
	default:
		n.kind, err = s.literal()
	}
	n.end = s.pos
	return err
}

func (s *scanner) nested(n *node, kind nodeKind, body func(*node) error) error {
	if s.depth++; s.depth > maxNesting {
		return malformed("more than %d levels at offset %d", maxNesting, s.pos)
	}
	n.kind = kind
	s.pos++ // the opening bracket
	s.space()
	err := body(n)
	s.depth--
	return err
}

func (s *scanner) object(n *node) error {
	if s.take('}') {
		return nil
	}
	for {
		var m node
		if err := s.member(&m); err != nil {
			return err
		}
		if n.children == nil {
			n.children = make([]node, 0, 4)
		}
		n.children = append(n.children, m)
		if s.take('}') {
			break
		}
		if !s.take(',') {
			return s.unexpected()
		}
		s.space()
	}
	if err := distinct(n.children); err != nil {
		return err
	}
	slices.SortFunc(n.children, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return nil
}

func (s *scanner) member(m *node) (err error) {
	m.nameAt = s.pos
	if m.name, err = s.str(); err != nil {
		return err
	}
	s.space()
	if !s.take(':') {
		return s.unexpected()
	}
	s.space()
	if err := s.value(m); err != nil {
		return err
	}
	s.space()
	return nil
}

func (s *scanner) array(n *node) error {
	if s.take(']') {
		return nil
	}
	for {
		var item node
		if err := s.value(&item); err != nil {
			return err
		}
		n.children = append(n.children, item)
		s.space()
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.unexpected()
		}
		s.space()
	}
}

// distinct refuses members that encoding/json may take for one another. Many are compared by way of a map, so
// that a body full of members costs no quadratic time.
func distinct(members []node) error {
	if len(members) > 12 {
		return distinctOfMany(members)
	}
	for i := range members {
		for j := range i {
			if strings.EqualFold(members[j].name, members[i].name) {
				return repeated(&members[j], &members[i])
			}
		}
	}
	return nil
}

func distinctOfMany(members []node) error {
	seen := make(map[string]int, len(members))
	for i := range members {
		name := fold(members[i].name)
		if j, ok := seen[name]; ok {
			return repeated(&members[j], &members[i])
		}
		seen[name] = i
	}
	return nil
}

func repeated(first, second *node) error {
	if first.name == second.name {
		return malformed("repeated member at offset %d, first at offset %d", second.nameAt, first.nameAt)
	}
	return malformed("member at offset %d differs only by case from the one at offset %d", second.nameAt, first.nameAt)
}

// fold maps names that are equal under Unicode simple case folding, and only those, to one string: each rune
// becomes the smallest one of its orbit. encoding/json matches members to fields by the same relation.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}

// str reads a string. One without escapes is a part of the input, not a copy.
func (s *scanner) str() (string, error) {
	if !s.take('"') {
		return "", s.unexpected()
	}
	from := s.pos
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			s.pos++
			return s.in[from : s.pos-1], nil
		case c == '\\':
			return s.escaped([]byte(s.in[from:s.pos]))
		case c < ' ':
			return "", s.unexpected()
		}
		s.pos++
	}
	return "", s.unexpected()
}

func (s *scanner) escaped(text []byte) (string, error) {
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			s.pos++
			return string(text), nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			text = utf8.AppendRune(text, r)
		case c < ' ':
			return "", s.unexpected()
		default:
			text = append(text, c)
			s.pos++
		}
	}
	return "", s.unexpected()
}

func (s *scanner) escape() (rune, error) {
	const letters, meaning = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if s.pos++; s.peek() == 'u' {
		s.pos++
		return s.unicodeEscape()
	}
	i := strings.IndexByte(letters, s.peek())
	if i < 0 {
		return 0, s.unexpected()
	}
	s.pos++
	return rune(meaning[i]), nil
}

func (s *scanner) unicodeEscape() (rune, error) {
	at := s.pos - len(`\u`)
	r, ok := s.hex()
	if !ok {
		return 0, s.unexpected()
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if strings.HasPrefix(s.in[s.pos:], `\u`) {
		s.pos += len(`\u`)
		low, _ := s.hex()
		if pair := utf16.DecodeRune(r, low); pair != unicode.ReplacementChar {
			return pair, nil
		}
	}
	return 0, malformed("half of a surrogate pair at offset %d", at)
}

func (s *scanner) hex() (rune, bool) {
	r, ok := parseHex(s.in[s.pos:])
	if ok {
		s.pos += 4
	}
	return r, ok
}

// parseHex reads the four digits of a \u escape.
func parseHex(text string) (rune, bool) {
	if len(text) < 4 {
		return 0, false
	}
	r, err := strconv.ParseUint(text[:4], 16, 16)
	return rune(r), err == nil
}

func (s *scanner) number() (string, error) {
	from := s.pos
	s.take('-')
	ok := s.take('0') || s.digits()
	if ok && s.take('.') {
		ok = s.digits()
	}
	if ok && (s.take('e') || s.take('E')) {
		_ = s.take('+') || s.take('-')
		ok = s.digits()
	}
	if !ok {
		return "", s.unexpected()
	}
	return s.in[from:s.pos], nil
}

func (s *scanner) digits() bool {
	from := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	return s.pos > from
}

func (s *scanner) literal() (nodeKind, error) {
	rest := s.in[s.pos:]
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(rest, word) {
			s.pos += len(word)
			return nodeKind(word[0]), nil
		}
	}
	return 0, s.unexpected()
}

func (s *scanner) space() {
	for s.pos < len(s.in) && strings.IndexByte(" \t\r\n", s.in[s.pos]) >= 0 {
		s.pos++
	}
}

// peek returns the next byte, or 0 at the end: a NUL byte is legal nowhere in JSON.
func (s *scanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) unexpected() error {
	if s.pos >= len(s.in) {
		return malformed("body ends inside the object, at offset %d", len(s.in))
	}
	return malformed("unexpected character at offset %d", s.pos)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
