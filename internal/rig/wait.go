package rig

import (
	"testing"
	"time"
)

// pollEvery is how often Eventually looks.
const pollEvery = 10 * time.Millisecond

// Eventually waits until holds returns true. It fails the test, naming what was expected, if that does not happen
// within the time given. holds runs in the calling goroutine.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(within)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-timeout:
			t.Fatalf("timed out after %s: %s", within, what)
		}
	}
}

// Await waits for a value from c, or for c to be closed, and returns the value. It fails the test, naming what was
// expected, if that does not happen within the time given.
func Await[T any](t testing.TB, c <-chan T, within time.Duration, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(within):
		t.Fatalf("timed out after %s: %s", within, what)
		panic("unreachable")
	}
}
