package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// ErrInput: what a person gave cannot be used. Nothing was changed; the error says what is wrong with it.
var ErrInput = errors.New("input cannot be used")

// decodeResult decodes a result that a person gives. It is stricter than the decoding of a job: local rows and events are
// made of it, and nobody else looks at it before. A member that R does not have is refused, and so is one that is missing
// or null although a stored R would have it.
func decodeResult[R any](raw []byte) (r R, err error) {
	var none R
	doc, err := parse(raw, maxResult)
	if err != nil {
		return none, fmt.Errorf("%w: result: %w", ErrInput, err)
	}
	if f := conform(&doc.root, reflect.TypeFor[R]()); f != nil {
		return none, fmt.Errorf("%w: result: %s", ErrInput, f.detail)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return none, fmt.Errorf("%w: result: %w", ErrInput, err)
	}
	stored, err := json.Marshal(r)
	if err != nil {
		return none, fmt.Errorf("%w: result: %w", ErrInput, err)
	}
	if whole, err := parse(stored, 0); err == nil {
		if name, ok := lacks(doc.root, whole.root); ok {
			return none, fmt.Errorf("%w: result: member %s is missing; a stored result has %s", ErrInput, name, stored)
		}
	}
	return r, nil
}

// lacks finds a member of an object that another does not have, or has as null.
func lacks(given, whole node) (name string, ok bool) {
	for _, want := range whole.children {
		at := slices.IndexFunc(given.children, func(m node) bool { return m.name == want.name })
		if at < 0 || given.children[at].kind == nullNode && want.kind != nullNode {
			return want.name, true
		}
	}
	return "", false
}

// readResult decodes a result that this software has stored.
func readResult[R any](raw []byte) (r R, err error) {
	if err := unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("decode stored result: %w", err)
	}
	return r, nil
}
