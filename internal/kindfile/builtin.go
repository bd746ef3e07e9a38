package kindfile

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/settlemq/settle/consumer"
)

// Limits are what a file says about a kind that comes with the program: the section built_in. Which kinds those are, and
// which of them have a provider, is for the program to check.
type Limits struct {
	Line    int
	Policy  consumer.Policy // zero fields are not in the file
	Profile Profile
}

// Profile is the part of a provider's profile that can be set for a built-in kind. Zero fields are not in the file.
type Profile struct {
	Line          int // 0: there is none
	Keyed         *bool
	KeyLifetime   time.Duration
	AbsentAfter   time.Duration
	ResendUnkeyed *bool
	MaxPerSecond  float64
	MaxInFlight   int
}

func (r *reader) builtIn(n *yaml.Node, f *File) {
	f.BuiltIn = map[string]Limits{}
	for _, p := range r.pairs(n, "built_in") {
		l := Limits{Line: p.name.Line}
		r.kind = p.name.Value
		r.object(p.value, "built_in", fields{
			"policy":   func(n *yaml.Node) { r.policy(n, &l.Policy) },
			"provider": func(n *yaml.Node) { r.profile(n, &l.Profile) },
		})
		if l.Policy == (consumer.Policy{}) && l.Profile == (Profile{}) {
			r.fail(p.name, "built_in: neither policy nor provider is there: nothing is changed")
		}
		r.kind = ""
		f.BuiltIn[p.name.Value] = l
	}
}

func (r *reader) profile(n *yaml.Node, p *Profile) {
	p.Line = n.Line
	flag := func(to **bool, what string) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = new(bool); r.boolInto(*to, what)(n) }
	}
	r.object(n, "provider", fields{
		"keyed":          flag(&p.Keyed, "provider.keyed"),
		"key_lifetime":   r.durationInto(&p.KeyLifetime, "provider.key_lifetime", time.Millisecond),
		"absent_after":   r.durationInto(&p.AbsentAfter, "provider.absent_after", time.Millisecond),
		"resend_unkeyed": flag(&p.ResendUnkeyed, "provider.resend_unkeyed"),
		"max_per_second": r.rateInto(&p.MaxPerSecond, "provider.max_per_second"),
		"max_in_flight":  r.countInto(&p.MaxInFlight, "provider.max_in_flight", 1),
	})
}

// checkBuiltIn refuses limits of a kind that the file itself declares: it takes the place of the built-in one.
func (r *reader) checkBuiltIn(f *File) {
	for _, k := range f.Kinds {
		if l, both := f.BuiltIn[k.Name]; both {
			r.kind = k.Name
			r.failAt(l.Line, "built_in: the file declares this kind itself, on line %d: its limits belong there", k.Line)
		}
	}
	r.kind = ""
}
