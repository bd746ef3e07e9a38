package rig

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The one line of package time that reads the wall clock, and what is put in its place. The monotonic reading stays
// as it is: a machine with a wrong date measures durations as well as any other.
const (
	readClock        = "\tsec, nsec, mono := runtimeNow()\n"
	readShiftedClock = readClock + "\tsec += testShift\n"
)

// shiftSource is added to package time.
const shiftSource = `package time

import "syscall"

// testShift is added to the wall clock, in seconds.
var testShift = readTestShift()

func readTestShift() int64 {
	text, _ := syscall.Getenv("` + shiftVariable + `")
	if text == "" {
		return 0
	}
	shift, err := ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return int64(shift / Second)
}
`

// BuildShifted builds a package with a standard library whose wall clock can be wrong: time.Now is ahead by the
// duration in SETTLE_TEST_CLOCK_SHIFT, which WorkerOptions.ClockShift sets (negative: behind). The result is the
// path of a program for WorkerOptions.Binary: the package's own if it is a main package, else its test binary. It
// is removed when the test ends. pkg is an import path, or a directory such as ".".
//
// The first build compiles the standard library again, about a minute on two cores; later ones come from the build
// cache. It is done with "go build -overlay"; nothing outside the test's own directory is changed.
func BuildShifted(t testing.TB, pkg string) string {
	t.Helper()
	dir := t.TempDir()
	overlay := writeOverlay(t, dir)
	binary := filepath.Join(dir, "shifted")
	args := []string{"test", "-c"}
	if goTool(t, "list", "-f", "{{.Name}}", pkg) == "main" {
		args = []string{"build"}
	}
	goTool(t, append(args, "-overlay", overlay, "-ldflags=-w", "-o", binary, pkg)...) // -w links in half the time
	return binary
}

// writeOverlay writes the changed sources and the file that puts them in their places.
func writeOverlay(t testing.TB, dir string) string {
	t.Helper()
	timeDir := filepath.Join(goTool(t, "env", "GOROOT"), "src", "time")
	source, err := os.ReadFile(filepath.Join(timeDir, "time.go"))
	if err != nil {
		t.Fatalf("build with a shifted clock: %v", err)
	}
	if n := bytes.Count(source, []byte(readClock)); n != 1 {
		t.Fatalf("build with a shifted clock: this Go release reads the clock in %d places of time.go, not 1", n)
	}
	changed := bytes.Replace(source, []byte(readClock), []byte(readShiftedClock), 1)
	replace := map[string]string{
		filepath.Join(timeDir, "time.go"):       write(t, dir, "time.go", changed),
		filepath.Join(timeDir, "test_shift.go"): write(t, dir, "shift.go", []byte(shiftSource)),
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatalf("build with a shifted clock: %v", err)
	}
	return write(t, dir, "overlay.json", overlay)
}

func write(t testing.TB, dir, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatalf("build with a shifted clock: %v", err)
	}
	return path
}

// goTool runs the go command in the package directory of the test and returns its output.
func goTool(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}
