package kindfile

import (
	"errors"
	"fmt"
	"strings"
)

// source is where a placeholder takes its value from.
type source string

// The sources.
const (
	fromJob         source = "job"          // the body of the message
	fromAnswer      source = "answer"       // the provider's answer
	fromResult      source = "result"       // what is stored of it
	fromKey         source = "key"          // the business key
	fromProviderKey source = "provider_key" // what is sent as idempotency key
	fromExternalID  source = "external_id"  // the provider's id of the effect
	fromVariable    source = "env"          // a variable of the environment
	fromFile        source = "file"         // what a file holds
)

// absence is what becomes of a placeholder whose value is absent or null.
type absence int

const (
	isError absence = iota // nothing is sent
	isLeftOut
	isReplaced
)

// ref is a placeholder: ${job.order.id}, ${job.note?}, ${job.currency:-EUR}, ${job.order as text}, ${env:TOKEN}.
type ref struct {
	source   source
	path     path   // of job, answer and result
	name     string // of env and file
	as       string // the path as it is written, for error texts
	absence  absence
	fallback string
	asText   bool // in a tree: a JSON string, whatever the value is
}

// part is a piece of a text: a placeholder, or what is written there.
type part struct {
	literal string
	ref     *ref // nil: a literal
}

// text is a template. $${ is a ${ that is meant so.
type text []part

// scope is what placeholders stand for.
type scope struct {
	job, answer, result          any
	key, providerKey, externalID string

	lenient bool // what is absent is left out
}

// parseText reads a template. What is no placeholder that can be read is an error, never a literal.
func parseText(s string) (t text, err error) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t = append(t, part{literal: literal.String()})
			literal.Reset()
		}
	}
	for s != "" {
		at := strings.Index(s, "${")
		if at < 0 {
			literal.WriteString(s)
			break
		}
		if at > 0 && s[at-1] == '$' {
			literal.WriteString(s[:at-1] + "${")
			s = s[at+2:]
			continue
		}
		literal.WriteString(s[:at])
		inside, rest, closed := strings.Cut(s[at+2:], "}")
		if !closed {
			return nil, errors.New("${ without }; a ${ that is meant so is written $${")
		}
		r, err := parseRef(inside)
		if err != nil {
			return nil, fmt.Errorf("${%s}: %w", inside, err)
		}
		flush()
		t, s = append(t, part{ref: r}), rest
	}
	flush()
	return t, nil
}

func parseRef(inside string) (*ref, error) {
	if kind, name, ok := strings.Cut(inside, ":"); ok && (source(kind) == fromVariable || source(kind) == fromFile) {
		if name == "" {
			return nil, errors.New("the name is missing")
		}
		return &ref{source: source(kind), name: name}, nil
	}
	r := &ref{}
	if before, fallback, ok := strings.Cut(inside, ":-"); ok {
		r.absence, r.fallback, inside = isReplaced, fallback, before
	} else if before, ok := strings.CutSuffix(inside, "?"); ok {
		r.absence, inside = isLeftOut, before
	}
	inside, r.asText = strings.CutSuffix(inside, " as text")
	r.as = inside
	word, steps := inside, ""
	if at := strings.IndexAny(inside, ".["); at >= 0 {
		word, steps = inside[:at], inside[at:]
	}
	r.source = source(word)
	switch r.source {
	case fromKey, fromProviderKey, fromExternalID:
		if steps != "" || r.absence != isError {
			return nil, fmt.Errorf("%s is one text, and always there", word)
		}
		return r, nil
	case fromJob, fromAnswer, fromResult:
		var err error
		r.path, err = parseSteps(steps)
		return r, err
	case fromVariable, fromFile:
	}
	return nil, errors.New("unknown; there are job, answer, result, key, provider_key, external_id, env and file")
}

// find is the value of a placeholder.
func (r *ref) find(s scope) (v any, ok bool) {
	switch r.source {
	case fromKey:
		return s.key, s.key != ""
	case fromProviderKey:
		return s.providerKey, s.providerKey != ""
	case fromExternalID:
		return s.externalID, s.externalID != ""
	case fromJob:
		return r.path.find(s.job)
	case fromAnswer:
		return r.path.find(s.answer)
	case fromResult:
		return r.path.find(s.result)
	case fromVariable, fromFile:
	}
	return nil, false
}

// errAbsent says which member is absent. It quotes the file, and nothing of the job or the answer.
func (r *ref) errAbsent() error { return fmt.Errorf("%s is absent", r.as) }

// text is the value of a placeholder inside of a text. leftOut reports that the whole text is to be left out.
func (r *ref) text(s scope) (value string, leftOut bool, err error) {
	v, ok := r.find(s)
	if !ok {
		switch {
		case r.absence == isReplaced:
			return r.fallback, false, nil
		case r.absence == isLeftOut, s.lenient:
			return "", true, nil
		}
		return "", false, r.errAbsent()
	}
	value, ok = scalar(v)
	if !ok {
		return "", false, fmt.Errorf("%s is an object or a list, where a text is wanted", r.as)
	}
	return value, false, nil
}

// render fills a template in. change, if not nil, is applied to each value, and not to what is written there.
func (t text) render(s scope, change func(string) string) (out string, leftOut bool, err error) {
	var b strings.Builder
	for _, p := range t {
		if p.ref == nil {
			b.WriteString(p.literal)
			continue
		}
		value, leftOut, err := p.ref.text(s)
		if err != nil || leftOut {
			return "", leftOut, err
		}
		if change != nil {
			value = change(value)
		}
		b.WriteString(value)
	}
	return b.String(), false, nil
}

// refs are the placeholders of a template.
func (t text) refs() (out []*ref) {
	for _, p := range t {
		if p.ref != nil {
			out = append(out, p.ref)
		}
	}
	return out
}
