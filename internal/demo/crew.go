package demo

import (
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
)

// crew is the worker processes. One that dies is replaced, as an orchestrator would.
type crew struct {
	start func() (*devenv.Program, error)

	mu      sync.Mutex
	victims map[string]bool // provider keys in whose first call the worker is to be killed
	workers map[int]*devenv.Program
	kills   int
	closed  bool
	err     error
	minders sync.WaitGroup
}

// newCrew is a crew without workers; see hire.
func newCrew(victims map[string]bool, start func() (*devenv.Program, error)) *crew {
	return &crew{start: start, victims: victims, workers: map[int]*devenv.Program{}}
}

// hire starts n workers. stop ends them, also after an error.
func (c *crew) hire(n int) error {
	c.mu.Lock()
	c.closed = false
	c.mu.Unlock()
	for range n {
		if err := c.add(); err != nil {
			return err
		}
	}
	return nil
}

func (c *crew) add() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	w, err := c.start()
	if err != nil {
		return err
	}
	c.workers[w.PID()] = w
	c.minders.Go(func() { c.mind(w) })
	return nil
}

// mind waits for the end of a worker and replaces it.
func (c *crew) mind(w *devenv.Program) {
	<-w.Exited()
	c.mu.Lock()
	delete(c.workers, w.PID())
	if code := w.ExitCode(); code > 0 && !c.closed {
		c.err = fmt.Errorf("a worker exited with code %d", code)
	}
	broken := c.err != nil
	c.mu.Unlock()
	if broken {
		return
	}
	if err := c.add(); err != nil {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
	}
}

// userAgent finds the process in the header that the workers' HTTP client sends.
var userAgent = regexp.MustCompile(`\(pid (\d+)\)`)

// killInMidCall kills the worker whose call this is, if its key is a victim: the provider has committed, the
// answer is not sent. It returns when the process is gone, so that the answer cannot reach it.
func (c *crew) killInMidCall(call provider.Call) {
	c.mu.Lock()
	match := userAgent.FindStringSubmatch(call.UserAgent)
	if match == nil || !c.victims[call.Key] {
		c.mu.Unlock()
		return
	}
	pid, _ := strconv.Atoi(match[1])
	w := c.workers[pid]
	delete(c.victims, call.Key)
	if w != nil {
		c.kills++
	}
	c.mu.Unlock()
	if w != nil {
		w.Signal(syscall.SIGKILL)
		<-w.Exited()
	}
}

// wake continues workers that froze.
func (c *crew) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		w.Signal(syscall.SIGCONT)
	}
}

// state is how many were killed so far, and why the crew cannot go on.
func (c *crew) state() (kills int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills, c.err
}

// stop drains all workers and waits for them.
func (c *crew) stop() {
	c.mu.Lock()
	c.closed = true
	var stopping sync.WaitGroup
	for _, w := range c.workers {
		stopping.Go(func() { w.Stop(drainTime + 10*time.Second) })
	}
	c.mu.Unlock()
	stopping.Wait()
	c.minders.Wait()
}

const drainTime = 5 * time.Second

// workerCommand is one worker process of this program.
func workerCommand(program string, log io.Writer, environment ...string) *exec.Cmd {
	cmd := exec.Command(program, "demo-worker") //nolint:gosec,noctx // our own binary; the crew ends it
	cmd.Env = append(devenv.OwnEnvironment(), append([]string{
		"SETTLE_ACK_WAIT=" + workerAckWait.String(), "SETTLE_LEASE=" + workerLease.String(),
		"SETTLE_DEADLINE=4s", "SETTLE_PROVIDER_TIMEOUT=" + callTimeout.String(),
		"SETTLE_BACKOFF_MIN=200ms", "SETTLE_BACKOFF_MAX=2s", "SETTLE_DRAIN_TIMEOUT=" + drainTime.String(),
		"SETTLE_SLOTS=8", "SETTLE_HTTP_ADDR=off",
	}, environment...)...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd
}
