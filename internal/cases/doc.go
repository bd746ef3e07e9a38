// Package cases holds tests only: real faults, each under its case id, against real worker processes on a real
// Postgres, a real JetStream and the stand-in provider, all broken on purpose by package rig.
//
// Every test looks at what an outsider would notice: the requests and effects that the provider itself counted (W
// and E), the task's row and its audit, and whether the message is gone from the stream.
package cases
