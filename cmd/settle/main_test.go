package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// runAsSettle makes a test process the program itself, race detector included.
const runAsSettle = "SETTLE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsSettle) != "" {
		main() // exits
	}
	devtest.Main(m)
}

// processLimit bounds the life of a process that a test starts.
var processLimit = 5 * time.Minute

// command prepares settle in a process of its own, with an environment that holds nothing but env.
func command(t *testing.T, env map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), processLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0] = "settle"
	cmd.Env = []string{runAsSettle + "=1"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// runSettle runs the program to its end.
func runSettle(t *testing.T, env map[string]string, input io.Reader, args ...string) (code int, out, errOut string) {
	t.Helper()
	cmd := command(t, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// service is a running settle whose log a test follows.
type service struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
	all []string
}

func start(t *testing.T, env map[string]string, args ...string) *service {
	t.Helper()
	s := &service{t: t, cmd: command(t, env, args...)}
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.log = bufio.NewScanner(pipe)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	return s
}

// await reads the log up to the line that contains text, and returns that line.
func (s *service) await(text string) string {
	s.t.Helper()
	for s.log.Scan() {
		s.all = append(s.all, s.log.Text())
		if strings.Contains(s.log.Text(), text) {
			return s.log.Text()
		}
	}
	s.t.Fatalf("the log ended without %q:\n%s", text, strings.Join(s.all, "\n"))
	return ""
}

func (s *service) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// exit reads the rest of the log and returns the exit code.
func (s *service) exit() int {
	s.t.Helper()
	for s.log.Scan() {
		s.all = append(s.all, s.log.Text())
	}
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}
