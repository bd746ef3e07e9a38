//go:build !nodemo

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// pages are the documents for users.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{repository + "README.md", repository + "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "deploy/*.md"} {
		found, err := filepath.Glob(repository + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		names = append(names, found...)
	}
	return names
}

// needCluster are the programs that no test runs: they need a container engine or a cluster, and the files that they are
// given are tested by make deploy-test. What they name has to be there.
var needCluster = []string{"docker", "kubectl"}

// otherPrograms stand in documents beside settle and make.
var otherPrograms = []string{"go", "nats", "psql", "export", "echo", "apt-get"}

// Who copies a command out of a document finds the command, its flags and its target: each is read by the program's own
// parser, without what it would do.
func TestTheCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	targets := makefile(t)
	read := 0
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, command := range commandsOf(line) {
				read++
				if err := targets.check(command); err != nil {
					t.Errorf("%s:%d: %s: %v", strings.TrimPrefix(name, repository), n+1, command, err)
				}
			}
		}
	}
	if read < 100 {
		t.Errorf("only %d commands were found: the documents have more", read)
	}
}

func TestCommandsThatDoNotExistAreNoticed(t *testing.T) {
	t.Parallel()
	targets := makefile(t)
	for _, line := range []string{
		"    settle works", "    $ settle tasks delete 7", "use `settle recover --replicas 5`", "`settle recover --limit 0`", "    make dmeo",
		"    make demo ARGS='--sed 7'", "    make demo AGRS=x", "    $ echo '{}' | settle publish --knid x", "    settle drift now",
		"    $ curl localhost", "    kubectl apply -k deploy/nowhere", "    $ go run ./cmd/settle lab --lang klingon all",
	} {
		found := commandsOf(line)
		if len(found) == 0 || !slices.ContainsFunc(found, func(c string) bool { return targets.check(c) != nil }) {
			t.Errorf("%q passes as %q", line, found)
		}
	}
}

var (
	quoted  = regexp.MustCompile("`((?:settle|make) [a-z][^`]*)`")
	ours    = regexp.MustCompile(`^(?:settle|make|go|nats|psql|export|docker|kubectl) `)
	tokens  = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"|;&])+|[|;]|&&`)
	comment = regexp.MustCompile(`\s+#\s.*$`)
)

// commandsOf are the commands of a line: of a prompt or an indented block, or quoted within the text.
func commandsOf(line string) (out []string) {
	if after, ok := strings.CutPrefix(strings.TrimPrefix(line, "    "), "$ "); ok {
		return pipeline(after)
	}
	if after, ok := strings.CutPrefix(line, "    "); ok {
		if !ours.MatchString(after) {
			return nil
		}
		return pipeline(after)
	}
	for _, m := range quoted.FindAllStringSubmatch(line, -1) {
		out = append(out, pipeline(m[1])...)
	}
	return out
}

// pipeline takes the commands of a line of the shell apart.
func pipeline(line string) (out []string) {
	var words []string
	end := func() {
		if len(words) > 0 {
			out = append(out, strings.Join(words, " "))
		}
		words = nil
	}
	for _, word := range tokens.FindAllString(comment.ReplaceAllString(line, ""), -1) {
		switch word {
		case "|", ";", "&&":
			end()
		case "…", `\`:
		default:
			words = append(words, word)
		}
	}
	end()
	return out
}

// targets are those of the Makefile, and its text.
type targets struct {
	names []string
	text  string
}

func makefile(t *testing.T) (m targets) {
	t.Helper()
	text, err := os.ReadFile(repository + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m.text = string(text)
	for _, found := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(m.text, -1) {
		m.names = append(m.names, found[1])
	}
	return m
}

func (m targets) check(command string) error {
	words := wordsOf(command)
	program, args := words[0], words[1:]
	switch {
	case program == "settle":
		return understand(args)
	case program == "make":
		return m.make(args)
	case program == "go" && len(args) > 1 && args[0] == "run" && args[1] == "./cmd/settle":
		return understand(args[2:])
	case slices.Contains(needCluster, program):
		return namedFiles(args)
	case !slices.Contains(otherPrograms, program):
		return fmt.Errorf("%s is neither tested nor marked as something that needs a cluster", program)
	}
	return nil
}

// wordsOf does what a shell does with quotes, and leaves away where input comes from.
func wordsOf(command string) (out []string) {
	for _, word := range tokens.FindAllString(command, -1) {
		if word == "<" || word == ">" {
			break
		}
		out = append(out, strings.NewReplacer("'", "", `"`, "").Replace(word))
	}
	return out
}

// make checks targets and variables. The ARGS of a target are those of the command of its name.
func (m targets) make(args []string) error {
	var goals []string
	for _, a := range args {
		name, value, isVariable := strings.Cut(a, "=")
		switch {
		case !isVariable && !slices.Contains(m.names, a):
			return fmt.Errorf("the Makefile has no target %s", a)
		case !isVariable:
			goals = append(goals, a)
		case !strings.Contains(m.text, name):
			return fmt.Errorf("the Makefile has no variable %s", name)
		case name == "ARGS" && len(goals) == 1 && root().Command(goals[0]) != nil:
			if err := understand(append(goals, strings.Fields(value)...)); err != nil {
				return err
			}
		}
	}
	return nil
}

func namedFiles(args []string) error {
	for _, a := range args {
		if strings.HasPrefix(a, "deploy/") {
			if _, err := os.Stat(repository + a); err != nil {
				return err
			}
		}
	}
	return nil
}

// understand reads the arguments as the program does, flags with their values and their limits, and does nothing then.
func understand(args []string) error {
	cmd := root()
	cmd.Writer, cmd.ErrWriter = io.Discard, io.Discard
	idle(cmd)
	return cmd.Run(context.Background(), append([]string{"settle"}, args...))
}

// idle takes away what commands do.
func idle(cmd *cli.Command) {
	cmd.Before, cmd.After, cmd.Writer, cmd.ErrWriter = nil, nil, io.Discard, io.Discard
	cmd.Action = func(_ context.Context, cmd *cli.Command) error {
		if cmd.Args().Present() && cmd.ArgsUsage == "" {
			return fmt.Errorf("%s takes no argument %q", cmd.Name, cmd.Args().First())
		}
		return nil
	}
	for _, sub := range cmd.Commands {
		idle(sub)
	}
}
