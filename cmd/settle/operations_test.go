package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

const operations = "deploy/OPERATIONS.md"

// Who is called finds a section of the alert's name, with commands in it, and the link of the alert leads there.
func TestEachAlertHasItsSectionInTheOperationsGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(repository + operations)
	if err != nil {
		t.Fatal(err)
	}
	alerts, links := rules(t, "alert"), rules(t, "runbook_url")
	if len(alerts) == 0 || len(links) != len(alerts) {
		t.Fatalf("%d links for %d alerts", len(links), len(alerts))
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(text), "\n### ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		sections[name] = body
	}
	for i, alert := range alerts {
		if body := sections[alert]; !strings.Contains(body, "\n    settle ") {
			t.Errorf("%s has no section %s with a command in it", operations, alert)
		}
		if want := "https://github.com/settlemq/settle/blob/main/" + operations + "#" + strings.ToLower(alert); links[i] != want {
			t.Errorf("%s leads to %s, want %s", alert, links[i], want)
		}
	}
	for name := range sections {
		if strings.HasPrefix(name, "Settle") && !slices.Contains(alerts, name) {
			t.Errorf("the section %s is about no alert", name)
		}
	}
}

// Metrics, variables and roles that the guides name are there.
func TestTheNamesOfTheGuidesExist(t *testing.T) {
	t.Parallel()
	roles, err := os.ReadFile(repository + "deploy/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	series, variables := known(t), map[string]bool{}
	collectVariables(root(), variables)
	for _, page := range []string{operations, "docs/threat-model.md"} {
		text, err := os.ReadFile(repository + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bsettle_[a-z_]+\b`).FindAllString(string(text), -1) {
			if _, ok := series[name]; !ok && !isHistogram(series, name) && !strings.Contains(string(roles), name+" ") {
				t.Errorf("%s: %s is neither a metric nor a role", page, name)
			}
		}
		for _, name := range regexp.MustCompile(`\bSETTLE_[A-Z_]+\b`).FindAllString(string(text), -1) {
			if !variables[name] {
				t.Errorf("%s: no command knows %s", page, name)
			}
		}
	}
}

func isHistogram[V any](series map[string]V, name string) bool {
	_, ok := series[name+"_count"]
	return ok
}

func collectVariables(cmd *cli.Command, into map[string]bool) {
	for _, f := range cmd.Flags {
		if described, ok := f.(cli.DocGenerationFlag); ok {
			for _, v := range described.GetEnvVars() {
				into[v] = true
			}
		}
	}
	for _, sub := range cmd.Commands {
		collectVariables(sub, into)
	}
}

// What workers call people for is in the guide, cause by cause.
func TestEachCauseOfAnAlertIsInTheOperationsGuide(t *testing.T) {
	t.Parallel()
	texts, err := os.ReadFile(repository + "consumer/alerttexts.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile(repository + operations)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(guide), "\n## What Settle itself calls you for\n")
	section, _, _ = strings.Cut(section, "\n## ")
	causes := func(pattern, text string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return names
	}
	raised, told := causes(`Cause: (?:\w+(?:\.\w+)?\()?"(\w+)`, string(texts)), causes("(?m)^\\| `(\\w+)` \\|", section)
	if len(raised) < 11 || !slices.Equal(raised, told) {
		t.Errorf("raised are %q, the guide has %q", raised, told)
	}
}
