package idemstore

import (
	"errors"
	"time"

	"github.com/google/uuid"
)

// Status is where a task stands. The values are what settle.tasks.status holds.
type Status string

// The five statuses. Finished and failed are final; only a person moves a task out of needs_review.
const (
	Started     Status = "started"      // an attempt owns the task, died with it, or has released it untouched
	Unknown     Status = "unknown"      // a request may have left and no outcome is known: ask before sending again
	Finished    Status = "finished"     // the effect happened and its result is stored
	Failed      Status = "failed"       // a final refusal, or a person's decision
	NeedsReview Status = "needs_review" // nobody can tell; a person decides
)

// Final reports whether a status is never left by the engine itself.
func (s Status) Final() bool { return s == Finished || s == Failed }

// Cause says in one stable word why a task waits for a person. It is stored, searched for and alerted by.
type Cause string

// The causes. Of tasks parked by budget or age the provider goes on being asked, and a definite answer closes them.
const (
	CauseBudget          Cause = "budget"             // the failures are used up
	CauseAge             Cause = "age"                // not settled within the age limit
	CauseConflict        Cause = "conflict"           // contradictory data or a missing record, on our side
	CauseContradictory   Cause = "contradictory"      // the provider has other content, or two effects
	CauseTwoEffects      Cause = "two_effects"        // two external ids for one task
	CauseNotBooked       Cause = "not_booked"         // done at the provider, the local rows were refused
	CauseRefusalUnbooked Cause = "refusal_not_booked" // refused by the provider, the local rows were refused
	CauseSkipUnbooked    Cause = "skip_not_booked"    // overtaken by a newer event, the local rows that say so were refused
	CauseAbsent          Cause = "absent"             // the provider surely does not know it; no permission to send again
	CauseVanished        Cause = "vanished"           // the provider does not know an id that it once gave
	CauseNoLookup        Cause = "no_lookup"          // the kind cannot ask, and nothing protects a resend
	CauseReplayedError   Cause = "replayed_error"     // the provider keeps answering with a stored error
)

// Fence names one claim of one task. Number and token must both match the row in every statement of the
// attempt: the number orders attempts, the token says whose a claim is when the answer to COMMIT was lost.
type Fence struct {
	TaskID  int64
	Attempt int
	Token   uuid.UUID
}

// Origin is where a message came from. Two deliveries with the same origin are the same message.
type Origin struct {
	Stream   string
	Sequence uint64
	Stored   time.Time // when the stream stored it
}

// EventName names the CloudEvent that brought a job: an id is unique at its source.
type EventName struct{ ID, Source string }

// Ref is a search term of a task, such as customer or order.
type Ref struct{ Name, Value string }

// Claim asks for one attempt at one key.
type Claim struct {
	Kind, Key     string
	Token         uuid.UUID // fresh and random for each claim
	Payload       []byte    // exact bytes of the message
	Hash          []byte    // content hash of the payload
	HashAlgorithm string    // how Hash was made
	Provider      string    // identity of the provider: base URL and account label
	ProviderKey   string    // derived key; a key already stored on the row wins
	Refs          []Ref
	Origin        Origin
	Event         EventName // empty: it came as a plain job
	Reply         string    // subject that wants the result, or empty
	OriginTrace   string    // traceparent of the publisher, or of this delivery: the task is found by it
	Trace         string    // traceparent of this attempt

	Lease       time.Duration // how long the attempt owns the task
	MaxAge      time.Duration // a new task that is not final after this goes to needs_review
	MaxFailures int           // failure budget

	Taken bool // ClaimNew found the key Taken: no row is made, and one that is gone again is answered Locked
	Local bool // the job sends nothing: it is one transaction, and a crash undoes it

	// Recovery claims without a message: the row alone says what the job is. A row that is missing is not made, no content
	// is compared, and a task that is final or parked is left as it is. Payload, Hash, Origin and the like stay empty.
	Recovery bool
	Actor    string // who is named in the audit; "worker"
	Note     string // of a recovery: why. Not empty: the claim is in the audit also where nobody had died with the task
}

// Found says what a claim found: one line of the claim table. See the package comment of consumer.
type Found string

// The lines of the claim table, in its order. Only Inserted, Ask and Perform give the caller an attempt.
const (
	Inserted     Found = "inserted"     // 1: nobody had the key; perform
	Locked       Found = "locked"       // 2: somebody is at the row right now
	Incomparable Found = "incomparable" // 3: hashed by an algorithm this build does not know
	Conflicting  Found = "conflicting"  // 4: the key with other content
	Final        Found = "final"        // 5: finished or failed; replay
	Parked       Found = "parked"       // 6: waits for a person
	Busy         Found = "busy"         // 7: a live lease
	NotDue       Found = "not due"      // 8: nobody holds it, but it is too early
	Spent        Found = "spent"        // 9: budget or age used up; the claim parked it
	Ask          Found = "ask"          // 10, 11, 12: ask the provider before anything is sent
	Perform      Found = "perform"      // 11, 13: known not applied; perform

	Taken Found = "" // no line: ClaimNew did not look at the row, Claim does
)

// Claimed is the answer to one Claim: what was found, and the row as the claim left it.
// Task is empty where Found is Locked.
type Claimed struct {
	Found Found
	Task  Task
	Wait  time.Duration // Busy: rest of the lease. NotDue: until due. By the database clock.
	Age   Age           // ages by the database clock at the moment of the claim
	// PreviousTrace is the traceparent of the attempt before this one, for a link.
	PreviousTrace string

	position int // of the claim in its group, from 1
}

// Age holds the two ages that decide whether "absent" permits a resend. A worker adds its own elapsed time.
type Age struct {
	FirstSent    time.Duration // since first_sent_at; the true age of the provider's key is at most this
	LastSent     time.Duration // since last_sent_by; the true time since the last send is at least this
	HasFirstSent bool
	HasLastSent  bool
	AbsentSeen   bool // one settled "absent" is on the row, and at least a second old
}

// Task is a row of settle.tasks, as it was when it was read. Times are those of the database clock.
type Task struct {
	Fence
	Kind, Key      string
	Status         Status
	LeaseUntil     *time.Time // only of Started; nil: released, nobody holds it
	Sending        bool       // the current attempt may send; false while it only asks
	Unsure         bool       // an attempt before the current one may have been applied
	FirstSentAt    *time.Time // not after the first send; nil: nothing was sent
	LastSentBy     *time.Time // not before the last send of attempts that are over
	AbsentAt       *time.Time // when the provider first surely did not know it
	EvidenceID     string     // late proof: an external id, brought by an attempt that had lost the task
	ExternalID     string     // the provider's id of the effect; empty: not known
	Failures       int        // of the budget: unknown sends and crashes
	NextAttemptAt  time.Time  // not tried before
	GiveUpAt       time.Time  // its age limit: a person is asked if it is not final then
	ResendOnce     bool       // a person's permission for one resend that does not rest on the provider's key
	Provider       string     // identity of the provider: base URL and account label
	ProviderKey    string     // the Idempotency-Key
	Payload        []byte     // the exact bytes of the job
	Hash           []byte     // of the job's content
	HashAlgorithm  string
	Result         []byte // JSON, at most 64 KiB
	ResultAltered  bool   // a part of Result could not be stored as it was
	ProviderStatus int    // HTTP status of the kept answer; 0: none was kept
	Answer         string // the provider's last answer, bounded and scrubbed
	LastError      string // at most 2 KiB, scrubbed
	ErrorClass     string // what LastError came to, in one word
	Cause          Cause  // of NeedsReview, else empty
	Duplicates     int    // deliveries that were answered from the row
	Origin         Origin
	Event          EventName // of the CloudEvent that brought it; empty: a plain job
	Reply          string    // subject of who waits for the result; empty: nobody does any more
	OriginTrace    string    // traceparent of the publisher, or of the first delivery
	LastTrace      string    // traceparent of the latest attempt
	CreatedAt      time.Time
	UpdatedAt      time.Time
	FinishedAt     *time.Time // of Finished and Failed
	ExpiresAt      *time.Time // final: when payload, result and answer may be archived
	ArchivedAt     *time.Time // they are in the archive, from where Find reads them
	LeaseLive      bool       // by the database clock, when the row was read: an attempt holds the task
}

// Statement is one local write of a handler. It rides in the save's transaction; no rows come back.
type Statement struct {
	SQL  string
	Args []any
}

// Emit is one event or follow-up job, published after the save has committed.
type Emit struct {
	Subject, Key string
	Payload      []byte
	Trace        string
}

// Save is the outcome of one attempt.
type Save struct {
	Fence
	Kind, Key string // to read the row again when the answer to COMMIT is lost
	Strict    bool   // demand an unexpired lease as well

	Status         Status // Finished, Failed, Unknown or NeedsReview
	Cause          Cause  // of NeedsReview: required
	MayBeApplied   bool   // a request of this attempt may have been applied (always true for Unknown)
	ExternalID     string // write-once: a different one on the row is refused with ErrOtherExternalID
	Result         []byte // JSON, bounded and cleaned by the caller
	ResultAltered  bool
	ProviderStatus int
	Answer         string
	LastError      string
	ErrorClass     string
	EvidenceID     string // a second external id; kept as proof, never as the id
	AbsentNow      bool   // this attempt read the first settled "absent"
	ClearAbsent    bool   // any other verdict clears it

	Cost        int           // added to failures
	MaxFailures int           // Unknown becomes NeedsReview once failures reach it, or at give_up_at
	Delay       time.Duration // Unknown: not before
	// Settle moves the next attempt of an unkeyed task to the moment when "absent" may count, measured from the
	// last possible send: this save, if the attempt sent. The later of Delay and Settle wins.
	Settle    time.Duration
	Retention time.Duration // final: when the heavy columns may be archived

	// Applied is set where the effect of an event is there: with the save its version becomes the newest that was
	// applied to its entity, unless a newer one was, and the task gives the order guard up.
	Applied *Entity

	Writes []Statement
	Emits  []Emit
	Reason string // audit line; empty writes none
	Actor  string // who is named there; "worker"
	Trace  string // traceparent of this attempt
}

// Saved is what a save left behind.
type Saved struct {
	Status   Status // Unknown may have become NeedsReview
	Cause    Cause  // of NeedsReview, else empty
	Failures int
	Wait     time.Duration // Unknown: until due
}

// Release gives a task back that was certainly not sent by this attempt. Legal only after the send gate was
// shut unsent, or after every request ended unapplied.
type Release struct {
	Fence
	Kind, Key  string
	Delay      time.Duration
	Cost       int // added to failures: 0, but for a local job that failed
	LastError  string
	ErrorClass string
	Reason     string // audit line; empty writes none
	Actor      string // who is named there; "worker"
	Trace      string
}

// Refusal is a message that was not accepted.
type Refusal struct {
	Kind, Key string // as far as they could be read
	Reason    Reason
	Detail    string // in plain words
	Origin    Origin
	Subject   string // that it was published to
	Headers   map[string][]string
	Body      []byte // exact bytes
	TaskID    int64  // the task it conflicts with, or 0
}

// Reason says why a message was refused. The set is fixed: it is also a metric label.
type Reason string

// The reasons.
const (
	Malformed   Reason = "malformed"    // not one clean JSON object
	TooLarge    Reason = "too_large"    // body over the limit
	BadKey      Reason = "bad_key"      // no usable business key
	UnknownKind Reason = "unknown_kind" // no such kind here
	Conflict    Reason = "conflict"     // the key is taken by other content
	Unsendable  Reason = "outbox"       // an event or follow-up job that can never be published
)

// Event is one audit line.
type Event struct {
	At         time.Time // by the database clock
	Actor      string    // a person, or "worker"
	Attempt    int
	OldStatus  Status
	NewStatus  Status
	Reason     string // in plain words
	ExternalID string // evidence; may be empty
	TraceID    string // 32 hex digits; may be empty
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrLost: the fence did not match. The task belongs to another attempt, or is over. Nothing was written.
	ErrLost = errors.New("task is no longer held by this attempt")
	// ErrOtherExternalID: the row already has a different external id, or late proof of one. Nothing was written.
	ErrOtherExternalID = errors.New("task already has another external id")
	// ErrNotFound: no such task.
	ErrNotFound = errors.New("no such task")
	// ErrPrefixTaken: another kind owns a provider-key prefix that clashes.
	ErrPrefixTaken = errors.New("key prefix clashes with another kind's")
	// ErrSchema: the database has no schema, or another version of it.
	ErrSchema = errors.New("database schema does not fit this build")
	// ErrExecMode: behind this pooler the exec mode of the pool would fail now and then.
	ErrExecMode = errors.New("unsupported exec mode")
)

// LocalRowsError reports that the database refused a handler's own rows or events for what they say (SQLSTATE
// classes 21, 22, 23, 42, 44, 54 and P0, also at COMMIT), or that they could not be sent at all, while the attempt
// itself was still current. Nothing was written.
type LocalRowsError struct{ Err error }

func (e *LocalRowsError) Error() string {
	return "local rows refused by the database: " + e.Err.Error()
}

// Unwrap gives the database's error.
func (e *LocalRowsError) Unwrap() error { return e.Err }
