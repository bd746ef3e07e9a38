package lab

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Lines are as wide as a terminal at most, colors take no room, and further lines stand under the first one.
func TestWrap(t *testing.T) {
	t.Parallel()
	var plain, painted strings.Builder
	text := strings.Repeat("один two ", 60) + strings.Repeat("x", 2*width)
	printer{w: &plain, words: english}.named("name", text)
	printer{w: &painted, color: true, words: english}.named("name", text)
	if got := escape.ReplaceAllString(painted.String(), ""); got != plain.String() {
		t.Errorf("with colors it is wrapped differently:\n%s\n%s", got, plain.String())
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(painted.String(), "\x1b[2mname\x1b[0m") {
		t.Errorf("colors: %q, %q", plain.String()[:40], painted.String()[:40])
	}
	lines := strings.Split(strings.TrimSuffix(plain.String(), "\n"), "\n")
	for i, line := range lines {
		n := utf8.RuneCountInString(line)
		if n > width && !strings.Contains(line, "xxx") {
			t.Errorf("line %d has %d characters", i, n)
		}
		if i > 0 && line[:len(indent)+column] != strings.Repeat(" ", len(indent)+column) {
			t.Errorf("line %d stands elsewhere: %q", i, line)
		}
	}
	if got := strings.Join(strings.Fields(plain.String()), " "); got != "name "+strings.Join(strings.Fields(text), " ") {
		t.Error("words are missing")
	}
}

// A check that does not hold is told with what was expected and what was seen.
func TestAFailedCheckIsTold(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := Result{Broken: []string{}}
	s := Shown{Step: "end", Checks: []Check{compare("reports", 1, 2), compare("attempts", 2, 2)}}
	r.add(s)
	printer{w: &out, words: english}.shows(s)
	if !strings.Contains(out.String(), "✗ reports – expected: 1; seen: 2\n") || !strings.Contains(out.String(), "✓ attempts: 2\n") {
		t.Error(out.String())
	}
	if len(r.Broken) != 1 || r.Broken[0] != "step end: reports: expected 1, saw 2" {
		t.Errorf("%q", r.Broken)
	}
}
