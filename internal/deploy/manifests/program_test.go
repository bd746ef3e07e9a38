package manifests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/deploy"
)

// binary is the program of the image, for this machine.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "settle-manifests-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		binary, err = deploy.Build(folder, runtime.GOARCH)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// command is what the program says about one of its commands.
type command struct{ flags, variables []string }

var (
	flagOf     = regexp.MustCompile(`(?m)^\s+.*?(--[a-z][a-z-]*)`)
	variableOf = regexp.MustCompile(`\$([A-Z][A-Z0-9_]*)`)
)

// help reads settle COMMAND --help.
func help(t *testing.T, name string) (c command) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, name, "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "settle "+name+" - ") {
		t.Fatalf("the program has no command %q: %v\n%s", name, err, out)
	}
	for _, m := range flagOf.FindAllSubmatch(out, -1) {
		c.flags = append(c.flags, string(m[1]))
	}
	for _, m := range variableOf.FindAllSubmatch(out, -1) {
		c.variables = append(c.variables, string(m[1]))
	}
	return c
}

// readByOthers are variables that the program reads without a flag.
func readByOthers(variable string) bool {
	return strings.HasPrefix(variable, "OTEL_") || variable == "GOMEMLIMIT"
}

// takesArguments checks the words behind settle: a command, and flags that it has.
func takesArguments(t *testing.T, who string, words []string) (c command) {
	t.Helper()
	if len(words) == 0 {
		t.Fatalf("%s runs no command", who)
	}
	c = help(t, words[0])
	for _, word := range words[1:] {
		if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !slices.Contains(c.flags, flag) {
			t.Errorf("%s: settle %s has no flag %s", who, words[0], flag)
		}
	}
	return c
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{deploy.Root(), "deploy"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
