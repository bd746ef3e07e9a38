package kindfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something wrong with a file, or dangerous in it.
type Problem struct {
	Line    int    `json:"line"` // from 1; 0: of the whole file
	Kind    string `json:"kind,omitempty"`
	Warning bool   `json:"warning"` // it works, and may do harm
	Text    string `json:"text"`
}

// String is the problem in one line, without the name of the file.
func (p Problem) String() string {
	text := p.Text
	if p.Kind != "" {
		text = p.Kind + ": " + text
	}
	if p.Warning {
		text = "warning: " + text
	}
	if p.Line > 0 {
		text = fmt.Sprintf("%d: %s", p.Line, text)
	}
	return text
}

// InvalidError is a file that cannot be used, with all that is wrong with it.
type InvalidError struct {
	Path     string
	Problems []Problem // without warnings, by line; at least one
}

// Error lists the problems, one a line. No secret and no value of a variable is among them.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.Path + ":" + p.String()
	}
	return strings.Join(lines, "\n")
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

// errorsAmong are the problems without the warnings.
func errorsAmong(problems []Problem) []Problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Warning })
}

// nearest is the known word that a misspelt one is likely to mean; empty if there is none.
func nearest(word string, known []string) (best string) {
	limit := max(len(word)/3, 1) + 1
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < limit {
			limit, best = d, k
		}
	}
	return best
}

// distance counts the letters that have to be added, dropped or changed to make one word of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
