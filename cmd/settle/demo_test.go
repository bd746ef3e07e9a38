//go:build !nodemo

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/demo"
)

// demoEnvironment is what a demo is run with: a folder for its files, and servers that it must not touch.
func demoEnvironment(t *testing.T) (env map[string]string, folder string) {
	folder, err := os.MkdirTemp("", "d") //nolint:usetesting // short: a socket path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // the database's user passes through it
		t.Fatal(err)
	}
	return map[string]string{"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "TMPDIR": folder,
		"DATABASE_URL": "postgres://nobody:x@127.0.0.1:1/none", "NATS_URL": "nats://127.0.0.1:1"}, folder
}

func TestDemoProvesItself(t *testing.T) {
	t.Parallel()
	env, folder := demoEnvironment(t)
	code, out, errOut := runSettle(t, env, nil, "demo", "--json", "--seed", "3")
	if code != exitDone {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
	}
	var r demo.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if !r.OK || r.Kills != 2 || r.Timeouts != 2 || len(r.Kinds) != 3 || r.Stale == 0 || r.Chain != (demo.Chain{Charges: 30, Events: 30, Receipts: 30}) {
		t.Errorf("report %+v", r)
	}
	for _, k := range r.Kinds {
		effects := k.Keys
		if k.Kind == "contact.sync" {
			effects = k.Keys / 3 // three events for each contact
		}
		if k.Effects != effects || k.Keys != 30 || k.Statuses["finished"] != k.Keys || k.Published <= k.Keys ||
			k.Duplicates == 0 || k.Kind != "contact.sync" && k.Attempts <= k.Keys {
			t.Errorf("kind %+v", k)
		}
	}
	leavesNothing(t, folder)
}

// TestSabotage breaks one rule per run: the demo's proof must notice and name a key.
func TestSabotage(t *testing.T) {
	t.Parallel()
	says := map[demo.Sabotage]string{demo.AckFirst: "was lost", demo.NewKey: "2 times", demo.NoFence: "2 times", demo.RetryTimeouts: "2 times"}
	for _, rule := range demo.Sabotages() {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			env, folder := demoEnvironment(t)
			code, out, errOut := runSettle(t, env, nil, "demo", "--json", "--seed", "3", "--sabotage", string(rule))
			if code != exitNotHeld {
				t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
			}
			var r demo.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			named := func(b string) bool {
				return strings.Contains(b, says[rule]) && (strings.HasPrefix(b, "order_") || strings.HasPrefix(b, "report-task-"))
			}
			if r.OK || !slices.ContainsFunc(r.Broken, named) {
				t.Errorf("report %+v names no key that %s", r, says[rule])
			}
			leavesNothing(t, folder)
		})
	}
}

func TestDemoRefusesBadUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--jobs", "2"}, {"--sabotage", "nothing"}, {"--seed", "x"}, {"extra"}} {
		code, _, errOut := runSettle(t, nil, nil, append([]string{"demo"}, args...)...)
		if code != exitUsage || !strings.HasPrefix(errOut, "settle: ") {
			t.Errorf("demo %v: exit code %d, %s", args, code, errOut)
		}
	}
}

// A demo that keeps running shows its tasks on a support screen, to the user whom it names.
func TestDemoKeepsAScreen(t *testing.T) {
	t.Parallel()
	env, folder := demoEnvironment(t)
	s := start(t, env, "demo", "--json", "--keep")
	at := regexp.MustCompile(`(http\S+) .*user (\S+), password (\S+);`).FindStringSubmatch(s.await("  screen "))
	if at == nil {
		t.Fatal("no address, user and password")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	answer, err := browser.PostForm(at[1]+"/sign-in", url.Values{"name": {at[2]}, "password": {at[3]}, "next": {"/find?q=order_18452"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(page), "Charged once, ") {
		t.Errorf("%s (%v): %s", answer.Status, err, page)
	}
	s.signal(os.Interrupt)
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, strings.Join(s.all, "\n"))
	}
	leavesNothing(t, folder)
}

// TestDemoEndsOnSignal interrupts a demo that is under way: every process and file goes with it.
func TestDemoEndsOnSignal(t *testing.T) {
	t.Parallel()
	env, folder := demoEnvironment(t)
	s := start(t, env, "demo", "--json", "--keep")
	s.await("published")
	s.signal(os.Interrupt)
	if code := s.exit(); code != exitFailed {
		t.Errorf("exit code %d:\n%s", code, strings.Join(s.all, "\n"))
	}
	leavesNothing(t, folder)
}

// TestDemoKilled kills a demo that is under way: nobody is left to clean up, and yet no process stays.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("only Linux ends children with their parent")
		return
	}
	env, folder := demoEnvironment(t)
	s := start(t, env, "demo", "--json", "--keep")
	s.await("published")
	s.signal(syscall.SIGKILL)
	_ = s.exit()
	noProcesses(t, folder)
}

func leavesNothing(t *testing.T, folder string) {
	t.Helper()
	noProcesses(t, folder)
	if left, _ := filepath.Glob(filepath.Join(folder, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// noProcesses waits until no process has the run's folder in its environment, its arguments or as its place.
func noProcesses(t *testing.T, folder string) {
	t.Helper()
	var left []string
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-tick.C {
		if left = processesOf(folder); len(left) == 0 {
			return
		}
	}
	t.Errorf("processes left behind: %v", left)
}

func processesOf(folder string) (found []string) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, _ := strconv.Atoi(filepath.Base(e))
		environment, _ := os.ReadFile(filepath.Join(e, "environ"))
		arguments, _ := os.ReadFile(filepath.Join(e, "cmdline"))
		place, _ := os.Readlink(filepath.Join(e, "cwd"))
		if pid != os.Getpid() && len(arguments) > 0 && strings.Contains(string(environment)+string(arguments)+place, folder) {
			found = append(found, strconv.Itoa(pid)+" "+strings.ReplaceAll(string(arguments), "\x00", " "))
		}
	}
	return found
}
