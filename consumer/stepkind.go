package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// StepKind declares resumable local work, such as an import: one record after the other, each in a transaction of its
// own together with the row that says it is done (in settle.steps), under the task's fence. A crash after 80 of 100 repeats
// none of the 80, whoever goes on; it costs one of Policy.MaxFailures, while a drain costs none. Name, Contract, Key, Steps,
// Step and Done are required.
//
// The whole batch is one message, so Config.MaxBody and the server's max_payload bound it. A batch that is larger is best
// cut into several jobs, each with a key of its own: they resume each by itself, and run at once. One job is one commit per
// record, five round trips of the database where Step needs two.
type StepKind[J, S, R any] struct {
	Name     string   // as Kind.Name
	Contract Contract // as Kind.Contract
	Policy   Policy   // as Kind.Policy; Deadline bounds each step, not the whole
	Content  Content  // as Kind.Content

	Key  func(J) (string, error) // as Kind.Key
	Refs func(J) Refs            // optional; as Kind.Refs

	// Steps takes the records out of the job, the same ones in the same order each time. Where one of them may be badly
	// written, let S be json.RawMessage and read it in Step, with ReadJob or by hand: what does not fit S refuses the whole job.
	Steps func(J) []S
	// Step writes the rows of record i, counted from 0, through tx, under the rules of LocalKind.Apply, and returns a word
	// for what it did ("imported", "stale"). An error rolls the record back. If it is about the record (the step's own
	// words, or a refusal of the database for what the rows say) the record is set aside with its reason and the others go
	// on. Made with NotSent, or of any other sort, it costs one failure of the task and is tried again later. A connection
	// that breaks is neither: the record is done again at once.
	Step func(ctx context.Context, tx pgx.Tx, a *Attempt[J], i int, record S) (outcome string, err error)
	// Done makes the result once every record is done or set aside, under the rules of LocalKind.Apply.
	Done func(ctx context.Context, tx pgx.Tx, a *Attempt[J], results []StepResult) (R, error)
}

// StepResult is what became of one record.
type StepResult = idemstore.StepResult

// SetAside is the outcome of a record that could not be done.
const SetAside = idemstore.SetAside

func (StepKind[J, S, R]) job(J)    {}
func (StepKind[J, S, R]) result(R) {}

// step does one record.
type step func(context.Context, pgx.Tx) (outcome string, err error)

// define erases the types of a step kind, or names what it lacks.
func (k StepKind[J, S, R]) define() (*definition, error) {
	err := missing(k.Name, map[string]bool{"Contract.Effect": k.Contract.Effect != "", "Key": k.Key != nil,
		"Steps": k.Steps != nil, "Step": k.Step != nil, "Done": k.Done != nil})
	if err != nil {
		return nil, err
	}
	d, err := LocalKind[J, R]{Name: k.Name, Contract: k.Contract, Policy: k.Policy, Content: k.Content, Key: k.Key, Refs: k.Refs,
		Apply: func(ctx context.Context, tx pgx.Tx, a *Attempt[J]) (R, error) {
			results, err := idemstore.StepsIn(ctx, tx, a.TaskID)
			if err != nil {
				var none R
				return none, err
			}
			return k.Done(ctx, tx, a, results)
		}}.define()
	if err != nil {
		return nil, err
	}
	d.steps = func(a *attempt) (out []step) {
		for i, record := range k.Steps(typed[J](a).Job) {
			out = append(out, func(ctx context.Context, tx pgx.Tx) (string, error) { return k.Step(ctx, tx, typed[J](a), i, record) })
		}
		return out
	}
	return d, nil
}
