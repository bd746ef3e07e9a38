package devenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// How a NATS child reports to its parent: one text on file 3, then the end of the file.
const (
	reportFD    = 3
	reportReady = "ready"
)

// NATSProcess is a nats-server with JetStream in a child process. Its methods may be called from several goroutines.
type NATSProcess struct {
	options NATSOptions
	folder  *folder // nil: the files are the caller's

	mu       sync.Mutex
	server   *process // nil: not running
	lifeline io.Closer
	stopped  bool
}

// StartNATSProcess starts a server in a child process and returns when it accepts connections, at most after 60
// seconds. ctx bounds the start only; the server lives until Stop, or until this process ends. [RunChild] must have
// been called.
func StartNATSProcess(ctx context.Context, options NATSOptions) (*NATSProcess, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	n := &NATSProcess{options: options}
	if options.Dir == "" {
		folder, err := newFolder("nats", nil)
		if err != nil {
			return nil, fmt.Errorf("start nats process: %w", err)
		}
		n.folder, n.options.Dir = folder, folder.path
	}
	if err := n.boot(ctx, options); err != nil {
		return nil, fmt.Errorf("start nats process: %w", errors.Join(err, n.Stop()))
	}
	return n, nil
}

// boot chooses the ports that the caller left open. They are chosen here, not by the child, so that they stay the
// same over Restart.
func (n *NATSProcess) boot(ctx context.Context, asked NATSOptions) error {
	return retryExited(ctx, func(ctx context.Context) (err error) {
		if asked.Port == 0 {
			if n.options.Port, err = freePort(); err != nil {
				return err
			}
		}
		if asked.MonitorPort == 0 {
			if n.options.MonitorPort, err = freePort(); err != nil {
				return err
			}
		}
		return n.launch(ctx)
	})
}

// URL is where clients connect. It stays the same over Restart.
func (n *NATSProcess) URL() string { return natsURL(n.options.Port) }

// MonitorURL is the base of the HTTP monitor: /healthz, /varz, /jsz. It stays the same over Restart.
func (n *NATSProcess) MonitorURL() string { return monitorURL(n.options.MonitorPort) }

// Kill ends the server with SIGKILL, as a crash would, and returns when it is gone. The files stay.
func (n *NATSProcess) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		n.server.kill()
	}
}

// Restart stops the server, if it is still running, and starts it again on the same files and ports. It returns
// when the server accepts connections, at most after 60 seconds.
func (n *NATSProcess) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return errors.New("restart nats process: already stopped for good")
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	n.halt()
	if err := retryExited(ctx, n.launch); err != nil {
		return fmt.Errorf("restart nats process: %w", err)
	}
	return nil
}

// Stop shuts the server down and removes its files, unless Dir was given. It returns when both are done. Repeated
// calls do nothing.
func (n *NATSProcess) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return nil
	}
	n.stopped = true
	n.halt()
	if n.folder == nil {
		return nil
	}
	if err := n.folder.remove(); err != nil {
		return fmt.Errorf("stop nats process: remove its files: %w", err)
	}
	return nil
}

// halt lets go of the lifeline, at which the server shuts down in order, and kills it if it does not.
func (n *NATSProcess) halt() {
	if n.server == nil {
		return
	}
	_ = n.lifeline.Close()
	select {
	case <-n.server.exited:
	case <-time.After(10 * time.Second):
		n.server.kill()
	}
	n.server = nil
}

func (n *NATSProcess) launch(ctx context.Context) error {
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	err = n.start(reportEnd)
	_ = reportEnd.Close() // the child has its own; ours would keep the pipe from ending
	if err != nil {
		return err
	}
	if err := n.awaitReady(ctx, report); err != nil {
		n.server.kill()
		n.halt()
		return err
	}
	return nil
}

func (n *NATSProcess) start(report *os.File) error {
	cmd, err := n.command(report)
	if err != nil {
		return err
	}
	log, err := openLog(n.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	server, err := startProcess(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	n.server, n.lifeline = server, lifeline
	return nil
}

func (n *NATSProcess) command(report *os.File) (*exec.Cmd, error) {
	if err := os.MkdirAll(n.options.Dir, 0o700); err != nil {
		return nil, err
	}
	cmd, err := selfCommand(childOrder{NATS: &n.options}, "settle-nats", n.options.Dir)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{report}
	if n.folder != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, n.folder.lock) // the folder stays locked as long as the server lives
	}
	return cmd, nil
}

// awaitReady reads the child's report, which ends at the latest when the child does.
func (n *NATSProcess) awaitReady(ctx context.Context, report *os.File) error {
	server := n.server
	stopWatching := context.AfterFunc(ctx, func() { server.signal(syscall.SIGKILL) })
	text, err := io.ReadAll(report)
	switch {
	case !stopWatching():
		return fmt.Errorf("wait for the server: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("wait for the server: %w", err)
	case string(text) != reportReady:
		return fmt.Errorf("%w: %s%s", errExited, text, logTail(n.logFile()))
	}
	return nil
}

func (n *NATSProcess) logFile() string { return filepath.Join(n.options.Dir, "nats.log") }
