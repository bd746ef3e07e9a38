//go:build !nodemo

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/lab"
)

// The labs of the README print what it shows, in that order: whole lines, or the beginning of those that end with "…".
// Ids and seconds may differ.
func TestTheReadmeShowsTheLabs(t *testing.T) {
	t.Parallel()
	url := devtest.Database(t)
	shown := labsOfReadme(t)
	for _, name := range lab.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(shown[name]) == 0 {
				t.Fatalf("the README does not show settle lab %s", name)
			}
			code, out, errOut := runSettle(t, labEnvironment(url), nil, "lab", name)
			if code != exitDone {
				t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
			}
			rest := strings.Split(alike(out), "\n")
			for _, line := range shown[name] {
				beginning, cut := strings.CutSuffix(alike(line), "…")
				beginning = strings.TrimRight(beginning, " ")
				for len(rest) > 0 && rest[0] != beginning && (!cut || !strings.HasPrefix(rest[0], beginning)) {
					rest = rest[1:]
				}
				if len(rest) == 0 {
					t.Fatalf("the README shows a line that does not come, or not there:\n%s\nin\n%s", line, out)
				}
				rest = rest[1:]
			}
		})
	}
}

// labsOfReadme are the lines that the README shows for each lab.
func labsOfReadme(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown, name := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line, code := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		command, isCommand := strings.CutPrefix(line, "$ settle lab ")
		switch {
		case !code:
			name = ""
		case isCommand:
			name = command
		case name != "":
			shown[name] = append(shown[name], line)
		}
	}
	return shown
}

var differs = regexp.MustCompile(`rep_[A-Z2-7]{26}|report-task-\d+|\d+\.\d s|report \d+|[Jj]ob \d+`)

// alike is a text without what differs from run to run.
func alike(text string) string {
	return differs.ReplaceAllString(text, "#")
}
