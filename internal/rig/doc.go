// Package rig breaks real parts on purpose. Tests use it; the product never imports it.
//
//	Proxy          a TCP proxy that pauses, cuts and refuses connections
//	PostgresProxy  the same before Postgres: cuts right before a COMMIT, or between COMMIT and its answer
//	NATSProxy      the same before NATS: cuts right before a publication (an ack is one), or before its reply
//	Worker         a real process: the test binary again, running a function that was registered by name
//	Point          a place in such a process, given as the start or end of a span, at which it kills, stops or
//	               holds itself, after having said that it is there
//	BuildShifted   a program whose wall clock is wrong
//
// A fault counts only if it was seen to happen: Shot.Fired and Worker.Reached are closed at the fault itself, so
// that a test which missed its aim fails instead of passing for the wrong reason.
package rig
