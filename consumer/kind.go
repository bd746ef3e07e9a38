package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Kind declares jobs whose effect happens at a provider: a charge, a report, a row in someone's CRM.
// J is the job as the message carries it, R the result that is stored and replayed. Both are plain JSON types.
//
// Name, Contract, Key, Perform and ExternalID are required; New names what is missing.
type Kind[J, R any] struct {
	// Name is the kind, "payment.charge": lower-case words joined by dots, at most 64 bytes.
	// Its jobs travel on subject "jobs." + Name.
	Name string
	// Contract says in words what one job does. `settle kinds` prints it.
	Contract Contract
	// Policy bounds attempts and time. Zero fields take Config.Policy, then the documented defaults.
	Policy Policy
	// Provider describes what the provider promises about keys, look-ups and refusals.
	Provider Provider
	// Content says which members of the body make up the job's content.
	Content Content

	// Key gives the business key: stable, from the business event, never random, never the time, and no hash of the body.
	// An error refuses the message (bad_key); it is not retried.
	Key func(J) (string, error)
	// Refs gives search terms (customer, order). Optional.
	Refs func(J) Refs
	// Entity names the thing that the job is an event of, and the version that the event brings: a contact that is pushed
	// into a CRM, and the number of its last change. Optional; with it an order guard stands before each send. One event
	// of an entity is under way at a time, and one that is not newer than what was applied is never sent: its task is
	// finished with the zero R, and Commit sees Skipped. An event waits, free of charge, while another one of its entity
	// may be under way; one that waits for a person stops only those that are not newer. An empty id means: no guard for
	// this job. A version without a number and a time, a time that is none, or an id of more than 512 bytes refuses the
	// message (bad_key). Entity must depend on the job alone. The guard is per kind.
	Entity func(J) (id string, v Version)
	// Check looks at local rows before anything is sent: true means that the effect is already there and R is
	// its result. An error made by Conflict parks the task, one made by Refused makes it failed, unless an earlier
	// attempt may have been applied; any other error is tried again later, unsent.
	// Optional.
	Check func(context.Context, DB, J) (R, bool, error)
	// Perform makes the effect happen, with Attempt.ProviderKey as the idempotency key. It runs with no
	// transaction open and must honour ctx. Every request passes the send gate: use Transport, or MaySend.
	// A nil error means done. Errors other than those made by this package's constructors mean unknown.
	Perform func(context.Context, *Attempt[J]) (R, error)
	// Lookup asks the provider what became of the effect. With Attempt.ExternalID set it asks for exactly that
	// one. It must not create anything. Optional, but without it an uncertain task soon needs a person.
	Lookup func(context.Context, *Attempt[J]) (R, Verdict, error)
	// ExternalID takes the provider's id out of a result. One place, for Perform, Lookup and operators.
	ExternalID func(R) string
	// Commit queues local rows and events that are committed with the result, or not at all. It runs for every
	// final outcome, whoever learnt it, refusals and skipped events included, may run several times, and must only
	// queue. Optional.
	Commit func(*Writes, Final[J, R]) error
}

// Definition is a declared kind. It is sealed: Kind, LocalKind and StepKind implement it.
type Definition interface {
	define() (*definition, error)
}

// JobOf is a definition whose jobs are J. It lets Publish infer J from the kind.
type JobOf[J any] interface {
	Definition
	job(J)
}

func (Kind[J, R]) job(J) {}

// Contract is the promise of a kind in plain words: what an operator or a reviewer needs to know.
type Contract struct {
	Effect    string // what happens outside
	Rows      string // local rows it may change
	Success   string // what counts as done
	SecondRun string // what a repeat returns
	StopRule  string // when it stops and a person is called

	// Link is where a person looks at the effect: an http or https URL with {id} in the place of the external id. Optional.
	Link string

	// Hidden are the names of members, at any depth and in any case of letters, whose values the support screen and its API
	// show to nobody: of jobs, results and the provider's answers. A body that is not JSON is then not shown at all.
	Hidden []string
}

// Content says how the content hash of a body is taken. All other members count, unknown ones included.
type Content struct {
	Volatile []string // top-level members that differ between honest repeats (sent_at, trace); left out
	IDs      []string // top-level members that may be a string or an integer: hashed as the same text

	// MaxBody is the largest body in bytes, for workers and publishers alike; 0 is Config.MaxBody for workers and 256 KiB
	// for publishers. A NATS server takes no message above its max_payload, 1 MiB unless configured.
	MaxBody int
}

// WithMaxBody is a kind with another Content.MaxBody; n <= 0 changes nothing.
func WithMaxBody(kind Definition, n int) Definition { return sized{kind, n} }

// sized is a kind with another largest body.
type sized struct {
	Definition
	maxBody int
}

func (s sized) define() (*definition, error) {
	d, err := s.Definition.define()
	if err == nil && s.maxBody > 0 {
		d.content.MaxBody = s.maxBody
	}
	return d, err
}

// Refs are search terms of a task: name ("customer", at most 64 bytes) to value (at most 512). What is longer or empty is left
// out, and the job runs without it.
type Refs map[string]string

// DB is what Check may use: committed rows. Each statement is a transaction of its own, before the effect.
// *pgxpool.Pool implements it, and so do *pgx.Conn and pgx.Tx. It gets no more methods: tests may implement it.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Source says who learnt a final outcome.
type Source int

// The sources.
const (
	Performed Source = iota // this attempt made the effect happen
	LookedUp                // the provider was asked and knew it
	Checked                 // local rows already had it
	Resolved                // a person decided
	Skipped                 // nothing was sent: a newer event of the entity was applied. Result is the zero R
)

// Final is a final outcome, as Commit sees it.
type Final[J, R any] struct {
	Job        J
	Key        string // business key
	TaskID     int64  // settle.tasks.id
	Attempt    int    // the number of the attempt, or act of a person, that saves
	Result     R      // the zero R where there is none
	Refused    string // why it failed, in the provider's words or a person's; empty when it happened, and when it was skipped
	ExternalID string // the provider's id; empty where none is known
	Source     Source // who learnt the outcome
}

// Happened reports whether the effect is there: it was neither refused nor skipped as out of date.
func (f Final[J, R]) Happened() bool { return f.Refused == "" && f.Source != Skipped }
