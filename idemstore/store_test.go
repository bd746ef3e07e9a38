package idemstore

import (
	"testing"
	"time"
)

func TestStatementsWaitForLocksNoLongerThanALeaseAllows(t *testing.T) {
	t.Parallel()
	for lease, want := range map[time.Duration]string{0: "1000", time.Minute: "1000", time.Second: "333", time.Millisecond: "1"} {
		if got := New(nil, lease).lockTimeout; got != want {
			t.Errorf("a lease of %v: %s ms, want %s", lease, got, want)
		}
	}
}
