package consumer

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
)

// Nobody waits for a goroutine that is busy, and one that is not is used again.
func TestCrew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		goroutines := map[string]int{}
		run := func() {
			c.do(func() { goroutines[goroutine()]++ })
			synctest.Wait()
		}
		for range 3 {
			run()
		}
		if len(goroutines) != 1 {
			t.Errorf("functions that came one after the other ran on %d goroutines", len(goroutines))
		}
		begun, end := 0, make(chan struct{})
		for range 2 {
			c.do(func() { begun++; <-end })
			synctest.Wait()
		}
		run()
		if begun != 2 || len(goroutines) != 2 {
			t.Errorf("%d of 2 functions began; another, while they were under way, on %d goroutines in all", begun, len(goroutines))
		}
		c.dismiss()
		late := false
		c.do(func() { late = true })
		close(end)
		c.members.Wait()
		if !late {
			t.Error("a function was not run because the crew was dismissed")
		}
	})
}

// goroutine names the one that it is called on.
func goroutine() string {
	buf := make([]byte, 64)
	return string(bytes.Fields(buf[:runtime.Stack(buf, false)])[1])
}
