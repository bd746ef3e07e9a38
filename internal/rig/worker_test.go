package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// workers are what this package's worker processes can run.
var workers = map[string]func(context.Context) error{
	"drain": func(ctx context.Context) error {
		ChildPoints().At("ready")
		<-ctx.Done()
		fmt.Fprint(os.Stdout, "drained")
		return nil
	},
	"fail":  func(context.Context) error { return errors.New("this went wrong") },
	"spans": spans,
	"nest":  nest,
	"clock": func(context.Context) error {
		start := time.Now()
		fmt.Fprintf(os.Stdout, "clock %d\n", start.Unix())
		<-time.After(50 * time.Millisecond)
		fmt.Fprintf(os.Stdout, "elapsed %d\n", time.Since(start).Milliseconds())
		return nil
	},
}

// spans starts and ends three spans and says between them what it has done.
func spans(context.Context) error {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ChildPoints()))
	tracer := provider.Tracer("rig")
	for i := range 3 {
		fmt.Fprintln(os.Stdout, "before", i)
		_, span := tracer.Start(context.Background(), "work", trace.WithAttributes(attribute.Int("i", i)))
		fmt.Fprintln(os.Stdout, "inside", i)
		span.SetAttributes(attribute.String("answer", fmt.Sprint("a", i)))
		span.End()
		fmt.Fprintln(os.Stdout, "after", i)
	}
	return provider.Shutdown(context.Background())
}

// nest starts a process as StartWorker does, and waits to be killed.
func nest(ctx context.Context) error {
	runtime.LockOSThread()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "nested", cmd.Process.Pid)
	ChildPoints().At("ready")
	<-ctx.Done()
	return nil
}

var ready = Point{Span: "ready", Edge: Start}

func TestWorkerDrainsOnSIGTERM(t *testing.T) {
	w := StartWorker(t, WorkerOptions{Name: "drain", Points: []Point{ready}})
	w.AwaitPoint(ready, soon)
	w.Signal(syscall.SIGTERM)
	if e := w.Wait(soon); e != (Exit{}) {
		t.Errorf("ended with %s, want exit code 0", e)
	}
	if w.Output() != "drained" {
		t.Errorf("output %q", w.Output())
	}
	w.Signal(syscall.SIGTERM) // to a process that is gone: no error
}

func TestWorkerDiesOfSIGKILL(t *testing.T) {
	w := StartWorker(t, WorkerOptions{Name: "drain", Points: []Point{ready}})
	w.AwaitPoint(ready, soon)
	w.Signal(syscall.SIGKILL)
	if e := w.Wait(soon); !e.Killed() || e.String() != "signal killed" {
		t.Errorf("ended with %s, want SIGKILL", e)
	}
}

func TestWorkerThatFails(t *testing.T) {
	for name, want := range map[string]struct {
		code   int
		output string
	}{
		"fail":    {1, "worker: this went wrong\n"},
		"unknown": {2, "worker: no worker is registered as \"unknown\"\n"},
	} {
		w := StartWorker(t, WorkerOptions{Name: name})
		if e := w.Wait(soon); e.Code != want.code || w.Output() != want.output {
			t.Errorf("%s: %s, output %q; want exit code %d, %q", name, e, w.Output(), want.code, want.output)
		}
	}
}

func TestWorkerKillsItselfAtAPoint(t *testing.T) {
	for name, tc := range map[string]struct {
		point Point
		last  string // line before the death
	}{
		"start":               {Point{Span: "work", Edge: Start}, "before 0"},
		"end":                 {Point{Span: "work", Edge: End}, "inside 0"},
		"second time":         {Point{Span: "work", Edge: Start, Nth: 2}, "before 1"},
		"attribute":           {Point{Span: "work", Edge: Start, Attribute: "i", Value: "2"}, "before 2"},
		"attribute set later": {Point{Span: "work", Edge: End, Attribute: "answer", Value: "a1"}, "inside 1"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.point.Action = Kill
			w := StartWorker(t, WorkerOptions{Name: "spans", Points: []Point{tc.point}})
			w.AwaitPoint(tc.point, soon)
			if e := w.Wait(soon); !e.Killed() {
				t.Errorf("ended with %s, want SIGKILL", e)
			}
			if lines := strings.Fields(strings.ReplaceAll(w.Output(), " ", "_")); lines[len(lines)-1] != strings.ReplaceAll(tc.last, " ", "_") {
				t.Errorf("output %q, want it to end after %q", w.Output(), tc.last)
			}
		})
	}
}

func TestWorkerStopsItselfAtAPoint(t *testing.T) {
	p := Point{Span: "work", Edge: End, Nth: 2, Action: Stop}
	w := StartWorker(t, WorkerOptions{Name: "spans", Points: []Point{p}})
	w.AwaitPoint(p, soon)
	w.AwaitStopped(soon)
	Eventually(t, soon, "the output ends inside the second span", func() bool {
		return strings.HasSuffix(w.Output(), "inside 1\n")
	})
	w.Thaw()
	if e := w.Wait(soon); e != (Exit{}) || !strings.HasSuffix(w.Output(), "after 2\n") {
		t.Errorf("after SIGCONT: %s, output %q", e, w.Output())
	}
}

func TestWorkerBlocksAtAPoint(t *testing.T) {
	p := Point{Span: "work", Edge: Start, Nth: 3, Action: Block}
	other := Point{Span: "work", Edge: End, Nth: 1, Action: Note}
	never := Point{Span: "work", Edge: Start, Nth: 4}
	w := StartWorker(t, WorkerOptions{Name: "spans", Points: []Point{p, other, never}})
	w.AwaitPoint(p, soon)
	w.AwaitPoint(other, soon)
	select {
	case <-w.Exited():
		t.Fatal("the process went past the point that blocks")
	default:
	}
	w.Release(p)
	if e := w.Wait(soon); e != (Exit{}) {
		t.Errorf("after release: %s", e)
	}
	got := complaint(t, func(tb testing.TB) { w := *w; w.t = tb; w.AwaitPoint(never, soon) })
	if !strings.Contains(got, "which has ended: exit code 0") {
		t.Errorf("a point that was never reached: %q", got)
	}
}

func TestWorkerFreezesAndThaws(t *testing.T) {
	w := StartWorker(t, WorkerOptions{Name: "drain", Points: []Point{ready}})
	w.AwaitPoint(ready, soon)
	w.Freeze(soon)
	w.Signal(syscall.SIGTERM) // waits with the process
	if !stopped(w.PID()) {
		t.Error("the process runs")
	}
	w.Thaw()
	if e := w.Wait(soon); e != (Exit{}) {
		t.Errorf("ended with %s", e)
	}
}

// A test binary that is killed takes its workers along.
func TestWorkerDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // only Linux can do that
	}
	w := StartWorker(t, WorkerOptions{Name: "nest", Points: []Point{ready}})
	w.AwaitPoint(ready, soon)
	var pid int
	Eventually(t, soon, "the worker tells the nested process", func() bool {
		_, err := fmt.Sscanf(w.Output(), "nested %d\n", &pid)
		return err == nil
	})
	w.Signal(syscall.SIGKILL)
	w.Wait(soon)
	Eventually(t, soon, "the nested process is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // nobody may be there to reap it
	})
}

func TestWorkerEndsWithTheTest(t *testing.T) {
	var w *Worker
	t.Run("use", func(t *testing.T) {
		w = StartWorker(t, WorkerOptions{Name: "drain", Points: []Point{ready}})
		w.AwaitPoint(ready, soon)
		w.Freeze(soon)
	})
	if e := w.Wait(soon); !e.Killed() {
		t.Errorf("ended with %s, want SIGKILL", e)
	}
}

func TestPointsInTheTestItself(t *testing.T) {
	if _, err := NewPoints(Point{Span: "work", Action: Kill}); err == nil {
		t.Error("a point may kill the test")
	}
	p := Point{Span: "work", Edge: Start, Action: Block}
	points, err := NewPoints(p)
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan struct{})
	go func() { points.At("work"); close(passed) }()
	Await(t, points.Reached(p), soon, "the point is reached")
	select {
	case <-passed:
		t.Error("the point does not block")
	default:
	}
	points.Release(p)
	Await(t, passed, soon, "the released goroutine goes on")
	points.At("work") // acts once
}
