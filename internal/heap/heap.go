// Package heap says how much memory a worker may spend on fewer garbage collections.
package heap

import (
	"os"
	"runtime/debug"
)

// percent is how far the heap grows beyond what is live before it is collected. Little is live in a worker, a few KiB for
// each job under way; at Go's default of 100 it collects thirty times a second under load and looks at each goroutine's
// stack every time.
const percent = 400

// Roomy lets the heap grow to five times what is live, for the whole process. GOGC, where it is set, is obeyed instead;
// GOMEMLIMIT bounds the heap either way.
func Roomy() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
