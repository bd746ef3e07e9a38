package kindfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// memberType says what a member of a job has to be.
type memberType string

// The types.
const (
	typeID      memberType = "id"      // a string or an integer, the same id either way; not blank
	typeInteger memberType = "integer" // of any length, exact
	typeLine    memberType = "line"    // a string of 1 to 255 bytes without control characters
	typeText    memberType = "text"    // any string
	typeNumber  memberType = "number"  // digit for digit
	typeBoolean memberType = "boolean"
	typeObject  memberType = "object"
	typeList    memberType = "list"
)

var memberTypes = []string{"id", "integer", "line", "text", "number", "boolean", "object", "list"}

const maxLine = 255 // bytes of an id or a line

// declared is a member of a job, by its path.
type declared struct {
	name     string
	path     path
	typ      memberType
	optional bool
	line     int
}

// members are those that a kind declares, in the file's order. Others may be there; templates cannot name them.
type members []declared

func (r *reader) members(n *yaml.Node) (out members) {
	for _, p := range r.pairs(n, "job") {
		d := declared{name: p.name.Value, line: p.name.Line}
		var err error
		if d.path, err = parsePath(d.name); err != nil {
			r.fail(p.name, "job: %q is %v", d.name, err)
			continue
		}
		if slices.ContainsFunc(d.path, func(s step) bool { return s.item >= 0 }) {
			r.fail(p.name, "job: %q: items of lists are not declared; declare the list", d.name)
			continue
		}
		word := r.text(p.value, "job."+d.name)
		word, d.optional = strings.CutPrefix(word, "optional ")
		if d.typ = memberType(word); !slices.Contains(memberTypes, word) {
			r.fail(p.value, "job.%s: %q is no type; types are %s, and optional before one that may be absent", d.name, word, strings.Join(memberTypes, ", "))
		}
		out = append(out, d)
	}
	return out
}

// of finds the declared member that a placeholder is about: itself, or the object or list that it is in.
func (m members) of(p path) (declared, bool) {
	var best declared
	found := false
	for _, d := range m {
		if len(d.path) <= len(p) && slices.Equal(d.path, p[:len(d.path)]) && (!found || len(d.path) > len(best.path)) {
			best, found = d, true
		}
	}
	return best, found
}

// ids are the top-level members that may be written as a string or as an integer: they hash alike.
func (m members) ids() (out []string) {
	for _, d := range m {
		if d.typ == typeID && len(d.path) == 1 {
			out = append(out, d.path[0].name)
		}
	}
	return out
}

// check refuses a job whose members are not what they are declared as. Errors name the member, and quote nothing.
func (m members) check(job any) error {
	for _, d := range m {
		if err := d.checkSpelling(job); err != nil {
			return err
		}
		v, ok := d.path.find(job)
		switch {
		case !ok && d.optional:
			continue
		case !ok:
			return fmt.Errorf("%s: absent", d.name)
		}
		if err := d.typ.check(v); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

// checkSpelling refuses a member whose name differs by the case of letters alone: one reader would see it, another not.
func (d declared) checkSpelling(job any) error {
	last := d.path[len(d.path)-1].name
	parent := job
	if len(d.path) > 1 {
		parent, _ = d.path[:len(d.path)-1].find(job)
	}
	object, _ := parent.(map[string]any)
	for name := range object {
		if name != last && strings.EqualFold(name, last) {
			return fmt.Errorf("%s: a member is spelt with other letters, upper and lower case", d.name)
		}
	}
	return nil
}

var integerSyntax = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (t memberType) check(v any) error {
	switch t { //nolint:exhaustive // the others are kinds of JSON
	case typeID:
		return checkID(v)
	case typeInteger:
		if n, ok := v.(json.Number); !ok || !integerSyntax.MatchString(n.String()) {
			return errors.New("not an integer")
		}
		return nil
	case typeLine:
		if s, ok := v.(string); !ok || s == "" || len(s) > maxLine || strings.ContainsFunc(s, unicode.IsControl) {
			return errors.New("not a string, empty, too long, or with control characters")
		}
		return nil
	}
	return checkKind(t, v)
}

func checkID(v any) error {
	switch v := v.(type) {
	case json.Number:
		if integerSyntax.MatchString(v.String()) {
			return nil
		}
	case string:
		if strings.TrimSpace(v) != "" && len(v) <= maxLine && !strings.ContainsFunc(v, unicode.IsControl) {
			return nil
		}
	}
	return errors.New("not an id: a string that is not blank, or an integer")
}

func checkKind(t memberType, v any) error {
	ok := true
	switch v.(type) {
	case string:
		ok = t == typeText
	case json.Number:
		ok = t == typeNumber
	case bool:
		ok = t == typeBoolean
	case map[string]any:
		ok = t == typeObject
	case []any:
		ok = t == typeList
	}
	if !ok {
		return fmt.Errorf("not %s", map[memberType]string{typeText: "a string", typeNumber: "a number", typeBoolean: "a boolean",
			typeObject: "an object", typeList: "a list"}[t])
	}
	return nil
}
