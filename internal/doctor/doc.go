// Package doctor finds what is dangerous in an installation: settings that do not fit each other, a broker or a database
// that may forget, a schema that lacks something, messages and tasks that do not belong together.
//
// [Collect] gathers [Facts] with small readers, and only reads. [Examine] is pure: a table of checks over the facts.
package doctor

// Severity says what a finding means.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the promise does not hold, or nothing works: a worker does not start
	Warning Severity = "warning" // it holds less than it should, or will not hold for long
	Note    Severity = "note"    // good to know
)

// Finding is one thing that is not as it should be.
type Finding struct {
	ID       string
	Severity Severity
	Kind     string // the kind of job that it is about; empty: all
	What     string // what is the matter
	Why      string // why it hurts
	Found    Value  // the two that were compared
	Wanted   Value
	Fix      string // a command, or a setting with its value
}

// Value is a setting or a measurement.
type Value struct{ Name, Value string }

// Assumption is something that the promise rests on and that no check can prove from here.
type Assumption struct {
	ID     string
	What   string // what has to be true
	Ensure string // what the operator sees to
}

// Report is what an examination came to.
type Report struct {
	Findings    []Finding // by severity, then in the order of the checks
	Assumptions []Assumption
	Made        int // checks
	Left        int // checks that were not made, because what they look at did not answer
}

// Count is how many findings have a severity.
func (r Report) Count(s Severity) (n int) {
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}
