package kindfile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scopeRule says which placeholders a template may have.
type scopeRule struct {
	sources []source
	members members // of job
	isText  bool    // each value becomes text: no objects, no lists
	total   bool    // no value may be absent, whatever the job is
}

// template reads a text with placeholders.
func (r *reader) template(n *yaml.Node, what string, allowed scopeRule) text {
	s := r.text(n, what)
	t, err := parseText(s)
	if err != nil {
		r.fail(n, "%s: %v", what, err)
		return nil
	}
	for _, ref := range t.refs() {
		r.checkRef(n, what, ref, allowed)
	}
	return t
}

func (r *reader) checkRef(n *yaml.Node, what string, ref *ref, allowed scopeRule) {
	switch {
	case !slices.Contains(allowed.sources, ref.source) && (ref.source == fromVariable || ref.source == fromFile):
		r.fail(n, "%s: secrets go into provider.url and provider.headers alone", what)
	case !slices.Contains(allowed.sources, ref.source):
		r.fail(n, "%s: there is no %s here; there is %s", what, ref.source, sourceNames(allowed.sources))
	case allowed.total && ref.absence != isError:
		r.fail(n, "%s: no ? and no :- here: jobs without the member would share one value", what)
	case ref.source == fromJob:
		r.checkMember(n, what, ref, allowed)
	}
}

func (r *reader) checkMember(n *yaml.Node, what string, ref *ref, allowed scopeRule) {
	d, ok := allowed.members.of(ref.path)
	switch {
	case !ok:
		r.fail(n, "%s: %s is not declared under job%s", what, ref.as, suggestMember(ref, allowed.members))
		return
	case d.optional && ref.absence == isError:
		r.fail(n, "%s: %s may be absent: write ${%s?} to leave it out then, or ${%s:-TEXT}", what, ref.as, ref.as, ref.as)
	case len(d.path) < len(ref.path) && d.typ != typeObject && d.typ != typeList:
		r.fail(n, "%s: %s is %s, and has no members", what, d.name, d.typ)
	case len(d.path) < len(ref.path) && allowed.total:
		r.fail(n, "%s: declare %s itself under job, so that it is always there", what, strings.TrimPrefix(ref.as, "job."))
	case len(d.path) == len(ref.path) && allowed.isText && (d.typ == typeObject || d.typ == typeList):
		r.fail(n, "%s: %s is %s, where a text is wanted", what, d.name, d.typ)
	}
	if len(d.path) == len(ref.path) && d.typ == typeID {
		ref.asText = true // both spellings of an id are the same request
	}
}

func suggestMember(ref *ref, known members) string {
	var names []string
	for _, d := range known {
		names = append(names, d.name)
	}
	if near := nearest(strings.TrimPrefix(ref.as, "job."), names); near != "" {
		return "; did you mean job." + near + "?"
	}
	return ""
}

func sourceNames(sources []source) string {
	if len(sources) == 0 {
		return "no placeholder"
	}
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
