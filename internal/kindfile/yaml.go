package kindfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxFile  = 1 << 20 // bytes
	maxDepth = 32      // levels of a file
)

// reader walks the nodes of a file and collects what is wrong with them. Reading goes on after a problem, so that all of
// them are told at once; what cannot be read is zero.
type reader struct {
	problems []Problem
	kind     string // that is being read
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{Line: n.Line, Kind: r.kind, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{Line: line, Kind: r.kind, Warning: true, Text: fmt.Sprintf(format, args...)})
}

// document parses a text to the one node that it has; nil if it cannot be read.
func (r *reader) document(text []byte) *yaml.Node {
	whole := &yaml.Node{}
	switch {
	case len(text) > maxFile:
		r.fail(whole, "the file has %d bytes, limit %d", len(text), maxFile)
		return nil
	case !utf8.Valid(text):
		r.fail(whole, "the file is not valid UTF-8")
		return nil
	}
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&doc); err != nil {
		r.failYAML(err)
		return nil
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		r.fail(&more, "a second YAML document: one file is one document")
		return nil
	case !errors.Is(err, io.EOF):
		r.failYAML(err)
		return nil
	}
	if len(doc.Content) != 1 || !r.plain(doc.Content[0], 0) {
		return nil
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// failYAML takes the line out of the library's error text, where it has one.
func (r *reader) failYAML(err error) {
	n := &yaml.Node{}
	text := err.Error()
	if errors.Is(err, io.EOF) {
		text = "the file is empty"
	}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		n.Line, _ = strconv.Atoi(m[1]) // 0 if there is none
		text = text[len(m[0]):]
	}
	if strings.HasPrefix(text, "did not find") {
		text += ", in what begins here or on the next line" // the parser tells where it gave up
	}
	r.fail(n, "not YAML: %s", text)
}

// plain refuses what makes a file say something else than what is written there: anchors, aliases, tags, and nesting
// without end.
func (r *reader) plain(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxDepth:
		r.fail(n, "nested more than %d levels deep", maxDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.fail(n, "anchors and aliases are not supported: write it out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, "tags are not supported")
		return false
	}
	for _, child := range n.Content {
		if !r.plain(child, depth+1) {
			return false
		}
	}
	return true
}

// isNull reports whether nothing is written there.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// pair is one entry of a mapping.
type pair struct{ name, value *yaml.Node }

// pairs are the entries of a mapping. A name that comes twice is a problem, and counts once.
func (r *reader) pairs(n *yaml.Node, what string) (out []pair) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s: a mapping is wanted, name: value", what)
		return nil
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			r.fail(name, "%s: a name is wanted", what)
			continue
		}
		if line, twice := seen[name.Value]; twice {
			r.fail(name, "%s: %q is there twice, first on line %d", what, name.Value, line)
			continue
		}
		seen[name.Value] = name.Line
		out = append(out, pair{name, value})
	}
	return out
}

// fields reads the values of a mapping by name.
type fields map[string]func(*yaml.Node)

// object reads a mapping whose names are all known, and must have those that are required.
func (r *reader) object(n *yaml.Node, what string, known fields, required ...string) {
	there := map[string]bool{}
	for _, p := range r.pairs(n, what) {
		read, ok := known[p.name.Value]
		if !ok {
			r.fail(p.name, "%s: unknown key %q%s", what, p.name.Value, r.suggestion(p.name.Value, known))
			continue
		}
		there[p.name.Value] = true
		if isNull(p.value) {
			r.fail(p.value, "%s: %s has no value: give it one, or leave it out", what, p.name.Value)
			continue
		}
		read(p.value)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, name := range required {
		if !there[name] {
			r.fail(n, "%s: %s is missing", what, name)
		}
	}
}

// hints are about names that people bring from elsewhere.
var hints = map[string]string{
	"subject":  "; a kind travels on jobs. and its name",
	"subjects": "; a kind travels on jobs. and its name",
	"name":     "; the name of a kind is its key under kinds",
	"retries":  "; an effect is tried again by the engine alone: see policy.max_failures",
	"lookup":   "; did you mean look_up?",
	"url":      "; the base URL is provider.url, and a call has a path",
	"emit":     noCommit,
	"emits":    noCommit,
	"events":   noCommit,
	"commit":   noCommit,
	"rows":     noCommit,
	"writes":   noCommit,
}

// noCommit is about what only a kind in Go can do.
const noCommit = "; a kind of a file emits nothing and writes no rows: leave it out, or write the kind in Go, whose Commit does both with the result"

func (r *reader) suggestion(word string, known fields) string {
	names := slices.Sorted(maps.Keys(known))
	if hint, ok := hints[word]; ok {
		return hint
	}
	if near := nearest(word, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; known are " + strings.Join(names, ", ")
}

// list are the items of a sequence; a single value counts as a list of one.
func (r *reader) list(n *yaml.Node, what string) []*yaml.Node {
	switch n.Kind { //nolint:exhaustive // no list
	case yaml.SequenceNode:
		return n.Content
	case yaml.ScalarNode:
		return []*yaml.Node{n}
	}
	r.fail(n, "%s: a list is wanted", what)
	return nil
}

// text is a scalar as it is written.
func (r *reader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.fail(n, "%s: a text is wanted", what)
		return ""
	}
	return n.Value
}

func (r *reader) textInto(to *string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) { *to = r.text(n, what) }
}

func (r *reader) boolInto(to *bool, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
			r.fail(n, "%s: true or false is wanted", what)
		}
		*to = n.Value == "true"
	}
}

func (r *reader) countInto(to *int, what string, least int) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := strconv.Atoi(n.Value)
		if err != nil || n.Tag != "!!int" || v < least {
			r.fail(n, "%s: a whole number of at least %d is wanted", what, least)
			return
		}
		*to = v
	}
}

func (r *reader) rateInto(to *float64, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || n.Kind != yaml.ScalarNode || !(v > 0 && v < 1e9) {
			r.fail(n, "%s: a number above 0 is wanted", what)
			return
		}
		*to = v
	}
}

func (r *reader) durationInto(to *time.Duration, what string, least time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := time.ParseDuration(n.Value)
		switch {
		case err != nil || n.Kind != yaml.ScalarNode:
			r.fail(n, "%s: a duration such as 500ms, 30s, 5m or 24h is wanted", what)
		case v < least:
			r.fail(n, "%s: at least %s is wanted", what, least)
		default:
			*to = v
		}
	}
}

// statuses are HTTP statuses, one or a list; 5xx stands for all from 500 to 599.
func (r *reader) statuses(n *yaml.Node, what string) (out []statusRange) {
	for _, item := range r.list(n, what) {
		s, ok := parseStatus(item.Value)
		if !ok || item.Kind != yaml.ScalarNode {
			r.fail(item, "%s: HTTP statuses are wanted, such as 201 or 5xx", what)
			continue
		}
		out = append(out, s)
	}
	return out
}

func (r *reader) statusListInto(to *[]int, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		*to = []int{} // an empty list is none, and not the default
		for _, s := range r.statuses(n, what) {
			if s.from != s.to {
				r.fail(n, "%s: single statuses are wanted", what)
				return
			}
			*to = append(*to, s.from)
		}
	}
}

func (r *reader) textsInto(to *[]string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		for _, item := range r.list(n, what) {
			*to = append(*to, r.text(item, what))
		}
	}
}
