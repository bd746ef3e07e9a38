package kindfile

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// path leads to a value inside a JSON value: names joined by dots, [0] for the items of a list, and ["a name"] for
// names with other characters than letters, digits, _ and -. It is a small part of JSONPath, without anything that finds
// several values.
type path []step

// step is one of them: a name, or the number of an item.
type step struct {
	name string
	item int // -1: it is a name
}

var stepSyntax = regexp.MustCompile(`^(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[(0|[1-9][0-9]{0,5})\]|\["((?:[^"\\\x00-\x1f]|\\["\\])+)"\])`)

var errPath = errors.New(`not a path: names joined by dots, [0] for an item, ["a name"] for one with other characters`)

// parsePath reads a path that may begin with a name.
func parsePath(text string) (path, error) {
	if text != "" && text[0] != '[' {
		text = "." + text
	}
	return parseSteps(text)
}

// parseSteps reads what comes after the name of a source: .a[0].b
func parseSteps(text string) (p path, err error) {
	for text != "" {
		m := stepSyntax.FindStringSubmatch(text)
		switch {
		case m == nil:
			return nil, errPath
		case m[1] != "":
			p = append(p, step{m[1], -1})
		case m[2] != "":
			item, _ := strconv.Atoi(m[2]) // the syntax has only digits, and few
			p = append(p, step{"", item})
		default:
			p = append(p, step{strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[3]), -1})
		}
		text = text[len(m[0]):]
	}
	if len(p) == 0 {
		return nil, errPath
	}
	return p, nil
}

// find is the value at the path. A null counts as absent.
func (p path) find(in any) (any, bool) {
	for _, s := range p {
		switch v := in.(type) {
		case map[string]any:
			if s.item >= 0 {
				return nil, false
			}
			in = v[s.name]
		case []any:
			if s.item < 0 || s.item >= len(v) {
				return nil, false
			}
			in = v[s.item]
		default:
			return nil, false
		}
	}
	return in, in != nil
}

// scalar is a JSON value as text: a string as it is, a number digit for digit.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// decodeJSON reads one JSON value and keeps its numbers exact.
func decodeJSON(text []byte) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}
