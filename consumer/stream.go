package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// EnsureStreams creates the streams JOBS and EVENTS where they are missing. Existing ones are never updated: their
// settings are the operator's, and are checked when consumers are bound. One with fewer replicas than Config.Replicas is
// only warned of. It blocks for a few round trips.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, c Config) error {
	c = c.withDefaults()
	streams := []jetstream.StreamConfig{
		{Name: jobStream, Subjects: []string{jobSubjects + ">"}, Retention: jetstream.WorkQueuePolicy,
			Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, Replicas: c.Replicas},
		{Name: eventStream, Subjects: []string{eventSubjects + ">"}, Retention: jetstream.LimitsPolicy,
			Storage: jetstream.FileStorage, MaxAge: 7 * 24 * time.Hour, Duplicates: 2 * time.Minute, Replicas: c.Replicas},
	}
	for _, s := range streams {
		there, err := js.Stream(ctx, s.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			err = createStream(ctx, js, s)
		case err == nil && there.CachedInfo().Config.Replicas < s.Replicas:
			c.Logger.WarnContext(ctx, "stream has fewer replicas than were asked for; it is left as it is",
				"stream", s.Name, "replicas", there.CachedInfo().Config.Replicas, "asked", s.Replicas)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
	}
	return nil
}

func createStream(ctx context.Context, js jetstream.JetStream, s jetstream.StreamConfig) error {
	_, err := js.CreateStream(ctx, s)
	switch {
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return nil // another process was faster, with settings of its own
	case err != nil:
		return fmt.Errorf("create with %d replicas: %w", s.Replicas, err)
	}
	return nil
}

// EnsureConsumers creates the durable consumers of kinds where they are missing, and the streams. With it, workers need no
// permission to create anything. Existing consumers are left as they are, and checked when a worker binds to them. It
// blocks for a few round trips.
func EnsureConsumers(ctx context.Context, js jetstream.JetStream, c Config, kinds ...Definition) error {
	c = c.withDefaults()
	defs, err := defineAll(c, kinds)
	if err := errors.Join(c.check(), err); err != nil {
		return err
	}
	if err := EnsureStreams(ctx, js, c); err != nil {
		return err
	}
	e := &Engine{config: c, js: js, log: c.Logger}
	for _, d := range defs {
		if _, err := e.findOrCreate(ctx, &kind{definition: d}); err != nil {
			return fmt.Errorf("consumer of kind %s: %w", d.name, err)
		}
	}
	return nil
}

func (e *Engine) bindAll(ctx context.Context) error {
	for _, k := range e.kinds {
		if _, err := e.bind(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// bind finds the durable consumer of a kind, or makes it, and reads its effective settings back: they, not the
// configured ones, drive heartbeat and delays. While bound it costs nothing.
func (e *Engine) bind(ctx context.Context, k *kind) (jetstream.Consumer, error) {
	if cons := k.consumer.Load(); cons != nil && k.bound.Load() {
		return *cons, nil
	}
	if k.consumer.Load() != nil {
		e.rest(ctx, beforeRebind)
	}
	asked := now()
	cons, err := e.findOrCreate(ctx, k)
	if err != nil {
		e.pauseAfter(ctx, k, err)
		return nil, fmt.Errorf("consumer of kind %s: %w", k.name, err)
	}
	if err := e.adopt(ctx, k, cons.CachedInfo().Config); err != nil {
		e.pauseAfter(ctx, k, err)
		return nil, err
	}
	k.consumer.Store(&cons)
	k.identity.set(born(cons), asked)
	k.bound.Store(true)
	return cons, nil
}

// identity tells the consumer that a kind is bound to from others of its name. Pulls, acks and naks carry the name alone.
type identity struct {
	born atomic.Int64 // its time of creation, in Unix nanoseconds; 0: it is gone

	known  atomic.Pointer[time.Time] // when it was last seen
	asking sync.Mutex
}

// fresh reports whether the identity need not be asked for.
func (i *identity) fresh() bool {
	known := i.known.Load()
	return known != nil && now().Sub(*known) < identityLasts
}

func (i *identity) set(born int64, asked time.Time) {
	i.asking.Lock()
	defer i.asking.Unlock()
	i.note(born, asked)
}

// note takes an answer to what was asked at a time: it may have been long on its way.
func (i *identity) note(born int64, asked time.Time) {
	i.born.Store(born)
	i.known.Store(&asked)
}

// identityLasts is how long the broker is not asked again. In a stream that was made anew within that time, with a job under
// the sequence of the one in hand, an ack would still hit that job.
const identityLasts = time.Second

// identify makes sure that the kind's identity is no older than identityLasts. A pull that is open when the consumer goes
// hears of it; where all slots are taken none is.
func (e *Engine) identify(ctx context.Context, k *kind) error {
	i := &k.identity
	if i.fresh() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	i.asking.Lock()
	defer i.asking.Unlock()
	if i.fresh() { // another asked meanwhile
		return nil
	}
	asked := now()
	cons, err := e.js.Consumer(ctx, jobStream, consumerName(k.name))
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound):
		k.bound.Store(false)
		i.note(0, asked)
	case err != nil:
		return fmt.Errorf("look at consumer of kind %s: %w", k.name, err)
	default:
		k.bound.CompareAndSwap(true, born(cons) == i.born.Load())
		i.note(born(cons), asked)
	}
	return nil
}

// born tells consumers of one name apart.
func born(c jetstream.Consumer) int64 { return c.CachedInfo().Created.UnixNano() }

func (e *Engine) findOrCreate(ctx context.Context, k *kind) (jetstream.Consumer, error) {
	name := consumerName(k.name)
	cons, err := e.js.Consumer(ctx, jobStream, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		if err := EnsureStreams(ctx, e.js, e.config); err != nil {
			return nil, err
		}
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return cons, err
	}
	e.log.InfoContext(ctx, "creating consumer", "kind", k.name, "consumer", name)
	// No BackOff: it would replace AckWait and bend the delays of naks. No MaxDeliver: a message that is given up
	// by the broker is invisible; stopping is decided from the row. As many replicas as the stream has: it may be an
	// existing one, and more than that the server refuses.
	return e.js.CreateConsumer(ctx, jobStream, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: subject(k.name), AckPolicy: jetstream.AckExplicitPolicy, AckWait: e.config.AckWait,
		MaxDeliver: -1, MaxAckPending: e.config.MaxAckPending,
	})
}

// adopt checks what the server really does. What breaks safety is fatal; the rest is said once.
func (e *Engine) adopt(ctx context.Context, k *kind, c jetstream.ConsumerConfig) error {
	for _, f := range CheckConsumer(e.config, k.name, c) {
		if f.Unsafe {
			return &fatalError{fmt.Errorf("consumer %s of kind %s %s", c.Durable, k.name, f.What)}
		}
		e.log.WarnContext(ctx, "consumer is not as it should be", "kind", k.name, "setting", f.Setting, "found", f.Found, "wanted", f.Wanted,
			"what", f.What, "do", f.Do)
	}
	k.setAckWait(c.AckWait)
	return nil
}

// beforeRebind lets a server finish the deletion of a consumer. One that is made again within milliseconds was seen to
// come back with the state of the deleted one (nats-server 2.15.2): messages that it had delivered then count as on
// their way, and come only after an AckWait.
const beforeRebind = 500 * time.Millisecond

// pauseAfter keeps a failing bind from spinning.
func (e *Engine) pauseAfter(ctx context.Context, k *kind, err error) {
	if ctx.Err() != nil {
		return
	}
	e.log.WarnContext(ctx, "consumer not bound", "kind", k.name, "error", err)
	e.rest(ctx, time.Second)
}

// rest waits for d, or until ctx ends.
func (e *Engine) rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-e.after(d):
	}
}
