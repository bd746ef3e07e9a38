// Package bench measures what Settle's kinds come to beside a hand-written loop, in one run on one machine.
//
// A contestant does the same work in its own way: it takes all queued jobs, notes each key once, and acks. Each round
// measures all contestants one after the other, each round beginning with the next one, so that a machine that slows down
// slows all of them. Before the rounds each is measured once without counting it: that warms the machine up, and it is
// where what a job waits for comes from, so that looking costs the rounds nothing.
//
// Every measurement has a database, a kind and a consumer of its own, so none of them meets what another left. The jobs
// are queued first; then the clock runs from the first delivery to the last confirmed ack, or to the last confirmed event
// of jobs that emit one. Figures are for one machine; the ratios of one run are what they are for.
package bench
