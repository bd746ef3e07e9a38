package consumer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// facts are one combination of what a decision rests on, as words by column.
type facts map[string]string

// word is how a fact is written in a table.
func word(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// either is both values of a fact.
var either = []bool{false, true}

// line is one line of a decision table.
type line struct {
	text  string
	facts []string
	want  string
	used  bool
}

// table is a decision table as text. The first line names the facts; each line below says, before the bar, which
// combinations it is for ("-" is any value, "a/b" either of the two) and after it what is decided then. The first
// line that fits decides.
type table struct {
	columns []string
	lines   []*line
}

func parseTable(t *testing.T, text string) *table {
	t.Helper()
	out := &table{}
	for row := range strings.Lines(strings.TrimSpace(text)) {
		left, right, ok := strings.Cut(row, "|")
		if !ok {
			t.Fatalf("table line without a bar: %q", row)
		}
		cells := strings.Fields(left)
		if out.columns == nil {
			out.columns = cells
			continue
		}
		if len(cells) != len(out.columns) {
			t.Fatalf("%d cells under %d columns: %q", len(cells), len(out.columns), row)
		}
		out.lines = append(out.lines, &line{text: strings.TrimSpace(row), facts: cells, want: strings.Join(strings.Fields(right), " ")})
	}
	return out
}

// check compares a decision with the table's.
func (tab *table) check(t *testing.T, f facts, got string) {
	t.Helper()
	for _, l := range tab.lines {
		if !tab.fits(t, l, f) {
			continue
		}
		l.used = true
		if got != l.want {
			t.Errorf("%v\n  decided: %s\n  table:   %s", f, got, l.text)
		}
		return
	}
	t.Errorf("%v fits no line of the table; decided: %s", f, got)
}

func (tab *table) fits(t *testing.T, l *line, f facts) bool {
	t.Helper()
	for i, column := range tab.columns {
		value, ok := f[column]
		if !ok {
			t.Fatalf("the table asks for %q, the facts are %v", column, f)
		}
		if l.facts[i] != "-" && !slices.Contains(strings.Split(l.facts[i], "/"), value) {
			return false
		}
	}
	return true
}

// complete fails if a line of the table decided nothing: it would only look like a rule.
func (tab *table) complete(t *testing.T) {
	t.Helper()
	for _, l := range tab.lines {
		if !l.used {
			t.Errorf("no combination reaches the line: %s", l.text)
		}
	}
}

// words names the values of an enum.
func words[E comparable](t *testing.T, names map[E]string, e E) string {
	t.Helper()
	name, ok := names[e]
	if !ok {
		t.Fatalf("no name for %v", any(e))
	}
	return name
}

var actNames = map[act]string{nothing: "nothing", saveIt: "save", giveBack: "give back", sendIt: "send"}

var waitNames = map[wait]string{waitNone: "", waitShort: "short", waitFailures: "failures", waitAttempts: "attempts",
	waitAsked: "asked", waitReading: "reading", waitPoll: "poll", waitLong: "long", waitRest: "rest", waitDue: "due"}

// inWords is a decision without its reason.
func (d decision) inWords(t *testing.T) string {
	t.Helper()
	parts := []string{words(t, actNames, d.act), string(d.status), string(d.cause)}
	if d.cost != 0 {
		parts = append(parts, fmt.Sprintf("+%d", d.cost))
	}
	var flags []string
	for name, set := range map[string]bool{"settled": d.settled == settleAlways, "settled-unkeyed": d.settled == settleUnkeyed, "absent-now": d.absentNow, "applied": d.applied, "alert": d.alert} {
		if set {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	parts = append(append(parts, words(t, waitNames, d.wait)), flags...)
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ") // leaves out what is empty
}
