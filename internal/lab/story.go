package lab

import "context"

// story is one lab.
type story struct {
	name  string
	steps []step
	// breaks is the case in which the protection that the steps show is not enough.
	breaks []step
	// byHand: the lab calls store and provider itself, and there is no message and no engine.
	byHand bool
	// tasks and breakTasks are how many task ids steps and breaks need, if more than one.
	tasks, breakTasks int
}

// step is one thing that happens, and what must be true when it has. Its text has the id LAB.STEP, or LAB.break.STEP.
type step struct {
	id   string
	does act
	then claims
}

// act makes something happen and returns when it has.
type act func(context.Context, *play) error

// inTurn is several acts, one after the other.
func inTurn(acts ...act) act {
	return func(ctx context.Context, p *play) error {
		for _, do := range acts {
			if err := do(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// stories are all labs, in the order in which they are best read.
var stories = []story{duplicate, idempotent, timeout, concurrent, lease, leaseStale, unknown, retention}
