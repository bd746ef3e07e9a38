package main

import (
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
		os.Exit(run(os.Args))
	}
	devtest.Main(m)
}

// process is settle in a process of its own.
type process struct {
	*exec.Cmd
	out, err *lockedBuffer
}

// newProcess prepares settle with arguments and an environment that holds nothing but env.
func newProcess(t *testing.T, env map[string]string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, self, args...), out: &lockedBuffer{}, err: &lockedBuffer{}}
	p.Stdout, p.Stderr = p.out, p.err
	p.Args[0] = "settle"
	p.Env = []string{runAsSettle + "=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	for name, value := range env {
		p.Env = append(p.Env, name+"="+value)
	}
	return p
}

// settle runs the program to its end.
func settle(t *testing.T, env map[string]string, input io.Reader, args ...string) (code int, out, errOut string) {
	t.Helper()
	p := newProcess(t, env, args...)
	p.Stdin = input
	err := p.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode(), p.out.String(), p.err.String()
}

// lockedBuffer collects output that a test reads while it grows.
type lockedBuffer struct {
	mu   chan struct{}
	text bytes.Buffer
	grew []chan struct{}
}
