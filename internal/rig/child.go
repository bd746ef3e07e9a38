package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What a test tells its worker process, by environment variable.
const (
	workerVariable = "SETTLE_TEST_WORKER"      // the registered name
	pointsVariable = "SETTLE_TEST_POINTS"      // []Point as JSON
	shiftVariable  = "SETTLE_TEST_CLOCK_SHIFT" // a duration; needs a program made by BuildShifted
)

// The inherited pipes of a worker process. Each line on them is the index of a point.
const (
	reachedFD = 3 // worker → test: the process is there
	releaseFD = 4 // test → worker: the blocked goroutine may go on
)

var (
	registered  = map[string]func(context.Context) error{}
	childPoints *Points
)

// Register names a function that a worker process can run. Call it before RunChild. The function's context is
// cancelled by SIGTERM; a second SIGTERM ends the process. An error makes the exit code 1.
func Register(name string, run func(ctx context.Context) error) {
	if _, taken := registered[name]; taken {
		panic("rig: worker " + name + " is registered twice")
	}
	registered[name] = run
}

// RunChild turns this process into the worker that it was started as. It must be the first thing that TestMain does
// after Register. It returns at once in a process that is no worker, and never in one that is.
func RunChild() {
	name := os.Getenv(workerVariable)
	if name == "" {
		return
	}
	_ = os.Unsetenv(workerVariable) // a worker's own children are no workers
	os.Exit(runChild(name))
}

// ChildPoints are the points that this worker process was given. It panics in a process that is no worker.
func ChildPoints() *Points {
	if childPoints == nil {
		panic("rig: ChildPoints in a process that StartWorker did not start")
	}
	return childPoints
}

func runChild(name string) (code int) {
	run := registered[name]
	if run == nil {
		return complain(2, fmt.Errorf("no worker is registered as %q", name))
	}
	if err := checkShift(); err != nil {
		return complain(2, err)
	}
	closePoints, err := openPoints()
	if err != nil {
		return complain(2, err)
	}
	defer closePoints()
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	defer restore()
	if err := run(ctx); err != nil {
		return complain(1, err)
	}
	return 0
}

func complain(code int, err error) int {
	fmt.Fprintln(os.Stderr, "worker:", err)
	return code
}

// openPoints reads the points and connects them to the two pipes.
func openPoints() (closePoints func(), err error) {
	var points []Point
	if err := json.Unmarshal([]byte(os.Getenv(pointsVariable)), &points); err != nil {
		return nil, fmt.Errorf("read %s: %w", pointsVariable, err)
	}
	reached, err := inherited(reachedFD)
	if err != nil {
		return nil, err
	}
	released, err := inherited(releaseFD)
	if err != nil {
		return nil, err
	}
	childPoints = newPoints(points, func(i int) { fmt.Fprintln(reached, i) })
	var reading sync.WaitGroup
	reading.Go(func() { eachIndex(released, func(i int) { childPoints.places[i].open() }) })
	return func() {
		released.Close()
		reading.Wait()
		reached.Close()
	}, nil
}

// inherited opens a pipe so that closing it ends a pending read, and keeps it from the worker's own children.
func inherited(fd int) (*os.File, error) {
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("open inherited pipe %d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), "pipe "+strconv.Itoa(fd)), nil
}

// eachIndex calls f for each index that arrives, until the pipe ends.
func eachIndex(r io.Reader, f func(i int)) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if i, err := strconv.Atoi(strings.TrimSpace(lines.Text())); err == nil {
			f(i)
		}
	}
}

// checkShift refuses to run with a right clock where a wrong one was asked for: such a test would prove nothing.
func checkShift() error {
	text := os.Getenv(shiftVariable)
	if text == "" {
		return nil
	}
	shift, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("read %s: %w", shiftVariable, err)
	}
	var kernel syscall.Timeval
	if err := syscall.Gettimeofday(&kernel); err != nil {
		return fmt.Errorf("read the kernel's clock: %w", err)
	}
	got := time.Since(time.Unix(kernel.Unix())).Round(time.Second)
	if got != shift {
		return fmt.Errorf("the clock is shifted by %s instead of %s: the program must be made by BuildShifted", got, shift)
	}
	return nil
}
