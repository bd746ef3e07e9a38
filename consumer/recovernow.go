package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// RecoverOptions select the tasks of one recovery that a person starts, by their age: those created between NewerThan and
// OlderThan ago. NewerThan and Limit are required.
type RecoverOptions struct {
	OlderThan time.Duration // created at least so long ago; 0 or more
	NewerThan time.Duration // created at most so long ago; more than OlderThan
	Limit     int           // if more tasks match, nothing is done; at least 1

	DryRun bool   // only say what would happen
	Actor  string // who does it, for the audit; required unless DryRun
	Reason string // why, for the audit; required unless DryRun

	Matched func(n int) // told how many tasks match, before anything is done; may be nil
}

// Recovered is what a recovery did for one task, or would do.
type Recovered struct {
	Task    idemstore.Task // as it is now
	Outcome RecoverOutcome
	Message string // in plain words
}

// ErrTooMany: more tasks match than the limit allows. Nothing was done.
var ErrTooMany = errors.New("more tasks match than the limit allows")

// Recover runs one pass over the tasks of the engine's kinds that are not settled and were created within the window, each
// of them at most once, and tells report about each, one call at a time. Tasks that somebody holds, or that are not due, are
// skipped, and so is what a person has paused. Those that only budget or age has parked are asked about, unless that was done within the last hour.
//
// It is safe beside workers and other recoveries. It needs no JetStream, and blocks until all tasks have been told about.
// When ctx ends no further task is taken up, and those in hand are drained as by Run. With DryRun it reads and sends nothing,
// tells what would happen to each task at this moment, and may be called again; otherwise it is called once, instead of Run.
//
// Errors: ErrTooMany, wrong options, a wrong schema, a database that does not answer; in these nothing was done. That some
// tasks could not be settled is no error.
func (e *Engine) Recover(ctx context.Context, o RecoverOptions, report func(Recovered)) error {
	if err := o.check(); err != nil {
		return err
	}
	for _, check := range []func(context.Context) error{e.store.CheckExecMode, e.store.CheckSchema, e.readModes} {
		if err := check(ctx); err != nil {
			return fmt.Errorf("recover: %w", err)
		}
	}
	tasks, err := e.recoverable(ctx, o)
	switch {
	case err != nil:
		return fmt.Errorf("recover: %w", err)
	case len(tasks) > o.Limit:
		return fmt.Errorf("recover: %w: %d", ErrTooMany, o.Limit)
	}
	if o.Matched != nil {
		o.Matched(len(tasks))
	}
	if o.DryRun {
		e.foreseeAll(tasks, report)
		return nil
	}
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("recover: the engine runs, or ran, already")
	}
	if err := e.ownPrefixes(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return e.host(ctx, func(work context.Context) { e.recoverAll(ctx, work, o, tasks, report) }, e.countAtTheEnd)
}

func (o RecoverOptions) check() error {
	switch {
	case o.OlderThan < 0, o.NewerThan <= o.OlderThan:
		return fmt.Errorf("recover: OlderThan must be at least 0 and less than NewerThan, not %v and %v", o.OlderThan, o.NewerThan)
	case o.Limit < 1:
		return fmt.Errorf("recover: Limit must be at least 1, not %d", o.Limit)
	case !o.DryRun && (o.Actor == "" || o.Reason == ""):
		return errors.New("recover: Actor and Reason are required")
	}
	return nil
}

// recoverable lists what matches, up to one more than the limit.
func (e *Engine) recoverable(ctx context.Context, o RecoverOptions) ([]idemstore.Recoverable, error) {
	f := idemstore.RecoverableFilter{Asked: []string{}, OlderThan: o.OlderThan, Within: o.NewerThan, Limit: o.Limit + 1}
	for _, k := range e.kinds {
		f.Kinds = append(f.Kinds, k.name)
		if k.lookup != nil {
			f.Asked = append(f.Asked, k.name)
		}
	}
	return e.store.Recoverable(ctx, f)
}

// recoverAll takes up tasks, side by side within the slots of each kind, and reports each with its row as it is then.
func (e *Engine) recoverAll(ctx, work context.Context, o RecoverOptions, tasks []idemstore.Recoverable, report func(Recovered)) {
	var (
		kinds sync.WaitGroup
		mu    sync.Mutex // report is called by one at a time
	)
	for _, k := range e.kinds {
		p := e.newPass(k, taker{o.Actor, o.Reason}, cap(k.slots))
		p.then = func(t idemstore.Task, came taken) {
			r := e.recovered(ctx, t, came)
			mu.Lock()
			defer mu.Unlock()
			report(r)
		}
		kinds.Go(func() {
			defer p.end()
			for _, t := range tasks {
				if t.Kind == k.name {
					p.begin(ctx, chore{work, t.Task, (*delivery).takeUpOrAsk})
				}
			}
		})
	}
	kinds.Wait()
}

// takeUpOrAsk takes up a task, or asks about it if it is parked and nobody asks about it.
func (d *delivery) takeUpOrAsk(ctx context.Context, t idemstore.Task) taken {
	if t.Status != idemstore.NeedsReview {
		return d.takeUp(ctx, t)
	}
	mine, err := d.engine.store.TakeParked(ctx, idemstore.ParkedFilter{Kind: t.Kind, TaskID: t.TaskID, Again: parkedEvery, Limit: 1})
	switch {
	case err != nil:
		return taken{RecoverSkipped, "the database did not answer: " + errorText(err)}
	case len(mine) == 0:
		return taken{RecoverSkipped, "the provider was asked within the last hour"}
	}
	return d.askParked(ctx, mine[0])
}

// recovered is the report about a task, with its row as it is now.
func (e *Engine) recovered(ctx context.Context, t idemstore.Task, came taken) Recovered {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if now, err := e.store.FindByID(ctx, t.TaskID); err == nil {
		t = now
	}
	return Recovered{Task: t, Outcome: came.outcome, Message: came.message}
}

// foreseeAll tells what would happen to tasks.
func (e *Engine) foreseeAll(tasks []idemstore.Recoverable, report func(Recovered)) {
	for _, t := range tasks {
		for _, k := range e.kinds {
			if k.name == t.Kind {
				came := k.foresee(t)
				report(Recovered{Task: t.Task, Outcome: came.outcome, Message: came.message})
			}
		}
	}
}

// foresee is what a recovery would do for a task at this moment.
func (k *kind) foresee(t idemstore.Recoverable) taken {
	if !k.mayAsk() {
		return taken{RecoverSkipped, heldPaused}
	}
	if t.Status == idemstore.NeedsReview {
		if t.NextAttemptAt.After(t.Now) {
			return taken{RecoverSkipped, "parked; the provider was asked a short time ago, and is not again before " + atClock(t.NextAttemptAt)}
		}
		return taken{RecoverWouldAsk, "parked; the provider would be asked, and nothing sent"}
	}
	//nolint:exhaustive // a row that nobody looks at is not locked, and content is not compared
	switch decideClaim(k.claimFacts(t)) {
	case idemstore.Busy:
		return taken{RecoverSkipped, "an attempt holds it until " + atClock(*t.LeaseUntil)}
	case idemstore.NotDue:
		return taken{RecoverSkipped, "not due before " + atClock(t.NextAttemptAt)}
	case idemstore.Spent:
		return taken{RecoverWouldPark, "its budget or its age limit is used up; it would need a person"}
	case idemstore.Perform:
		if !k.mayPerform() {
			return taken{RecoverSkipped, heldAsking}
		}
		return taken{RecoverWouldPerform, "nothing of it can have been applied; it would be performed"}
	case idemstore.Ask:
		return k.foreseeAsk(t)
	}
	return taken{RecoverSkipped, "it is over"}
}

// foreseeAsk is for a task that may have been sent.
func (k *kind) foreseeAsk(t idemstore.Recoverable) taken {
	switch {
	case k.apply != nil:
		return taken{RecoverWouldPerform, "a job without a provider, which a crash undoes; it would be performed"}
	case k.lookup != nil:
		return taken{RecoverWouldAsk, "it may have been sent; the provider would be asked before anything else"}
	}
	young := t.FirstSentAt != nil && t.Provider == k.provider.Identity && t.Now.Sub(*t.FirstSentAt) < k.provider.usableKey(k.policy.Deadline)
	d := decideAsk(askFacts{knownID: or(t.ExternalID, t.EvidenceID) != "", keyed: !k.provider.Unkeyed, young: young})
	if d.act == sendIt {
		return taken{RecoverWouldPerform, "the provider cannot be asked; it would be sent again under its key"}
	}
	return taken{RecoverWouldPark, "the provider cannot be asked and nothing protects a resend; it would need a person"}
}

// claimFacts are what a claim would see of a row now.
func (k *kind) claimFacts(t idemstore.Recoverable) claimFacts {
	f := claimFacts{exists: true, recovery: true, status: t.Status, failures: t.Failures, maxFailures: k.policy.MaxFailures,
		early: t.NextAttemptAt.After(t.Now), tooOld: !t.GiveUpAt.After(t.Now),
		sending: t.Sending, unsure: t.Unsure, firstSent: t.FirstSentAt != nil}
	switch lease := t.LeaseUntil; {
	case lease == nil:
	case !lease.After(t.Now):
		f.lease = leaseExpired
	case lease.After(t.Now.Add(24 * time.Hour)):
		f.lease = leaseAbsurd
	default:
		f.lease = leaseLive
	}
	return f
}

// atClock is a time of the database for people.
func atClock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
