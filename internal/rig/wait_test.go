package rig

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// complaint runs f with a test of its own and returns what that test would have failed with.
func complaint(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	var running sync.WaitGroup
	running.Go(func() { f(r) }) // a goroutine, because Fatalf ends it
	running.Wait()
	return r.text
}

type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Errorf(f string, args ...any) { r.text += fmt.Sprintf(f, args...) + "\n" }

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(f string, args ...any) {
	r.Errorf(f, args...)
	runtime.Goexit()
}

func TestEventuallyAndAwaitNameWhatIsMissing(t *testing.T) {
	const moment = 20 * time.Millisecond
	for name, f := range map[string]func(testing.TB){
		"Eventually": func(t testing.TB) { Eventually(t, moment, "pigs fly", func() bool { return false }) },
		"Await":      func(t testing.TB) { Await(t, make(chan int), moment, "pigs fly") },
	} {
		if got := complaint(t, f); !strings.Contains(got, "timed out after 20ms: pigs fly") {
			t.Errorf("%s failed with %q", name, got)
		}
	}
}

func TestEventuallyReturnsWhenItHolds(t *testing.T) {
	looks := 0
	Eventually(t, soon, "three looks", func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("looked %d times after it held", looks)
	}
}

func TestOutputOfWorker(t *testing.T) {
	got := complaint(t, func(t testing.TB) {
		o := &output{t: t}
		o.name("worker 7")
		fmt.Fprint(o, "fine\nWARNING: DATA")
		fmt.Fprint(o, " RACE")
		o.flush()
	})
	if got != "[worker 7] reported a data race\n" {
		t.Errorf("the test failed with %q", got)
	}
}
