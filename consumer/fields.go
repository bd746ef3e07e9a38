package consumer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// conform walks a value beside the type that it will be decoded into and finds what encoding/json would let
// pass: a member that matches a field by case folding only, and a JSON string in a json.Number field.
// Types with an UnmarshalJSON of their own are left to it.
func conform(n *node, t reflect.Type) *fault {
	switch n.kind {
	case stringNode:
		if isNumber(t) {
			return &fault{at: n.start, detail: fmt.Sprintf("the string at offset %d should be a number", n.start)}
		}
		return nil
	case objectNode, arrayNode:
		return conformChildren(n, shapeOf(t))
	case nullNode, trueNode, falseNode, numberNode:
		return nil
	}
	return nil
}

func conformChildren(n *node, s *shape) *fault {
	for i := range n.children {
		child := &n.children[i]
		t, err := s.typeOf(child, n.kind)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		if err := conform(child, t); err != nil {
			return err
		}
	}
	return nil
}

func isNumber(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == reflect.TypeFor[json.Number]()
}

// shape is what member names of a type mean to encoding/json.
type shape struct {
	elem   reflect.Type     // of a map, slice or array
	fields map[string]field // of a struct, by exact name
	folded map[string]string
	typed  bool // every field, however deep, says which type it wants
}

type field struct {
	typ    reflect.Type
	depth  int  // levels of embedding
	tagged bool // named by a tag
	quoted bool // option ",string": the value is inside a JSON string
	hidden bool // two fields claim the name with equal right: encoding/json sees neither
}

// typeOf returns the type that a child of a value of the given kind is decoded into, or nil where no rule applies.
func (s *shape) typeOf(child *node, parent nodeKind) (reflect.Type, *fault) {
	if s.fields == nil || parent == arrayNode {
		return s.elem, nil
	}
	if f, ok := s.fields[child.name]; ok {
		if f.quoted && isNumber(f.typ) {
			return nil, nil
		}
		return f.typ, nil
	}
	if name, ok := s.folded[fold(child.name)]; ok {
		detail := fmt.Sprintf("member %s at offset %d: did you mean %s", child.name, child.nameAt, name)
		return nil, &fault{at: child.nameAt, detail: detail, name: true}
	}
	return nil, nil
}

// shapes remembers shapeOf: reflect.Type to *shape. Types are few and never change.
var shapes sync.Map

func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape) //nolint:errcheck // nothing else is stored
	}
	s := newShape(t)
	s.typed = isTyped(t, map[reflect.Type]bool{})
	shapes.Store(t, s)
	return s
}

// isTyped reports whether a type holds no interface, which encoding/json would fill as it thinks fit. seen are the
// types that are being looked at.
func isTyped(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return true
	}
	seen[t] = true
	switch t.Kind() { //nolint:exhaustive // every other kind is a value of its own
	case reflect.Interface:
		return false
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array:
		return isTyped(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if !isTyped(t.Field(i).Type, seen) {
				return false
			}
		}
	}
	return true
}

func newShape(t reflect.Type) *shape {
	unmarshaler := reflect.TypeFor[json.Unmarshaler]()
	for {
		if t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
			return &shape{}
		}
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // every other kind holds no members
	case reflect.Map, reflect.Slice, reflect.Array:
		return &shape{elem: t.Elem()}
	case reflect.Struct:
		return structShape(t)
	}
	return &shape{}
}

func structShape(t reflect.Type) *shape {
	s := &shape{fields: map[string]field{}, folded: map[string]string{}}
	s.collect(t, 0, map[reflect.Type]bool{})
	for name, f := range s.fields {
		if f.hidden {
			delete(s.fields, name)
			continue
		}
		s.folded[fold(name)] = name
	}
	return s
}

// collect adds the fields of t, those of embedded structs included, by the rules of encoding/json.
func (s *shape) collect(t reflect.Type, depth int, path map[reflect.Type]bool) {
	if path[t] {
		return
	}
	path[t] = true
	defer delete(path, t)
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, skip := jsonName(sf)
		if skip {
			continue
		}
		if inner := embedded(sf); inner != nil && name == "" {
			s.collect(inner, depth+1, path)
			continue
		}
		f := field{typ: sf.Type, depth: depth, tagged: name != "", quoted: slices.Contains(options, "string")}
		if name == "" {
			name = sf.Name
		}
		s.add(name, f)
	}
}

// add lets the field win that encoding/json would choose: the least embedded, then the tagged one, else none.
func (s *shape) add(name string, f field) {
	old, taken := s.fields[name]
	switch {
	case !taken || f.depth < old.depth || f.depth == old.depth && f.tagged && !old.tagged:
		s.fields[name] = f
	case f.depth == old.depth && f.tagged == old.tagged:
		old.hidden = true
		s.fields[name] = old
	}
}

// jsonName returns the name in the field's tag, which is empty where the tag has none or an unusable one.
func jsonName(sf reflect.StructField) (name string, options []string, skip bool) {
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && embedded(sf) == nil {
		return "", nil, true
	}
	options = strings.Split(tag, ",")
	name = options[0]
	if strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		name = ""
	}
	return name, options[1:], false
}

// embedded returns the struct type that is embedded by sf, or nil.
func embedded(sf reflect.StructField) reflect.Type {
	t := sf.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !sf.Anonymous || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}
