//go:build !nodemo

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/soak"
)

// A short soak keeps the promise, and tells what was done to it.
func TestSoak(t *testing.T) {
	r, code, _ := soakFor(t, "--jobs", "600", "--seed", "5", "--every", "100ms", "--faults", "kill,provider,connections")
	if code != exitDone || !r.OK || len(r.Broken) != 0 {
		t.Fatalf("exit %d: %+v", code, r)
	}
	if r.Jobs != 600 || r.Messages <= 600 || r.Attempts < 600 || r.Requests < 600 || r.Faults["kill"] != r.Kills {
		t.Errorf("the report does not add up: %+v", r)
	}
}

// A provider that breaks its promise is noticed.
func TestSoakNoticesASecondEffect(t *testing.T) {
	r, code, said := soakFor(t, "--jobs", "600", "--seed", "5", "--every", "300ms", "--faults", soak.Amnesia)
	if code != exitNotHeld || r.OK || !strings.Contains(strings.Join(r.Broken, "\n"), "charged more than once") {
		t.Fatalf("exit %d: %+v", code, r)
	}
	if !strings.Contains(said, "the provider ignores keys") || !strings.Contains(said, "seed 5") {
		t.Errorf("the log is missing: %s", said)
	}
}

func soakFor(t *testing.T, args ...string) (r soak.Report, code int, said string) {
	t.Helper()
	code, out, said := runSettle(t, nil, nil, append([]string{"soak", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, said)
	}
	return r, code, said
}

func TestSoakRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{{"--jobs", "0"}, {"--faults", "rain"}, {"--every", "0s"}} {
		if code, out, said := runSettle(t, nil, nil, append([]string{"soak"}, args...)...); code != exitUsage || out != "" || said == "" {
			t.Errorf("%v: exit %d, %s%s", args, code, out, said)
		}
	}
}
