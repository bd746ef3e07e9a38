// Package lab holds the labs: short experiments on the real engine that show what protects an external effect, and what
// does not.
//
// A lab is a story, a list of steps. A step says what happens, lets it happen, shows what each side believes then (the
// workers, the task's row, the provider, the stream), and checks it. At the end there is a question with an answer, and
// one case in which the protection that was shown is not enough; with Options.Break that case is played instead.
//
// The parts are real: PostgreSQL, JetStream, the stand-in provider over HTTP, and workers that are processes of their
// own, which a lab kills with SIGKILL. Only where the subject is a single call of the store or of the provider (concurrent,
// lease, lease-stale) the lab makes these calls by hand.
//
// Nothing in a story depends on who is faster: a worker is killed, and a request held, from within the provider's
// callback, and a step waits for what it shows.
//
//	stories_*.go   the stories
//	acts_*.go      what can happen
//	claims.go      what can be checked
//	text_*.go      every word that a reader sees, once for each language
package lab
