package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// span is a span as Jaeger's search returns it.
type span struct {
	TraceID, SpanID, OperationName, ProcessID string
	StartTime                                 int64 // microseconds
	References                                []struct{ RefType, TraceID, SpanID string }
	Tags                                      []struct {
		Key   string
		Value any
	}

	Service string
}

// spans are in the order of their start.
type spans []span

// followsUp reports whether a span is of what comes after a charge, its event and its receipt. The stories are about the
// charge.
func (s span) followsUp() bool {
	to := s.tag("messaging.destination.name")
	return to == "events.payment.charged" || to == "jobs.receipt.send" || s.tag("settle.kind") == "receipt.send"
}

// tag is the value of an attribute as text; empty if the span has none.
func (s span) tag(name string) string {
	for _, t := range s.Tags {
		if t.Key == name {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

// parent is the id of the span that this one is a child of.
func (s span) parent() string {
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" && r.TraceID == s.TraceID {
			return r.SpanID
		}
	}
	return ""
}

// where are the spans that have all the tags.
func (all spans) where(by tags) (out spans) {
	for _, s := range all {
		matches := true
		for name, value := range by {
			matches = matches && s.tag(name) == value
		}
		if matches {
			out = append(out, s)
		}
	}
	return out
}

// named are the spans of an operation.
func (all spans) named(operation string) (out spans) {
	for _, s := range all {
		if s.OperationName == operation {
			out = append(out, s)
		}
	}
	return out
}

// of are the spans of a service.
func (all spans) of(service string) (out spans) {
	for _, s := range all {
		if s.Service == service {
			out = append(out, s)
		}
	}
	return out
}

// under are a span and all below it.
func (all spans) under(root span) spans {
	out := spans{root}
	for _, s := range all {
		if s.TraceID == root.TraceID && s.parent() == root.SpanID {
			out = append(out, all.under(s)...)
		}
	}
	return out
}

// tree draws what is a child of what, one line for each span whose parent is not there.
func (all spans) tree() string {
	var roots []string
	for _, s := range all {
		known := slices.ContainsFunc(all, func(other span) bool { return other.TraceID == s.TraceID && other.SpanID == s.parent() })
		if !known {
			roots = append(roots, all.below(s))
		}
	}
	slices.Sort(roots)
	return strings.Join(roots, "\n")
}

func (all spans) below(root span) string {
	name := strings.TrimPrefix(root.OperationName, "settle.")
	var children []string
	for _, s := range all {
		if s.TraceID == root.TraceID && s.parent() == root.SpanID {
			children = append(children, all.below(s))
		}
	}
	if len(children) == 0 {
		return name
	}
	return name + "(" + strings.Join(children, " ") + ")"
}
