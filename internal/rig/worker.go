package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// WorkerOptions say what a worker process runs.
type WorkerOptions struct {
	Name   string   // as registered; ignored by a program that does not call RunChild
	Binary string   // program to run; default: this test binary
	Args   []string // its arguments
	Env    []string // "NAME=value", added to this process's environment
	Points []Point  // where the process acts on itself, by ChildPoints
	// ClockShift makes the worker's wall clock wrong, by whole seconds. It needs a Binary made by BuildShifted.
	ClockShift time.Duration
}

// Worker is a process of its own. It ends with the test at the latest, by SIGKILL to its process group.
type Worker struct {
	t       testing.TB
	cmd     *exec.Cmd
	output  *output
	points  *Points // what the worker reported; its actions happen over there
	release *os.File
	exited  chan struct{} // closed when the process is gone and its output is complete
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // exit code, or -1
	Signal syscall.Signal // the signal that it died of, or 0
}

// Killed reports whether the process died of SIGKILL.
func (e Exit) Killed() bool { return e.Signal == syscall.SIGKILL }

func (e Exit) String() string {
	if e.Signal != 0 {
		return "signal " + e.Signal.String()
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// StartWorker starts a worker and returns at once; the worker may not be ready yet. Its output goes to the test's
// log, line by line. A data race that it reports fails the test.
func StartWorker(t testing.TB, o WorkerOptions) *Worker {
	t.Helper()
	if o.ClockShift != 0 && o.Binary == "" {
		t.Fatal("start worker: ClockShift needs a Binary made by BuildShifted")
	}
	reachedR, reachedW := pipe(t)
	releaseR, releaseW := pipe(t)
	w := &Worker{t: t, release: releaseW, points: newPoints(o.Points, nil), exited: make(chan struct{})}
	w.output = &output{t: t}
	w.cmd = command(t, o)
	w.cmd.Stdout, w.cmd.Stderr = w.output, w.output
	w.cmd.ExtraFiles = []*os.File{reachedW, releaseR} // become descriptors 3 and 4
	started := make(chan error)
	var running sync.WaitGroup
	running.Go(func() { w.run(started) })
	if err := <-started; err != nil {
		t.Fatalf("start worker %s: %v", o.Name, err)
	}
	reachedW.Close()
	releaseR.Close()
	running.Go(func() { eachIndex(reachedR, func(i int) { close(w.points.places[i].reached) }) })
	t.Cleanup(func() {
		w.kill()
		running.Wait()
		reachedR.Close()
		releaseW.Close()
	})
	return w
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("start worker: %v", err)
	}
	return r, w
}

func command(t testing.TB, o WorkerOptions) *exec.Cmd {
	t.Helper()
	binary := o.Binary
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatalf("start worker %s: %v", o.Name, err)
		}
		binary = self
	}
	points, err := json.Marshal(slices.Concat([]Point{}, o.Points))
	if err != nil {
		t.Fatalf("start worker %s: points: %v", o.Name, err)
	}
	cmd := exec.Command(binary, o.Args...)
	cmd.Env = append(os.Environ(), workerVariable+"="+o.Name, pointsVariable+"="+string(points))
	if os.Getenv("GORACE") == "" {
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=50") // by default a racy build takes 1 s to exit
	}
	if o.ClockShift != 0 {
		cmd.Env = append(cmd.Env, shiftVariable+"="+o.ClockShift.String())
	}
	cmd.Env = append(cmd.Env, o.Env...)
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = 5 * time.Second // a grandchild that keeps the output open must not hold up the test
	return cmd
}

// run owns the process. It keeps its thread, because the death signal follows the thread that forked.
func (w *Worker) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := w.cmd.Start()
	if err == nil {
		w.output.name(fmt.Sprintf("worker %d", w.cmd.Process.Pid))
	}
	started <- err
	if err != nil {
		return
	}
	_ = w.cmd.Wait() // Exit tells it from the process state
	w.output.flush()
	close(w.exited)
}

func (w *Worker) kill() {
	select {
	case <-w.exited:
	default:
		_ = syscall.Kill(-w.PID(), syscall.SIGKILL) // fails only if it has just ended
	}
}

// PID is the id of the process.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Signal sends sig to the process. That the process has ended already is no error.
func (w *Worker) Signal(sig syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Errorf("send %s to worker %d: %v", sig, w.PID(), err)
	}
}

// Freeze stops the process with SIGSTOP and returns when it stands still.
func (w *Worker) Freeze(within time.Duration) {
	w.t.Helper()
	w.Signal(syscall.SIGSTOP)
	w.AwaitStopped(within)
}

// AwaitStopped waits until the process stands still, for example at a point with the action Stop. A SIGCONT that is
// sent earlier would be lost.
func (w *Worker) AwaitStopped(within time.Duration) {
	w.t.Helper()
	Eventually(w.t, within, fmt.Sprintf("worker %d stands still", w.PID()), func() bool { return stopped(w.PID()) })
}

// Thaw lets a stopped process go on.
func (w *Worker) Thaw() {
	w.t.Helper()
	w.Signal(syscall.SIGCONT)
}

// Reached is closed when the process says that it is at p, which must be one of its points.
func (w *Worker) Reached(p Point) <-chan struct{} {
	w.t.Helper()
	reached := w.points.Reached(p)
	if reached == nil {
		w.t.Fatalf("worker %d was not given the point %s %s", w.PID(), p.Span, p.Edge)
	}
	return reached
}

// AwaitPoint waits until the process is at p. It fails the test if the process ends without having been there.
func (w *Worker) AwaitPoint(p Point, within time.Duration) {
	w.t.Helper()
	reached := w.Reached(p)
	what := fmt.Sprintf("worker %d at %s %s", w.PID(), p.Span, p.Edge)
	select {
	case <-reached:
	case <-w.exited:
		Await(w.t, reached, time.Second, what+", which has ended: "+w.exit().String())
	case <-time.After(within):
		w.t.Fatalf("timed out after %s: %s", within, what)
	}
}

// Release lets the goroutine go on that p blocks in the process.
func (w *Worker) Release(p Point) {
	w.t.Helper()
	for i, pl := range w.points.places {
		if pl.Point == p {
			fmt.Fprintln(w.release, i) // fails only if the process has ended
		}
	}
}

// Exited is closed when the process has ended.
func (w *Worker) Exited() <-chan struct{} { return w.exited }

// Wait waits for the process to end and says how it did.
func (w *Worker) Wait(within time.Duration) Exit {
	w.t.Helper()
	Await(w.t, w.exited, within, fmt.Sprintf("worker %d has ended", w.PID()))
	return w.exit()
}

func (w *Worker) exit() Exit {
	e := Exit{Code: w.cmd.ProcessState.ExitCode()}
	if status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	return e
}

// Output is what the process wrote to its standard output and error so far. It is complete when the process has
// ended; before that it may lag behind Reached.
func (w *Worker) Output() string { return w.output.String() }
