package rig

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestShiftedClock(t *testing.T) {
	binary := BuildShifted(t, ".")
	for _, shift := range []time.Duration{10 * time.Minute, -10 * time.Minute, 0} {
		t.Run(shift.String(), func(t *testing.T) {
			w := StartWorker(t, WorkerOptions{Name: "clock", Binary: binary, ClockShift: shift})
			if e := w.Wait(soon); e != (Exit{}) {
				t.Fatalf("ended with %s", e)
			}
			var unix, elapsed int64
			if _, err := fmt.Sscanf(w.Output(), "clock %d\nelapsed %d\n", &unix, &elapsed); err != nil {
				t.Fatalf("output %q: %v", w.Output(), err)
			}
			if off := time.Until(time.Unix(unix, 0)) - shift; off.Abs() > 5*time.Second {
				t.Errorf("the worker's clock is %s away from a shift by %s", off, shift)
			}
			if elapsed < 50 || elapsed > 5000 {
				t.Errorf("50 ms took %d ms on the worker's monotonic clock", elapsed)
			}
		})
	}
}

// A worker whose clock is right although a wrong one was asked for must not run: its test would prove nothing.
func TestShiftNeedsItsOwnProgram(t *testing.T) {
	if got := complaint(t, func(t testing.TB) {
		StartWorker(t, WorkerOptions{Name: "clock", ClockShift: time.Minute})
	}); !strings.Contains(got, "BuildShifted") {
		t.Errorf("StartWorker without a Binary: %q", got)
	}
	w := StartWorker(t, WorkerOptions{Name: "clock", Env: []string{shiftVariable + "=1m"}})
	if e := w.Wait(soon); e.Code != 2 || !strings.Contains(w.Output(), "must be made by BuildShifted") {
		t.Errorf("%s, output %q", e, w.Output())
	}
}
