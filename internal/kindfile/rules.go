package kindfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// means is what an answer says.
type means string

// What answers to a request for an effect may mean.
const (
	done          means = "done"
	accepted      means = "accepted"    // taken, not done yet: asked about by its id
	refused       means = "refused"     // for good
	conflict      means = "conflict"    // the key was used with other content: a person decides
	inProgress    means = "in_progress" // an earlier request with the key is at work
	exists        means = "exists"      // the effect is there already: it is asked about
	notSent       means = "not_sent"    // applied nothing; counts only with provider.applied_nothing
	misconfigured means = "misconfigured"
	unknown       means = "unknown"
)

// What answers to a look-up may mean.
const (
	found         means = "found"
	foundRefused  means = "found_refused"
	absent        means = "absent" // the provider surely does not know it
	running       means = "running"
	contradictory means = "contradictory"
	cannotTell    means = "cannot_tell"
)

var (
	sendMeanings   = []string{"done", "accepted", "refused", "conflict", "in_progress", "exists", "not_sent", "misconfigured", "unknown"}
	lookUpMeanings = []string{"found", "found_refused", "absent", "running", "contradictory", "cannot_tell"}
)

// rule says which answers mean what. The first one of a list that fits counts.
type rule struct {
	status []statusRange
	where  []condition // all of them
	has    []path      // there, and not null
	lacks  []path      // a JSON answer without them
	means  means
	result *tree // instead of the kind's
	line   int
}

// condition: the member at path is one of the values, as text.
type condition struct {
	path   path
	values []string
}

type statusRange struct{ from, to int }

func parseStatus(s string) (statusRange, bool) {
	if len(s) == 3 && s[0] >= '1' && s[0] <= '5' && strings.EqualFold(s[1:], "xx") {
		from := int(s[0]-'0') * 100
		return statusRange{from, from + 99}, true
	}
	n, err := strconv.Atoi(s)
	return statusRange{n, n}, err == nil && len(s) == 3 && n >= 100 && n <= 599
}

// rules reads the answers of a call.
func (r *reader) rules(n *yaml.Node, what string, meanings []string, result scopeRule) (out []rule) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, "%s: a list of rules is wanted, each with a status and what it means", what)
		return nil
	}
	for _, item := range n.Content {
		out = append(out, r.rule(item, what, meanings, result))
	}
	return out
}

func (r *reader) rule(n *yaml.Node, what string, meanings []string, result scopeRule) (out rule) {
	out.line = n.Line
	r.object(n, what, fields{
		"status": func(n *yaml.Node) { out.status = r.statuses(n, what+".status") },
		"where":  func(n *yaml.Node) { out.where = r.conditions(n, what+".where") },
		"has":    func(n *yaml.Node) { out.has = r.paths(n, what+".has") },
		"lacks":  func(n *yaml.Node) { out.lacks = r.paths(n, what+".lacks") },
		"means": func(n *yaml.Node) {
			word := r.text(n, what+".means")
			if out.means = means(word); !slices.Contains(meanings, word) {
				r.fail(n, "%s: %q is no meaning; there are %s", what, word, strings.Join(meanings, ", "))
			}
		},
		"result": func(n *yaml.Node) { out.result = r.tree(n, what+".result", result) },
	}, "status", "means")
	return out
}

func (r *reader) paths(n *yaml.Node, what string) (out []path) {
	for _, item := range r.list(n, what) {
		out = append(out, r.path(item, r.text(item, what), what))
	}
	return out
}

func (r *reader) path(n *yaml.Node, text, what string) path {
	p, err := parsePath(text)
	if err != nil {
		r.fail(n, "%s: %q is %v", what, text, err)
	}
	return p
}

func (r *reader) conditions(n *yaml.Node, what string) (out []condition) {
	for _, p := range r.pairs(n, what) {
		c := condition{path: r.path(p.name, p.name.Value, what)}
		for _, v := range r.list(p.value, what) {
			if isNull(v) {
				r.fail(v, "%s: a value is wanted; for a member that is not there use lacks", what)
			}
			c.values = append(c.values, v.Value)
		}
		out = append(out, c)
	}
	return out
}

// looksInside reports whether the rule depends on the body.
func (r rule) looksInside() bool { return len(r.where)+len(r.has)+len(r.lacks) > 0 }

// reply is an answer as rules see it.
type reply struct {
	status int
	whole  bool // the body was read to its end
	isJSON bool
	body   any
}

var errCut = errors.New("answer is cut off or too large, and its meaning depends on what is in it")

// match finds the first rule that fits. Where a rule depends on a body that was not read to its end nobody can tell.
func match(rules []rule, a reply) (*rule, error) {
	for i := range rules {
		r := &rules[i]
		if !slices.ContainsFunc(r.status, func(s statusRange) bool { return s.from <= a.status && a.status <= s.to }) {
			continue
		}
		if r.looksInside() && !a.whole {
			return nil, errCut
		}
		if r.fits(a) {
			return r, nil
		}
	}
	return nil, nil //nolint:nilnil // no rule: unknown
}

func (r rule) fits(a reply) bool {
	for _, c := range r.where {
		v, ok := c.path.find(a.body)
		s, isScalar := scalar(v)
		if !ok || !isScalar || !slices.Contains(c.values, s) {
			return false
		}
	}
	for _, p := range r.has {
		if _, ok := p.find(a.body); !ok {
			return false
		}
	}
	for _, p := range r.lacks {
		if _, ok := p.find(a.body); ok || !a.isJSON {
			return false
		}
	}
	return true
}

// String names a rule for error texts.
func (r rule) String() string { return fmt.Sprintf("the rule of line %d", r.line) }
