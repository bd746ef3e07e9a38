package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// What a worker does that the lab plays by hand, with the calls that the engine makes.

// hand is what a worker that is played by hand has in his hands.
type hand struct {
	fence  idemstore.Fence
	answer reply
	err    error

	release func()        // lets a request arrive that is on its way
	came    chan struct{} // closed when its answer is there
}

// The lease policies of a completion.
const (
	strictly  = true
	leniently = false
)

// claimsTask claims the task, or takes it over.
func claimsTask(name string, lease time.Duration) act {
	return func(ctx context.Context, p *play) error {
		body := p.body(reportType)
		hash := sha256.Sum256(body)
		claimed, err := p.store.Claim(ctx, idemstore.Claim{
			Kind: p.kind, Key: p.key(), Token: uuid.New(), Payload: body, Hash: hash[:], HashAlgorithm: "lab",
			Provider: p.providerURL, ProviderKey: p.key(), Lease: lease, MaxAge: time.Hour, MaxFailures: 20,
		})
		if err != nil {
			return err
		}
		if f := claimed[0].Found; f != idemstore.Inserted && f != idemstore.Ask {
			return fmt.Errorf("claim of %s: found %s", name, f)
		}
		w := p.worker(name)
		w.hand = &hand{fence: claimed[0].Task.Fence}
		w.knows("holds", "attempt", fmt.Sprint(w.hand.fence.Attempt))
		return nil
	}
}

// armsTask confirms that a worker may send once more, as the engine does before every resend.
func armsTask(name string) act {
	return func(ctx context.Context, p *play) error {
		_, err := p.store.Arm(ctx, idemstore.Arm{Fence: p.worker(name).hand.fence, Lease: longLease, Keyed: true,
			KeyLifetime: time.Hour, Provider: p.providerURL, Reason: "lab"})
		return err
	}
}

// keyUse is the Idempotency-Key that a request carries.
type keyUse func(*play) string

func withKey(p *play) string  { return p.key() }
func withoutKey(*play) string { return "" }

// sends asks the provider for the report.
func sends(name string, key keyUse) act {
	return func(ctx context.Context, p *play) (err error) {
		w := p.worker(name)
		if w.hand.answer, err = p.post(ctx, key(p), p.body(reportType)); err != nil {
			return err
		}
		w.heard()
		return p.quiet(ctx)
	}
}

// heard is what a worker knows from the answer to its request.
func (w *worker) heard() {
	belief := "heard"
	if w.hand.answer.Replayed {
		belief = "heard_replayed"
	}
	w.knows(belief, "report", w.hand.answer.ReportID)
}

// asks looks up what became of the request of an attempt before.
func asks(name string) act {
	return func(ctx context.Context, p *play) (err error) {
		w := p.worker(name)
		if w.hand.answer, err = p.lookUp(ctx, p.key()); err != nil {
			return err
		}
		w.knows("asked", "report", w.hand.answer.ReportID)
		return p.quiet(ctx)
	}
}

// requestIsOnItsWay sends a request without a key that does not come to its effect before requestArrives.
func requestIsOnItsWay(name string) act {
	return func(ctx context.Context, p *play) error {
		reached, release := p.calls.hold(provider.Received)
		w := p.worker(name)
		came := make(chan struct{})
		w.hand.came, w.hand.release = came, release
		sending, stop := context.WithCancel(context.WithoutCancel(ctx))
		p.later(func() error { release(); stop(); <-came; return nil })
		go func() {
			defer close(came)
			w.hand.answer, w.hand.err = p.post(sending, "", p.body(reportType))
		}()
		w.knows("on_its_way")
		return p.receive(ctx, theRequest, reached)
	}
}

// requestArrives lets it.
func requestArrives(name string) act {
	return func(ctx context.Context, p *play) error {
		w := p.worker(name)
		w.hand.release()
		if err := p.receive(ctx, theAnswer, w.hand.came); err != nil {
			return err
		}
		if w.hand.err != nil {
			return w.hand.err
		}
		w.heard()
		return p.quiet(ctx)
	}
}

// leaseRunsOut waits until the lease of the task is over by the clock of the database.
func leaseRunsOut(ctx context.Context, p *play) error {
	return p.await(ctx, theLeaseEnd, func(ctx context.Context) (bool, error) {
		v, err := p.taskView(ctx)
		return err == nil && v != nil && v.Lease == expired, err
	})
}

// completes saves what a worker knows, under a lease policy. A refusal is an outcome, not an error.
func completes(name string, strict bool) act {
	return func(ctx context.Context, p *play) error {
		w := p.worker(name)
		_, err := p.store.Save(ctx, idemstore.Save{
			Fence: w.hand.fence, Kind: p.kind, Key: p.key(), Strict: strict, Status: idemstore.Finished, MayBeApplied: true,
			ExternalID: w.hand.answer.ReportID, Result: fmt.Appendf(nil, `{"report_id":%q}`, w.hand.answer.ReportID),
			ProviderStatus: w.hand.answer.status,
		})
		switch {
		case errors.Is(err, idemstore.ErrLost):
			p.completion = refused
			w.knows("lost")
		case err != nil:
			return err
		default:
			p.completion = saved
			w.knows("completed", "report", w.hand.answer.ReportID)
		}
		return nil
	}
}

// together sends two requests with one key so that both are at the provider at the same moment: the first has written its
// row and not committed, and the second waits in the database for that.
func together(ctx context.Context, p *play) error {
	a, b := p.worker("A"), p.worker("B")
	written, commit := p.calls.hold(provider.BeforeCommit)
	defer commit()
	first := p.inBackground(ctx, a)
	if err := p.receive(ctx, theRequest, written); err != nil {
		return err
	}
	second := p.inBackground(ctx, b)
	err := p.await(ctx, theRequest, func(ctx context.Context) (_ bool, err error) {
		select {
		case <-second:
			return true, nil // a provider that ignores keys makes nobody wait
		default:
			p.waited, err = p.someoneWaits(ctx)
			return p.waited, err
		}
	})
	commit()
	for _, came := range []<-chan struct{}{first, second} {
		if err == nil {
			err = p.receive(ctx, theAnswer, came)
		}
	}
	if err != nil {
		return err
	}
	if err := errors.Join(a.hand.err, b.hand.err); err != nil {
		return err
	}
	a.heard()
	b.heard()
	return p.quiet(ctx)
}

// inBackground sends a worker's request. The channel is closed when the answer is in its hands.
func (p *play) inBackground(ctx context.Context, w *worker) <-chan struct{} {
	w.hand = &hand{}
	came := make(chan struct{})
	p.later(func() error { <-came; return nil })
	go func() {
		defer close(came)
		w.hand.answer, w.hand.err = p.post(ctx, p.key(), p.body(reportType))
	}()
	return came
}

// waits looks for a session of this lab that waits for another transaction.
const waits = `select exists (select from pg_catalog.pg_stat_activity where application_name = $1 and wait_event_type = 'Lock')`

func (p *play) someoneWaits(ctx context.Context) (yes bool, err error) {
	err = p.pool.QueryRow(ctx, waits, p.application).Scan(&yes)
	return yes, err
}

// sendsOtherContent sends the same key for another report.
func sendsOtherContent(name string) act {
	return func(ctx context.Context, p *play) (err error) {
		w := p.worker(name)
		w.hand = &hand{}
		if w.hand.answer, err = p.post(ctx, p.key(), p.body("weekly")); err != nil {
			return err
		}
		w.knows("conflict", "status", fmt.Sprint(w.hand.answer.status), "error", w.hand.answer.Error)
		return p.quiet(ctx)
	}
}
