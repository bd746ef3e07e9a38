package devenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// childVar tells a process started by this package what it is. Its value is a childOrder in JSON.
const childVar = "SETTLE_DEVENV_CHILD"

// childOrder holds exactly one role.
type childOrder struct {
	NATS  *NATSOptions `json:"nats,omitempty"`
	Watch *watchOrder  `json:"watch,omitempty"`
}

// childrenAllowed is set by RunChild. Without it a child would run the whole program once more.
var childrenAllowed atomic.Bool

// RunChild turns the process into the server or watcher that this package started it as, and then does not return.
// In every other process it returns at once. Call it first thing in main and in TestMain: [StartNATSProcess] refuses
// to work in a program that did not.
func RunChild() {
	childrenAllowed.Store(true)
	value := os.Getenv(childVar)
	if value == "" {
		return
	}
	_ = os.Unsetenv(childVar) // its own children are someone else
	var order childOrder
	if err := json.Unmarshal([]byte(value), &order); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", childVar, err)
		os.Exit(2)
	}
	switch {
	case order.NATS != nil:
		os.Exit(serveNATS(*order.NATS))
	case order.Watch != nil:
		os.Exit(watch(*order.Watch, os.Stdin))
	}
	fmt.Fprintf(os.Stderr, "%s: no role\n", childVar)
	os.Exit(2)
}

// selfCommand is this program started again in a role. The name is what a process list shows.
func selfCommand(order childOrder, name ...string) (*exec.Cmd, error) {
	if !childrenAllowed.Load() {
		return nil, errors.New("devenv.RunChild was not called at the start of the program")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Args = name
	cmd.Env = append(os.Environ(), childVar+"="+string(value))
	return cmd, nil
}

// untilParentGone returns when the parent has closed its end of the pipe, which its death does too.
func untilParentGone(lifeline io.Reader) { _, _ = io.Copy(io.Discard, lifeline) }

// watchOrder says whom to signal when the parent is gone.
type watchOrder struct {
	PID    int            `json:"pid"`
	Signal syscall.Signal `json:"signal"`
}

// watcher is a child that ends another child when we die, for systems whose kernel does not.
type watcher struct {
	process  *process
	lifeline io.Closer
}

// guard starts a watcher for p where one is needed and possible. A nil watcher is one that nobody needs.
func guard(p *process, onDeath syscall.Signal) (*watcher, error) {
	if kernelGuards || !childrenAllowed.Load() {
		return nil, nil
	}
	return startWatcher(p, onDeath)
}

func startWatcher(p *process, onDeath syscall.Signal) (*watcher, error) {
	order := childOrder{Watch: &watchOrder{PID: p.cmd.Process.Pid, Signal: onDeath}}
	cmd, err := selfCommand(order, "settle-watch")
	if err != nil {
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	w := &watcher{lifeline: lifeline}
	if w.process, err = startProcess(cmd, syscall.SIGCONT); err != nil { // must outlive us, if only for a moment
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	return w, nil
}

// stop ends the watcher. It comes after the end of the watched child and is a kill, so that no signal goes to
// whoever gets the same process id next.
func (w *watcher) stop() {
	if w != nil {
		w.process.kill()
		_ = w.lifeline.Close()
	}
}

// watch is the watcher's whole life.
func watch(order watchOrder, lifeline io.Reader) int {
	untilParentGone(lifeline)
	if err := syscall.Kill(order.PID, order.Signal); err != nil {
		return 1
	}
	return 0
}
