//go:build !nodemo

package devenv

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestKilledParentLeavesNoServer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killParent(t, exec.Command(self))
}

// As root the servers must work for a program of an ordinary user too; any other user is one already.
func TestOrdinaryUser(t *testing.T) {
	binary := copySelf(t)
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir = filepath.Dir(binary)
		if account, err := serverAccount(); err != nil {
			t.Fatal(err)
		} else if account != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
		}
		return cmd
	}
	t.Run("tests", func(t *testing.T) {
		out, err := command("-test.v", "-test.run", "^(TestPostgresServes|TestNATSProcessKeeps)").CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if n := bytes.Count(out, []byte("--- PASS")); n != 2 {
			t.Errorf("%d tests passed, want 2:\n%s", n, out)
		}
	})
	t.Run("killed", func(t *testing.T) { killParent(t, command()) })
}

// killParent starts a program that owns servers, kills it with SIGKILL and waits for its servers to end. What it
// left on the disk goes with the next start.
func killParent(t *testing.T, cmd *exec.Cmd) {
	cmd.Env = append(os.Environ(), parentVar+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	lines := bufio.NewScanner(stdout)
	var left []string
	for lines.Scan() {
		if left = append(left, lines.Text()); len(left) == 2 {
			break
		}
	}
	if len(left) != 2 || !filepath.IsAbs(left[0]) || !filepath.IsAbs(left[1]) {
		rest, _ := io.ReadAll(stdout)
		t.Fatalf("the parent said %q %s", left, rest)
	}
	for _, dir := range left {
		if len(processesWith(t, dir)) == 0 {
			t.Errorf("no server on %s before the kill", dir)
		}
	}
	p.kill()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, dir := range left {
		if err := poll(ctx, func() bool { return len(processesWith(t, dir)) == 0 }); err != nil {
			t.Errorf("still running on %s: %v", dir, processesWith(t, dir))
		}
		swept := func() bool { // by us, or by a program that starts a server just now
			sweepOne(dir)
			_, err := os.Lstat(dir)
			return err != nil
		}
		if err := poll(ctx, swept); err != nil {
			t.Errorf("%s is still there", dir)
		}
	}
}

// processesWith are the processes that have text in their arguments or work in that folder, as all backends of a
// PostgreSQL do.
func processesWith(t *testing.T, text string) []string {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, proc := range procs {
		args, _ := os.ReadFile(proc + "/cmdline") // it may be gone by now
		dir, _ := os.Readlink(proc + "/cwd")
		if bytes.Contains(args, []byte(text)) || strings.HasPrefix(dir, text) {
			found = append(found, filepath.Base(proc)+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// copySelf puts the test binary where every user can run it.
func copySelf(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(openDir(t), "devenv.test")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
