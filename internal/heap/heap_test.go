package heap

import (
	"runtime/debug"
	"testing"
)

func TestGOGCIsObeyed(t *testing.T) {
	before := debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetGCPercent(before) })

	t.Setenv("GOGC", "off")
	Roomy()
	if got := debug.SetGCPercent(70); got != 70 {
		t.Errorf("with GOGC set the heap grows by %d %%, want 70 as before", got)
	}
	t.Setenv("GOGC", "")
	Roomy()
	if got := debug.SetGCPercent(70); got != percent {
		t.Errorf("the heap grows by %d %%, want %d", got, percent)
	}
}
