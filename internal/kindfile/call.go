package kindfile

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/settlemq/settle/handlers"
)

// call is the template of a request.
type call struct {
	method  string
	path    []text // segments
	route   string // as error texts show the path
	query   []named
	headers []named
	body    *tree
	form    []named // instead of body
}

// named is a template with a name, of a header or a parameter.
type named struct {
	name string
	text text
}

var errNoSegment = errors.New("the path has a part that is empty, or only dots")

// path reads the path of a call: /reports/${external_id}. Each value is escaped as a whole.
func (r *reader) callPath(n *yaml.Node, what string, allowed scopeRule, c *call) {
	s := r.text(n, what)
	if s == "" || s[0] != '/' || strings.ContainsAny(s, "?#") && !strings.Contains(s, "${") {
		r.fail(n, "%s: it begins with / and has no query; that is a mapping of its own, query", what)
		return
	}
	c.path, c.route = nil, ""
	segments := strings.Split(s[1:], "/")
	for i, segment := range segments {
		one := *n
		one.Value = segment
		t := r.template(&one, what, allowed)
		if last := i == len(segments)-1; segment == "." || segment == ".." || segment == "" && !last {
			r.fail(n, "%s: %v", what, errNoSegment)
		}
		for _, ref := range t.refs() {
			if ref.absence == isLeftOut {
				r.fail(n, "%s: a path cannot leave ${%s?} out", what, ref.as)
			}
		}
		c.path = append(c.path, t)
		c.route += "/" + t.masked()
	}
}

// masked is a template with its placeholders in place of values.
func (t text) masked() string {
	var b strings.Builder
	for _, p := range t {
		if p.ref != nil {
			b.WriteString("{" + p.ref.as + "}")
			continue
		}
		b.WriteString(p.literal)
	}
	return b.String()
}

// named reads a mapping of names to templates.
func (r *reader) named(n *yaml.Node, what string, allowed scopeRule) (out []named) {
	for _, p := range r.pairs(n, what) {
		out = append(out, named{p.name.Value, r.template(p.value, what+"."+p.name.Value, allowed)})
	}
	return out
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are set by the engine or by HTTP itself.
var ownHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Expect", "Accept-Encoding",
	"Traceparent", "Tracestate"}

func (r *reader) headers(n *yaml.Node, what string, allowed scopeRule) []named {
	out := r.named(n, what, allowed)
	for i := range out {
		h := &out[i]
		if !headerName.MatchString(h.name) {
			r.fail(n, "%s: %q is no name of a header", what, h.name)
			continue
		}
		if h.name = http.CanonicalHeaderKey(h.name); slices.Contains(ownHeaders, h.name) {
			r.fail(n, "%s: %s is not yours to set", what, h.name)
		}
		for _, p := range h.text {
			if strings.ContainsFunc(p.literal, unicode.IsControl) {
				r.fail(n, "%s: %s has control characters", what, h.name)
			}
		}
		if isCredential(h.name) && !h.text.isSecret() {
			r.warn(n.Line, "%s: %s looks like a secret in the file: take it from ${env:NAME} or ${file:PATH} under provider.headers", what, h.name)
		}
	}
	return out
}

// isCredential reports whether a header usually carries a secret.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"authorization", "token", "secret", "password", "api-key", "apikey", "cookie"},
		func(word string) bool { return strings.Contains(name, word) })
}

// isSecret reports whether a template takes something from a variable or a file.
func (t text) isSecret() bool {
	return slices.ContainsFunc(t.refs(), func(r *ref) bool { return r.source == fromVariable || r.source == fromFile })
}

// refs are all placeholders of a call.
func (c *call) refs() (out []*ref) {
	for _, t := range c.path {
		out = append(out, t.refs()...)
	}
	for _, n := range slices.Concat(c.query, c.headers, c.form) {
		out = append(out, n.text.refs()...)
	}
	if c.body != nil {
		out = append(out, c.body.refs()...)
	}
	return out
}

// request fills the template in. Errors name the place and the member, and quote nothing of the job.
func (c *call) request(s scope) (req handlers.Request, err error) {
	req = handlers.Request{Method: c.method, Route: c.route, Query: url.Values{}, Header: http.Header{}}
	if req.Path, err = c.segments(s); err != nil {
		return req, err
	}
	if err := fill(c.query, s, "query", nil, req.Query.Set); err != nil {
		return req, err
	}
	if err := fill(c.headers, s, "header", checkHeader, req.Header.Set); err != nil {
		return req, err
	}
	switch {
	case c.body != nil:
		req.Body, err = c.body.encode(s)
		if err != nil {
			err = fmt.Errorf("body: %w", err)
		}
	case c.form != nil:
		form := url.Values{}
		err = fill(c.form, s, "form", nil, form.Set)
		req.Body = []byte(form.Encode())
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, err
}

func (c *call) segments(s scope) (out []string, err error) {
	for _, t := range c.path {
		segment, _, err := t.render(s, nil)
		switch {
		case err != nil:
			return nil, fmt.Errorf("path: %w", err)
		case len(t.refs()) > 0 && (segment == "" || segment == "." || segment == ".."):
			return nil, fmt.Errorf("path: %w", errNoSegment)
		}
		out = append(out, segment)
	}
	return out, nil
}

var errControl = errors.New("a value has control characters")

func checkHeader(value string) error {
	if strings.ContainsFunc(value, unicode.IsControl) {
		return errControl
	}
	return nil
}

func fill(templates []named, s scope, what string, check func(string) error, set func(name, value string)) error {
	for _, n := range templates {
		value, leftOut, err := n.text.render(s, nil)
		if err == nil && check != nil {
			err = check(value)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, n.name, err)
		}
		if !leftOut {
			set(n.name, value)
		}
	}
	return nil
}
