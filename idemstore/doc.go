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
//
// # What is promised
//
// Services that embed the engine need little of this package, and that follows Semantic Versioning like package consumer:
//
// [Migrate] and [ErrSchema], for the tables; [ErrExecMode] and [ErrPrefixTaken], with which an engine refuses to run. A
// [Store], made by [New], to look with: [Store.CheckSchema], [Store.Find], [Store.FindByID], [Store.List] with a [Filter],
// [Store.Events], [Store.Refusals] with a [RefusalFilter], and [Store.FindRefusal]; [ErrNotFound].
//
// What these answer, and what package consumer speaks of: [Task] with its [Fence], [Origin], [EventName], [Status] and
// [Cause]; [Event]; [Refusal], [KeptRefusal], [Republished] and [Reason]; [StepResult] and [SetAside]; [ErrLost]. Structures
// may get more fields, and sets more values.
//
// The statuses are [Started], [Unknown], [Finished], [Failed] and [NeedsReview]; [Status.Final] tells which are over.
//
// The causes are [CauseBudget], [CauseAge], [CauseConflict], [CauseContradictory], [CauseTwoEffects], [CauseNotBooked],
// [CauseRefusalUnbooked], [CauseSkipUnbooked], [CauseAbsent], [CauseVanished], [CauseNoLookup] and [CauseReplayedError].
//
// The reasons are [Malformed], [TooLarge], [BadKey], [UnknownKind], [Conflict] and [Unsendable].
//
// Everything else is exported because the engine and Settle's own commands are other packages. It may change in any release:
// work with tasks through a consumer.Operator, and publish with consumer.Publish and consumer.PublishTx.
package idemstore
