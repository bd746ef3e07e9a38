package devenv

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child. One goroutine starts it and waits for it.
type process struct {
	cmd    *exec.Cmd
	alive  context.Context // ends when the child is gone and has been waited for
	exited <-chan struct{} // alive.Done()
}

// startProcess starts cmd in a process group of its own. Where the kernel can, it sends onDeath to the child when
// this process dies.
func startProcess(cmd *exec.Cmd, onDeath syscall.Signal) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	setDeathSignal(cmd.SysProcAttr, onDeath)

	alive, end := context.WithCancel(context.Background())
	p := &process{cmd: cmd, alive: alive, exited: alive.Done()}
	started := make(chan error, 1)
	go func() {
		defer end()
		// The death signal follows the thread that forked, not the process: the thread must live as long as the
		// child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state is in cmd.ProcessState
		}
	}()
	if err := <-started; err != nil {
		<-p.exited
		return nil, err
	}
	return p, nil
}

// stop sends each signal in turn and gives the child grace to obey it, then kills it. It returns when the child is
// gone; for one that is gone already, at once.
func (p *process) stop(grace time.Duration, signals ...syscall.Signal) {
	for _, s := range signals {
		p.signal(s)
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
		}
	}
	p.kill()
}

// kill ends the child with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// signal does nothing to a child that has been waited for: os.Process never signals a recycled id.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// run starts cmd like startProcess and waits for its end, which comes at once when ctx ends. Its output goes to log.
func run(ctx context.Context, cmd *exec.Cmd, log string) error {
	out, err := openLog(log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	p, err := startProcess(cmd, syscall.SIGQUIT)
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.stop(5*time.Second, syscall.SIGINT) // gives it the time to end its own children
		return context.Cause(ctx)
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("%s%s", cmd.ProcessState, logTail(log))
	}
	return nil
}

// openLog opens a file for the output of a child. A file, because a pipe would be held open by grandchildren.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// logTail is the end of a log, to be put behind an error text; empty if there is none.
func logTail(path string) string {
	const size = 1024
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd)
	}
	text, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "; its log ends:\n" + string(text)
}
