package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/kindfile"
)

// limits are those that a file sets for built-in kinds, by name. A flag or its variable goes before them.
type limits map[string]kindfile.Limits

func (l limits) policy(kind string, o handlerOptions) consumer.Policy {
	p := l[kind].Policy
	if o.policy != nil {
		p = o.policy(p)
	}
	return p
}

func (l limits) profile(kind string, o handlerOptions) consumer.Provider {
	p, said := o.profile, l[kind].Profile
	free := func(flag string) bool { return o.given == nil || !o.given(flag) }
	if said.Keyed != nil && free("provider-keyed") {
		p.Unkeyed = !*said.Keyed
	}
	if said.ResendUnkeyed != nil && free("unkeyed-resend") {
		p.ResendUnkeyed = *said.ResendUnkeyed
	}
	if free("provider-key-lifetime") {
		p.KeyLifetime = cmp.Or(said.KeyLifetime, p.KeyLifetime)
	}
	if free("absent-after") {
		p.AbsentAfter = cmp.Or(said.AbsentAfter, p.AbsentAfter)
	}
	if free("provider-max-per-second") {
		p.MaxPerSecond = cmp.Or(said.MaxPerSecond, p.MaxPerSecond)
	}
	if free("provider-max-in-flight") {
		p.MaxInFlight = cmp.Or(said.MaxInFlight, p.MaxInFlight)
	}
	return p
}

// builtInNames are the kinds of builtInKinds, in its order.
var builtInNames = []string{"payment.charge", "report.create", "contact.sync", "receipt.send", "contacts.import"}

// builtInProblems finds limits of kinds that this build does not have, and limits that they cannot have.
func builtInProblems(f *kindfile.File, o handlerOptions) (problems []kindfile.Problem) {
	if len(f.BuiltIn) == 0 {
		return nil
	}
	o.url = "" // it is judged elsewhere
	defs, err := builtInKinds(o, f.BuiltIn)
	if err != nil {
		return []kindfile.Problem{{Text: err.Error()}}
	}
	for i, name := range builtInNames {
		l, there := f.BuiltIn[name]
		if !there {
			continue
		}
		d, err := consumer.Describe(consumer.Config{Policy: o.base}, defs[i])
		switch {
		case err != nil:
			for line := range strings.SplitSeq(err.Error(), "\n") {
				problems = append(problems, kindfile.Problem{Line: l.Line, Kind: name, Text: "built_in: " + line})
			}
		case d.Local && l.Profile.Line > 0:
			problems = append(problems, kindfile.Problem{Line: l.Profile.Line, Kind: name, Text: "built_in: it calls no provider, so it has no profile"})
		}
	}
	for name, l := range f.BuiltIn {
		if !slices.Contains(builtInNames, name) {
			problems = append(problems, kindfile.Problem{Line: l.Line, Kind: name,
				Text: "built_in: this build has no such kind; it has " + strings.Join(builtInNames, ", ")})
		}
	}
	slices.SortFunc(problems, func(a, b kindfile.Problem) int { return cmp.Compare(a.Line, b.Line) })
	return problems
}
