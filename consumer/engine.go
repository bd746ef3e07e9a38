package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// Engine takes jobs of its kinds from JetStream. Make it with New, run it with Run, once.
type Engine struct {
	config  Config
	pool    *pgxpool.Pool
	store   *idemstore.Store
	js      jetstream.JetStream
	peer    *peer // of js
	kinds   []*kind
	remotes []*remote
	log     *slog.Logger
	tracer  trace.Tracer
	meters  *meters

	alarm      *alarm
	newClaims  *group[idemstore.Claim, idemstore.Claimed] // of keys that are likely to be new
	claims     *group[idemstore.Claim, idemstore.Claimed]
	saves      *group[idemstore.Save, idemstore.Saved]
	guards     *group[idemstore.Guard, idemstore.Guarded]
	relay      *relay
	held       holdings
	database   health
	renewals   health // of leases
	shared     *shared
	deliveries sync.WaitGroup // from receive to settle
	handlers   sync.WaitGroup // handler calls; one that ignores its context outlives its delivery
	running    atomic.Bool
	crew       atomic.Pointer[crew] // while it works

	givenUpEvery time.Duration
}

// kind is a definition while an engine serves it.
type kind struct {
	*definition
	slots    chan struct{}
	live     atomic.Int64 // deliveries in hand
	ackWait  atomic.Int64 // nanoseconds, as the server has it
	consumer atomic.Pointer[jetstream.Consumer]
	identity identity
	bound    atomic.Bool                       // the consumer was there at the last pull
	looked   atomic.Int64                      // when recovery last chose among its tasks: Unix nanoseconds, 0 for never
	ungated  atomic.Bool                       // a result came without a request at the send gate: it may not know it
	control  atomic.Pointer[idemstore.Control] // nil: nobody ever asked for anything
	remote   *remote
	locals   *group[*first, applied] // first deliveries of a local kind
	meters   *kindMeters
	tally    tally

	spanOptions []trace.SpanStartOption // of its deliveries

	unsureAfter uint64 // where the last look for given-up messages ended; of watchGivenUp alone
}

func (k *kind) setAckWait(d time.Duration) { k.ackWait.Store(int64(d)) }
func (k *kind) breakerIsOpen() bool        { return k.remote.breaker != nil && k.remote.breaker.isOpen.Load() }
func (k *kind) ackWaitNow() time.Duration  { return time.Duration(k.ackWait.Load()) }

// New checks a configuration and the kinds against each other. It connects to nothing; the pool and js stay the
// caller's. js may be nil for an engine that is only to Recover. The error names every field and kind that is wrong.
func New(pool *pgxpool.Pool, js jetstream.JetStream, c Config, kinds ...Definition) (*Engine, error) {
	c = c.withDefaults()
	defs, err := defineAll(c, kinds)
	if err := errors.Join(c.check(), err); err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("consumer: New needs a pool")
	}
	e := &Engine{config: c, pool: pool, store: idemstore.New(pool, c.Lease), js: js, log: textualLog(c.Logger),
		tracer: c.TracerProvider.Tracer(scopeName), meters: newMeters(c.MeterProvider), givenUpEvery: givenUpEvery}
	e.peer = &peer{}
	if js != nil {
		e.peer.conn = js.Conn()
	}
	e.database.log = e.log
	if e.relay, err = newRelay(e); err != nil {
		return nil, fmt.Errorf("consumer: a publisher for the outbox: %w", err)
	}
	e.meters.ofEngine()
	e.shared = &shared{store: e.store, js: js, log: e.log}
	e.newGroups()
	for _, d := range defs {
		k := &kind{definition: d, slots: make(chan struct{}, c.Slots), meters: e.meters.ofKind(d.name),
			spanOptions: deliveryOptions(d.name)}
		k.setAckWait(c.AckWait)
		k.locals = e.newLocals(k)
		e.kinds = append(e.kinds, k)
		e.shared.kinds = append(e.shared.kinds, k.name)
	}
	e.meters.count()
	if err := e.meters.err(); err != nil {
		c.Logger.Warn("some metrics are not as they should be", "error", err)
	}
	e.alarm = newAlarm()
	e.addRemotes()
	e.limitRemotes()
	return e, nil
}

// Run serves until ctx ends, and then drains: it stops taking messages, gives back what has sent nothing, waits up
// to Config.DrainTimeout for the rest, saves and acks, and returns: nil, or an error if a delivery or a handler did not end, at
// latest DrainTimeout and 25 seconds after ctx. It returns early with an error only where
// it cannot serve at all: a wrong schema (idemstore.ErrSchema), a pooler that does not keep the pool's prepared statements
// (idemstore.ErrExecMode), clashing key prefixes (idemstore.ErrPrefixTaken), key rows that would go too early (ErrProofAge), a
// consumer whose settings are unsafe. A database or broker that is away is waited for. Run blocks and may be called once.
func (e *Engine) Run(ctx context.Context) error {
	if e.js == nil {
		return errors.New("consumer: Run needs a JetStream")
	}
	if !e.running.CompareAndSwap(false, true) {
		return errors.New("consumer: Run was called twice")
	}
	defer e.observe()()
	if err := e.prepare(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return e.host(ctx, func(work context.Context) {
		var takers sync.WaitGroup
		if !e.meters.off {
			takers.Go(func() { e.shared.measure(ctx) })
		}
		for _, k := range e.kinds {
			takers.Go(func() { e.take(ctx, work, k) })
			takers.Go(func() { e.watchGivenUp(ctx, work, k) })
			if !e.config.NoRecovery {
				takers.Go(func() { e.keepRecovering(ctx, work, k) })
			}
		}
		e.log.InfoContext(ctx, "serving", "kinds", len(e.kinds), "slots", e.config.Slots)
		takers.Wait()
	}, e.keepTelling)
}

// host keeps the leases of what take takes up. When take returns, which it has to do soon after ctx has ended, what is in
// hand then is drained. What is taken up runs under work, which outlives ctx by the grace time. alerts sees to what was
// raised until all of that is over.
func (e *Engine) host(ctx context.Context, take, alerts func(context.Context)) error {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	var heart sync.WaitGroup
	heart.Go(func() { e.heartbeat(beating) })
	if e.js != nil { // else what is emitted waits for a worker
		heart.Go(func() { e.relay.run(beating) })
	}
	for _, keep := range []func(context.Context){e.attend, e.checkIn, e.keepTally, alerts} {
		heart.Go(func() { keep(beating) })
	}
	c := newCrew()
	e.crew.Store(c)
	defer func() { e.crew.Store(nil); c.dismiss() }()
	taken := make(chan struct{})
	go func() { defer close(taken); take(work) }()
	select {
	case <-taken:
	case <-ctx.Done():
		e.log.InfoContext(ctx, "draining", "jobs", e.held.count(), "grace", e.config.DrainTimeout)
	}
	err := e.drain(work, stop, func() { <-taken; e.deliveries.Wait(); e.waitForGroups() })
	stopBeating()
	heart.Wait()
	return err
}

// prepare makes sure of exec mode, schema, prefixes, streams, the age of key rows and consumers. It waits for servers that are away.
func (e *Engine) prepare(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"pooler", e.store.CheckExecMode}, // first: any other statement may be the one that fails
		{"schema", e.store.CheckSchema},
		{"key prefixes", e.ownPrefixes},
		{"streams", func(ctx context.Context) error { return EnsureStreams(ctx, e.js, e.config) }},
		{"proof age", e.checkProofAge},
		{"consumers", e.bindAll},
		{"modes", e.readModes},
	}
	for _, s := range steps {
		if err := e.insist(ctx, s.what, s.do); err != nil {
			return err
		}
	}
	return nil
}

// insist runs a step until it succeeds or fails for good. It returns nil when ctx ends.
func (e *Engine) insist(ctx context.Context, what string, do func(context.Context) error) error {
	for n := 0; ctx.Err() == nil; n++ {
		err := do(ctx)
		var fatal *fatalError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, idemstore.ErrSchema), errors.Is(err, idemstore.ErrExecMode), errors.As(err, &fatal):
			return fmt.Errorf("%s: %w", what, err)
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is no failure
		}
		wait := e.config.Policy.delay(waitFailures, counts{failures: min(n, 5)})
		e.log.WarnContext(ctx, "not ready; waiting", "what", what, "error", err, "again_in", wait)
		select {
		case <-ctx.Done():
		case <-e.after(wait):
		}
	}
	return nil
}

// fatalError is a finding that waiting does not mend.
type fatalError struct{ error }

// Unwrap gives the finding.
func (e *fatalError) Unwrap() error { return e.error }

func (e *Engine) ownPrefixes(ctx context.Context) error {
	for _, k := range e.kinds {
		if k.provider.KeyPrefix == "" {
			continue
		}
		err := e.store.OwnPrefix(ctx, idemstore.Prefix{Provider: k.provider.Identity, Prefix: k.provider.KeyPrefix, Kind: k.name})
		if errors.Is(err, idemstore.ErrPrefixTaken) {
			return &fatalError{err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drain ends the work in hand, in this order: nothing new is sent, what is under way gets its grace, then it is
// cut short. Saves and acks have limits of their own beyond that. finish waits for the work.
func (e *Engine) drain(work context.Context, stop context.CancelCauseFunc, finish func()) error {
	e.held.drain()
	finished := make(chan struct{})
	go func() { finish(); close(finished) }()
	if !e.ends(finished, e.config.DrainTimeout) {
		e.held.shutAll(ErrDraining)
		stop(ErrDraining)
		if !e.ends(finished, pullWait+handlerGrace+saveTimeout+ackTimeout) {
			return errors.New("drain: some deliveries did not end; their messages come again")
		}
	}
	returned := make(chan struct{})
	go func() { e.handlers.Wait(); close(returned) }()
	if !e.ends(returned, handlerGrace) {
		return errors.New("drain: a handler ignores its context and is left running; it can no longer send")
	}
	return nil
}

// ends reports whether c is closed within d.
func (e *Engine) ends(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	case <-e.after(d):
		return false
	}
}

// after is time.After.
func (e *Engine) after(d time.Duration) <-chan time.Time { return time.After(d) }

// Ready returns nil while the engine serves: connected to the broker, all consumers bound, the database answering, leases
// renewed. The error says what is missing. It does not block.
func (e *Engine) Ready() error {
	if !e.running.Load() {
		return errors.New("not running")
	}
	if s := e.js.Conn().Status(); s != nats.CONNECTED {
		return fmt.Errorf("no connection to the broker: %s", s)
	}
	for _, k := range e.kinds {
		if !k.bound.Load() {
			return fmt.Errorf("consumer of kind %s is not bound", k.name)
		}
	}
	return errors.Join(e.database.state(), e.renewals.state())
}
