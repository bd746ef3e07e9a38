package devenv

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Program is a child process that does not outlive this one.
type Program struct{ process *process }

// StartProgram starts a command in a process group of its own, so that a Ctrl-C reaches only this process, which
// then stops its children in the right order. Where the kernel can, the child is killed when this process dies.
func StartProgram(cmd *exec.Cmd) (*Program, error) {
	p, err := startProcess(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &Program{p}, nil
}

// PID is the process id.
func (p *Program) PID() int { return p.process.cmd.Process.Pid }

// Exited is closed when the child is gone and has been waited for.
func (p *Program) Exited() <-chan struct{} { return p.process.exited }

// ExitCode is the exit code of a child that has exited; -1 if a signal ended it.
func (p *Program) ExitCode() int { return p.process.cmd.ProcessState.ExitCode() }

// Signal sends a signal; to a child that is gone it does nothing.
func (p *Program) Signal(s syscall.Signal) { p.process.signal(s) }

// Stop asks the child to end with SIGTERM, kills it after grace, and returns when it is gone. A stopped child is
// woken first.
func (p *Program) Stop(grace time.Duration) {
	p.process.signal(syscall.SIGCONT)
	p.process.stop(grace, syscall.SIGTERM)
}

// settings are variables that would aim a child at somebody's real servers.
var settings = regexp.MustCompile(`^(SETTLE_|DATABASE_URL=|NATS_|PG)`)

// OwnEnvironment is this process's environment without them, for a child that gets its settings from us. What tests tell
// their own children stays.
func OwnEnvironment() (kept []string) {
	for _, e := range os.Environ() {
		if !settings.MatchString(e) || strings.HasPrefix(e, "SETTLE_TEST_") {
			kept = append(kept, e)
		}
	}
	return kept
}
