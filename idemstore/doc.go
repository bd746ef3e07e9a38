// Package idemstore is the idempotency table: what every business key went through, kept in Postgres.
//
// A Store claims keys, renews leases, saves outcomes and answers questions about tasks. It decides nothing
// beyond what must be decided under a row lock; those decisions are in the statements of sql.go and follow the
// tables in the documentation of package consumer. It knows nothing about messages or handlers.
//
// Every transaction names its isolation level, bounds its wait for locks, refuses a commit that could be
// forgotten, and goes to the server in one flush. Work that the server surely rolled back is run again a few
// times (serialization failures, deadlocks, lock timeouts, a server that became read-only, connections lost
// before anything was sent). When the answer to COMMIT is lost, the row is read again on a fresh connection
// before anything is concluded. No call to a provider is ever inside such a loop.
package idemstore
