// The command peers measures Settle beside other ways to do the same work, in one run on one machine: make peers.
//
// Each contestant performs the same jobs: 256 bytes of JSON with a key, an effect that takes no time, and a record in
// PostgreSQL that the job is done. Those that have a broker take the jobs from JetStream and confirm each ack. The jobs are
// queued before the clock runs; it stops when the last one is recorded and acked. Package bench says how the rounds are
// interleaved. Durability is the same for all: synchronous_commit and fsync as PostgreSQL has them by default, a JetStream
// file store with its default sync interval.
//
// What a contestant keeps differs, and the settings that are printed say how: of these only Settle finds out what became of
// a job whose worker died in the middle of its effect. So the figures say what that costs, not that the others are worse.
//
// After a measurement the contestant's own rows are counted: a job that is missing, or was done twice, fails the run.
//
// This is a module of its own, so that nobody who imports Settle gets these dependencies. River is under the MPL 2.0,
// Watermill and DBOS Transact under the MIT licence; nothing of them is changed, copied or shipped.
package main
