package admin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// ActsConfig is what acts are done with: the parts that the commands use, too.
type ActsConfig struct {
	// Store and Operator are required. The Operator has the kinds and the settings of the workers.
	Store    *idemstore.Store
	Operator *consumer.Operator
	// Republish publishes a refused message once more (consumer.Republish). Nil: the screen is not connected to NATS.
	Republish func(ctx context.Context, refusal int64, p consumer.ActOptions) (consumer.Republication, error)
	// Recover runs one recovery of a kind, or of all kinds if it is empty, on an engine of its own (Engine.Recover). Required.
	Recover func(ctx context.Context, kind string, o consumer.RecoverOptions, report func(consumer.Recovered)) error
	// Patience is how long a request waits for what it asked for before it answers that it is still being done; 5 s.
	Patience time.Duration
	// Limit is how long one act may take, recoveries excepted; 2 min. It is to be more than twice the longest deadline of a kind.
	Limit time.Duration
	// Logger is told what goes wrong; nil: nobody is.
	Logger *slog.Logger
}

// Acts does what operators ask of a screen. An act is begun or it is not; once begun it goes on to its end, whatever
// becomes of the browser, and what came of it is written to settle.presses. A form that is sent again, to this process or
// to another one, is the same act.
//
// It is safe for concurrent use. Close waits for what is under way.
type Acts struct {
	config  ActsConfig
	life    context.Context
	end     context.CancelFunc
	working sync.WaitGroup // grows under mu, and only while not closed

	mu     sync.Mutex
	closed bool
	runs   map[uuid.UUID]*run
}

// mostRuns bounds the acts that are under way at once.
const mostRuns = 100

const (
	defaultPatience = 5 * time.Second
	defaultLimit    = 2 * time.Minute
	noteLimit       = 15 * time.Second // for writing down what came of an act
)

// NewActs checks its parts. The caller closes it after the last request.
func NewActs(c ActsConfig) (*Acts, error) {
	if c.Store == nil || c.Operator == nil || c.Recover == nil {
		return nil, errors.New("no Store, Operator or Recover")
	}
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	if c.Limit <= 0 {
		c.Limit = defaultLimit
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Acts{config: c, runs: map[uuid.UUID]*run{}}
	a.life, a.end = context.WithCancel(context.Background())
	return a, nil
}

// Close begins nothing any more and waits for what is under way. When ctx ends it is cut short: what waits for a provider
// gives up, what is being saved is saved. Closing again does nothing.
func (a *Acts) Close(ctx context.Context) {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	stop := context.AfterFunc(ctx, a.end)
	defer stop()
	a.working.Wait()
	a.end()
}

// ending is what came of an act.
type ending struct {
	outcome string
	message string // in plain words
}

// The outcomes that the screen adds to those of package consumer.
const (
	outcomeRunning = "running" // not over yet
	outcomeFailed  = "failed"  // nobody knows, or only a part was done
)

// job does one act.
type job func(context.Context) ending

// run is an act that is under way.
type run struct {
	asked   idemstore.Pressed
	done    chan struct{} // closed when kept and err are there
	kept    idemstore.Pressed
	refused error // it was not begun
}

// press does an act unless its form was sent before, and waits for it as long as a request may. Where it takes longer the
// press that is returned has no outcome. An error means that nothing was begun.
func (a *Acts) press(ctx context.Context, p idemstore.Pressed, do job, limit time.Duration) (idemstore.Pressed, error) {
	if err := ctx.Err(); err != nil {
		return p, err
	}
	r, err := a.join(p, do, limit)
	if err != nil {
		return p, err
	}
	patience := time.NewTimer(a.config.Patience)
	defer patience.Stop()
	select {
	case <-r.done:
	case <-patience.C:
		return p, nil
	case <-ctx.Done():
		return p, ctx.Err()
	}
	switch {
	case r.refused != nil:
		return p, r.refused
	case !bytes.Equal(r.kept.Digest, p.Digest):
		return p, conflict(formUsed)
	}
	return r.kept, nil
}

// join gives the run of a form, which it begins if there is none.
func (a *Acts) join(p idemstore.Pressed, do job, limit time.Duration) (*run, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch r := a.runs[p.ID]; {
	case r != nil && bytes.Equal(r.asked.Digest, p.Digest):
		return r, nil
	case r != nil:
		return nil, conflict(formUsed)
	case a.closed:
		return nil, unavailable(actsClosed)
	case len(a.runs) >= mostRuns:
		return nil, unavailable(actsFull)
	}
	r := &run{asked: p, done: make(chan struct{})}
	a.runs[p.ID] = r
	a.working.Go(func() { a.run(r, p, do, limit) })
	return r, nil
}

// running finds an act that is under way here, be it written down or not.
func (a *Acts) running(id uuid.UUID) (asked idemstore.Pressed, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, yes := a.runs[id]
	if yes {
		asked = r.asked
	}
	return asked, yes
}

// run does an act between the two lines about it.
func (a *Acts) run(r *run, p idemstore.Pressed, do job, limit time.Duration) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.runs, p.ID)
		close(r.done)
	}()
	ctx := a.life
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	kept, mine, err := a.config.Store.BeginPress(ctx, p)
	if err != nil {
		a.config.Logger.ErrorContext(ctx, "act not begun", "act", p.Act, "place", p.Place, "error", err)
		r.refused = unavailable(notBegun)
		return
	}
	if r.kept = kept; !mine {
		return
	}
	end := do(ctx)
	a.config.Logger.InfoContext(ctx, "act", "act", p.Act, "place", p.Place, "actor", p.Actor, "outcome", end.outcome)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteLimit)
	defer cancel()
	if r.kept, err = a.config.Store.EndPress(ctx, p.ID, end.outcome, end.message); err != nil {
		a.config.Logger.ErrorContext(ctx, "what came of an act is not noted", "act", p.Act, "place", p.Place, "error", err)
		r.kept = kept
		r.kept.Outcome, r.kept.Message = end.outcome, end.message
	}
}

// failed is the ending of an act of which nobody knows whether it was done, or that could not be done as it was asked.
func (a *Acts) failed(ctx context.Context, err error) ending {
	switch {
	case errors.Is(err, consumer.ErrInput):
		return ending{string(consumer.OutcomeRefused), sentence(strings.Replace(err.Error(), consumer.ErrInput.Error()+": ", "", 1))}
	case errors.Is(err, idemstore.ErrNotFound):
		return ending{string(consumer.OutcomeRefused), noSuchThing}
	}
	a.config.Logger.ErrorContext(ctx, "act failed", "error", err)
	return ending{outcomeFailed, notKnownDone}
}

func conflict(text string) error    { return &refused{http.StatusConflict, text} }
func unavailable(text string) error { return &refused{http.StatusServiceUnavailable, text} }
