package devenv

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestChildrenHaveAGroupOfTheirOwn(t *testing.T) {
	p := startSleep(t)
	group, err := syscall.Getpgid(p.cmd.Process.Pid)
	if err != nil || group != p.cmd.Process.Pid {
		t.Errorf("group %d (%v), want its own: Ctrl-C must not reach it", group, err)
	}
}

func TestStopKillsAChildThatDoesNotObey(t *testing.T) {
	cmd := exec.Command("sh", "-c", `trap "" INT QUIT; echo deaf; while :; do sleep 1000; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("deaf\n"))); err != nil {
		t.Fatal(err)
	}
	p.stop(10*time.Millisecond, syscall.SIGINT, syscall.SIGQUIT)
	if endedBy(p) != syscall.SIGKILL {
		t.Errorf("it ended by %s", p.cmd.ProcessState)
	}
	p.stop(time.Hour, syscall.SIGINT) // gone already: at once
}

func TestStartProcessReportsAMissingProgram(t *testing.T) {
	if _, err := startProcess(exec.Command("/does/not/exist"), syscall.SIGKILL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// The watcher is what other systems than Linux use; it works on all.
func TestWatcherEndsTheChildWhenTheParentIsGone(t *testing.T) {
	p := startSleep(t)
	w, err := startWatcher(p, syscall.SIGQUIT)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.lifeline.Close(); err != nil { // as the death of the parent does
		t.Fatal(err)
	}
	<-p.exited
	<-w.process.exited
	if endedBy(p) != syscall.SIGQUIT {
		t.Errorf("it ended by %s", p.cmd.ProcessState)
	}
}

func TestWatcherStopsWithoutASignal(t *testing.T) {
	p := startSleep(t)
	w, err := startWatcher(p, syscall.SIGQUIT)
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	p.signal(syscall.SIGTERM)
	<-p.exited
	if endedBy(p) != syscall.SIGTERM {
		t.Errorf("it ended by %s", p.cmd.ProcessState)
	}
}

func TestLogTailIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if logTail(path) != "" {
		t.Error("a missing log has a tail")
	}
	text := strings.Repeat("early ", 1000) + "the end"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if tail := logTail(path); !strings.HasSuffix(tail, "the end") || len(tail) > 1100 {
		t.Errorf("got %d bytes", len(tail))
	}
}

// endedBy is the signal that ended the child; 0 if it exited by itself.
func endedBy(p *process) syscall.Signal {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

func startSleep(t *testing.T) *process {
	t.Helper()
	p, err := startProcess(exec.Command("sleep", "1000"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// poll waits until done says yes, or ctx ends.
func poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
