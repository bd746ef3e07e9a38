package doctor

import (
	"cmp"
	"slices"
)

// needs is what a check looks at.
type needs int

const (
	needsNothing needs = iota // but the configuration
	needsDatabase
	needsBroker
	needsStream
	needsBoth
	needsDrift
)

// check is one line of the table.
type check struct {
	id       string
	severity Severity
	needs    needs
	engine   bool   // a worker that starts leaves it out: its engine says so itself or waits until it is over, or it is no matter of workers
	about    string // what is compared, for the list of checks
	why      string
	find     func(*Facts) []Finding // only what, the two values, the kind and the fix
}

func checks() []check {
	return slices.Concat(reachChecks(), timerChecks(), keyChecks(), databaseChecks(), schemaChecks(), brokerChecks(), consumerChecks(), driftChecks())
}

// Check describes a check.
type Check struct {
	ID       string
	Severity Severity
	About    string
}

// Checks lists all checks in their order.
func Checks() (out []Check) {
	for _, c := range checks() {
		out = append(out, Check{c.id, c.severity, c.about})
	}
	return out
}

// Examine makes all checks. It is pure.
func Examine(f Facts) Report { return examine(&f, func(check) bool { return true }) }

// ExamineStart makes the checks that a worker makes when it starts: all but those that its engine makes anyway, that
// are about commands of people, or that go through messages and tasks.
func ExamineStart(f Facts) Report {
	return examine(&f, func(c check) bool { return !c.engine && c.needs != needsDrift })
}

func examine(f *Facts, chosen func(check) bool) (r Report) {
	for _, c := range checks() {
		switch {
		case !chosen(c):
			continue
		case !f.know(c.needs):
			r.Left++
			continue
		}
		r.Made++
		for _, found := range c.find(f) {
			found.ID, found.Why = c.id, cmp.Or(found.Why, c.why)
			found.Severity = cmp.Or(found.Severity, c.severity)
			r.Findings = append(r.Findings, found)
		}
	}
	rank := map[Severity]int{Error: 0, Warning: 1, Note: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	r.Assumptions = assumptions(f)
	return r
}

// know reports whether the facts of a check are there.
func (f *Facts) know(n needs) bool {
	stream := f.Broker != nil && f.Broker.Jobs != nil
	switch n {
	case needsNothing:
		return true
	case needsDatabase:
		return f.Database != nil
	case needsBroker:
		return f.Broker != nil
	case needsStream:
		return stream
	case needsBoth:
		return f.Database != nil && f.Broker != nil
	case needsDrift:
		return f.Compared
	}
	return false
}
