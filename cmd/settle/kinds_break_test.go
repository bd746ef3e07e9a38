//go:build !nodemo

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/kindbreak"
)

// sandbox is a stand-in provider, and jobs that are new to it.
func sandbox(t *testing.T) (url string, jobs func(n int) string) {
	t.Helper()
	env := servers(t)
	env["SETTLE_PROVIDER_ADDR"] = "127.0.0.1:0"
	url = urlIn(t, start(t, env, "provider").await("listens"))
	next := 0
	return url, func(n int) string {
		var lines strings.Builder
		for range n {
			next++
			fmt.Fprintf(&lines, "{\"task_id\": %d, \"report_type\": \"monthly\"}\n", next)
		}
		path := filepath.Join(t.TempDir(), "jobs")
		if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

const reportFile = repository + "deploy/kinds/report.yaml"

// A kind of a file holds against a provider that keeps its promise, whatever goes wrong in between; against one that
// ignores keys it cannot, and the run says so.
func TestBreakAKindAgainstASandbox(t *testing.T) {
	t.Parallel()
	url, jobs := sandbox(t)
	env := map[string]string{"SETTLE_PROVIDER_URL": "http://127.0.0.1:1"} // the file wants it; --url counts
	code, out, errOut := runSettle(t, env, nil, "kinds", "break", "--url", url, "--jobs", jobs(7), "--json", reportFile)
	if code != exitDone {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	var stories, killed int
	for line := range strings.Lines(out) {
		var told kindbreak.Told
		if err := json.Unmarshal([]byte(line), &told); err != nil || !told.Holds || len(told.Effects) != 1 || told.Status != "finished" {
			t.Errorf("%v: %s", err, line)
		}
		if stories++; strings.Contains(told.Story, "killed before") && told.Sends == 2 {
			killed++
		}
	}
	if stories != 7 || killed != 1 {
		t.Errorf("%d stories, in %d of them the request of a killed worker was seen:\n%s", stories, killed, out)
	}

	put(t, url+"/faults", `[{"ignore-keys": true, "hide": "1h"}]`)
	code, out, errOut = runSettle(t, env, nil, "kinds", "break", "--url", url, "--jobs", jobs(7), reportFile)
	if code != exitNotHeld || !strings.Contains(out, "BROKEN  the worker is killed after the effect: the provider made 2 effects") ||
		!strings.Contains(out, "holds   nothing goes wrong: one effect, sent once") || !strings.Contains(errOut, "stories do not hold") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
}

// A provider that answers garbage leaves nobody the wiser, and the story says what it answered.
func TestBreakAgainstGarbage(t *testing.T) {
	t.Parallel()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(garbage.Close)
	_, jobs := sandbox(t)
	env := map[string]string{"SETTLE_PROVIDER_URL": "http://127.0.0.1:1"}
	code, out, errOut := runSettle(t, env, nil, "kinds", "break", "--url", garbage.URL, "--jobs", jobs(7), "--limit", "5s", "--json", reportFile)
	var told kindbreak.Told
	first, _, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(first), &told); err != nil || code != exitNotHeld || told.Holds || told.Effects == nil || len(told.Effects) != 0 ||
		!strings.Contains(told.Says, "not finished in time") || !strings.Contains(told.Says, "answer is not the JSON that was expected") {
		t.Errorf("exit %d, %v: %s%s", code, err, out, errOut)
	}
}

func TestBreakRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	few := filepath.Join(t.TempDir(), "few")
	if err := os.WriteFile(few, []byte("{\"task_id\": 1, \"report_type\": \"a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	same := filepath.Join(t.TempDir(), "same")
	if err := os.WriteFile(same, []byte(strings.Repeat("{\"task_id\": 1, \"report_type\": \"a\"}\n", 7)), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SETTLE_PROVIDER_URL": "http://127.0.0.1:1"}
	for want, args := range map[string][]string{
		"each of 7 stories needs one": {"--url", "http://127.0.0.1:1", "--jobs", few, reportFile},
		"have the same key":           {"--url", "http://127.0.0.1:1", "--jobs", same, reportFile},
		"http or https":               {"--url", "sandbox", "--jobs", few, reportFile},
		"no such file":                {"--url", "http://127.0.0.1:1", "--jobs", few + "er", reportFile},
		"the file has report.create":  {"--url", "http://127.0.0.1:1", "--jobs", few, "--kind", "x", reportFile},
		"url":                         {"--jobs", few, reportFile},
	} {
		if code, out, errOut := runSettle(t, env, nil, append([]string{"kinds", "break"}, args...)...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit %d, no %q in %s%s", args, code, want, out, errOut)
		}
	}
}
