package consumer

import "time"

// now is this package's only reading of a clock, and only its monotonic part decides anything: differences between two
// readings of one process. Leases are judged by the database's clock. The monotonic clock goes on while a
// process is stopped, so one that wakes from a freeze knows how long it was away.
func now() time.Time { return time.Now() }
