package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/settlemq/settle/idemstore"
)

// Bridge makes jobs of CloudEvents that services publish to a stream of their own, on subjects of their own: the type of
// an event says the kind, its data is the body. The services need not know of it.
//
// Each event is published to JOBS as it came, under a message id made of source, id, kind and body, and acked once JOBS has
// confirmed it. A crash in between publishes it again, which the stream drops within its window and the key of the job
// after it. So an event is never lost and has at most one task, however often it comes.
//
// An event that has no kind is left to others: see BridgeConfig.KeepUnmapped. One that cannot be read is kept as a refusal
// (settle.refusals, with the stream, sequence and subject that it came from), and so is one whose data is no job of its
// kind, by the worker that gets it.
type Bridge struct {
	config BridgeConfig
	js     jetstream.JetStream
	// publisher has the caller's connection and limits of its own, as the relay's: a confirmation that never comes is
	// forgotten in time.
	publisher jetstream.JetStream
	store     *idemstore.Store
	log       *slog.Logger
	kinds     map[string]string // by type
	longest   time.Duration     // nak of any kind

	places                      chan struct{} // for messages under way
	published, refused, skipped *counter
	meters                      *meters
	unready                     atomic.Pointer[error] // why no events are taken; nil: they are

	mu   sync.Mutex
	told map[string]bool // types without a kind that the log has named
}

// BridgeConfig says which events become which jobs. Stream and Kinds are required.
type BridgeConfig struct {
	Stream   string                // where the events are; it has to exist
	Subjects []string              // only those; all that the stream has
	Kinds    map[string]Definition // by the type of the event: several types may have one kind

	// Durable is the name of the consumer, "settle". Processes with the same one share the work.
	Durable string
	// Since is the time from which events are taken, when the consumer is made; zero is all that the stream still holds.
	Since time.Time
	// KeepUnmapped keeps events whose type has no kind as refusals (unknown_kind). Otherwise they are counted and acked,
	// which leaves them to the other consumers of the stream. In a work queue an ack removes the message, so there they
	// are kept in any case.
	KeepUnmapped bool

	// ProofRetention and ReplayHorizon are those of the workers (Config). Where key rows go, a consumer that is missing is not
	// made anew if it would begin with events of that age: nothing remembers whether they were passed on. 0: rows stay; 72 h.
	ProofRetention, ReplayHorizon time.Duration

	MaxBody       int                  // largest body of a structured event in bytes; 256 KiB
	Logger        *slog.Logger         // slog.Default()
	MeterProvider metric.MeterProvider // of Metrics; none
}

// BridgeCounts are what became of the events that a bridge has taken so far. One that comes again is counted again.
type BridgeCounts struct {
	Published int64 // confirmed by JOBS
	Refused   int64 // kept as refusals
	Unmapped  int64 // left to others
}

// Bounds of a bridge.
const (
	bridgeAhead   = 256              // messages under way
	bridgeAckWait = 30 * time.Second // more than a confirmation and a refusal take together
	bridgeAgain   = time.Second      // until a message that could not be passed on comes again
	bridgeTold    = 100              // types without a kind that the log names
)

// NewBridge checks a configuration, naming what is wrong. It does no I/O. Of js only publishing, and reading the stream of
// the events, is needed; pool keeps refusals. Both stay the caller's.
func NewBridge(pool *pgxpool.Pool, js jetstream.JetStream, c BridgeConfig) (*Bridge, error) {
	defaults := Config{ReplayHorizon: c.ReplayHorizon}.withDefaults()
	c.Durable, c.MaxBody, c.ReplayHorizon = or(c.Durable, "settle"), or(c.MaxBody, maxBody), defaults.ReplayHorizon
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = noop.NewMeterProvider()
	}
	b := &Bridge{config: c, js: js, store: idemstore.New(pool, 0), log: textualLog(c.Logger).With("stream", c.Stream, "consumer", c.Durable),
		kinds: map[string]string{}, places: make(chan struct{}, bridgeAhead), told: map[string]bool{}, meters: newMeters(c.MeterProvider)}
	b.interrupted(errors.New("not running"))
	b.published = b.meters.counter(metricBridge, "published")
	b.refused = b.meters.counter(metricBridge, "refused")
	b.skipped = b.meters.counter(metricBridge, "unmapped")
	b.meters.count()
	var errs []error
	switch c.Stream {
	case "":
		errs = append(errs, errors.New("bridge: Stream is missing"))
	case jobStream:
		errs = append(errs, fmt.Errorf("bridge: Stream is %s, where its jobs go; workers read events there by themselves", jobStream))
	}
	if len(c.Kinds) == 0 {
		errs = append(errs, errors.New("bridge: Kinds is empty: it says which type becomes which kind"))
	}
	for _, eventType := range slices.Sorted(maps.Keys(c.Kinds)) {
		d, err := c.Kinds[eventType].define()
		if err == nil {
			err = d.complete(defaults)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("bridge: type %q: %w", eventType, err))
			continue
		}
		b.kinds[eventType] = d.name
		b.longest = max(b.longest, d.policy.longestDelay(d.provider))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var err error
	b.publisher, err = newPublisher(js)
	return b, err
}

// Counts is what it has done so far. It may be called at any time.
func (b *Bridge) Counts() BridgeCounts {
	return BridgeCounts{Published: b.published.n.Load(), Refused: b.refused.n.Load(), Unmapped: b.skipped.n.Load()}
}

// Ready returns nil while the bridge takes events: connected to the broker, with its stream, its consumer and JOBS found. The
// error says what is missing. It does not block.
func (b *Bridge) Ready() error {
	if s := b.js.Conn().Status(); s != nats.CONNECTED {
		return fmt.Errorf("no connection to the broker: %s", s)
	}
	if why := b.unready.Load(); why != nil {
		return *why
	}
	return nil
}

func (b *Bridge) interrupted(why error) { b.unready.Store(&why) }

// Run passes events on until ctx ends, then finishes what it has taken, which may last some seconds. It waits for servers, for
// the stream, and for JOBS, where they are missing, now and later. It returns nil at the end of ctx, and an error only for a
// consumer that exists with settings under which events would be lost or foreign. Run may be called once.
func (b *Bridge) Run(ctx context.Context) error {
	defer b.publisher.CleanupPublisher()
	for ctx.Err() == nil {
		err := b.serve(ctx)
		b.interrupted(cmp.Or(err, errors.New("stopped")))
		var fatal *fatalError
		switch {
		case errors.As(err, &fatal):
			return err
		case err != nil && ctx.Err() == nil:
			b.log.WarnContext(ctx, "bridge interrupted; it goes on as soon as it can", "error", err)
			b.rest(ctx)
		}
	}
	did := b.Counts()
	b.log.InfoContext(ctx, "bridge stopped", "published", did.Published, "refused", did.Refused, "unmapped", did.Unmapped)
	return nil
}

// rest waits a second, or until ctx ends.
func (b *Bridge) rest(ctx context.Context) {
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// serve takes events from the consumer until ctx ends or the broker fails, and waits for all that it has begun.
func (b *Bridge) serve(ctx context.Context) error {
	cons, keep, err := b.bind(ctx)
	if err != nil {
		return err
	}
	messages, err := cons.Messages(jetstream.PullMaxMessages(bridgeAhead))
	if err != nil {
		return fmt.Errorf("bridge: take events: %w", err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Drain)()
	var begun sync.WaitGroup
	defer begun.Wait()
	b.unready.Store(nil)
	b.log.InfoContext(ctx, "bridge serves", "types", len(b.kinds))
	for {
		msg, err := messages.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil
		case err != nil:
			return fmt.Errorf("bridge: take events: %w", err)
		}
		b.places <- struct{}{}
		p := b.begin(msg, keep) // in the order of the stream
		begun.Go(func() {
			defer func() { <-b.places }()
			b.finish(context.WithoutCancel(ctx), p)
		})
	}
}

// bind finds the consumer, or makes it. keep is whether events without a kind are kept as refusals.
func (b *Bridge) bind(ctx context.Context) (cons jetstream.Consumer, keep bool, err error) {
	stream, err := b.js.Stream(ctx, b.config.Stream)
	if err != nil {
		return nil, false, fmt.Errorf("bridge: stream %s: %w", b.config.Stream, err)
	}
	if _, err := b.js.Stream(ctx, jobStream); err != nil { // how it is made is the workers' to say
		return nil, false, fmt.Errorf("bridge: stream %s, which a worker makes: %w", jobStream, err)
	}
	keep = b.config.KeepUnmapped || stream.CachedInfo().Config.Retention == jetstream.WorkQueuePolicy
	cons, err = stream.Consumer(ctx, b.config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err := b.checkProofAge(stream); err != nil {
			return nil, false, err
		}
		cons, err = stream.CreateConsumer(ctx, b.consumer())
	}
	switch {
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return nil, false, b.foreign("is a push consumer, so it is somebody else's")
	case err != nil:
		return nil, false, fmt.Errorf("bridge: consumer %s of %s: %w", b.config.Durable, b.config.Stream, err)
	}
	return cons, keep, b.check(cons.CachedInfo().Config)
}

// consumer is how the consumer is made. As for those of kinds: no BackOff, and nothing is ever given up.
func (b *Bridge) consumer() jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{Durable: b.config.Durable, FilterSubjects: b.config.Subjects, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: bridgeAckWait, MaxDeliver: -1, MaxAckPending: 4 * bridgeAhead}
	if since := b.config.Since; !since.IsZero() {
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	return c
}

// check refuses a consumer that belongs to somebody else, by its look, or that loses events.
func (b *Bridge) check(c jetstream.ConsumerConfig) error {
	subjects := c.FilterSubjects
	if c.FilterSubject != "" {
		subjects = []string{c.FilterSubject}
	}
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return b.foreign("does not ask for acks, so events would be lost")
	case c.MaxDeliver > 0:
		return b.foreign(fmt.Sprintf("gives events up after %d deliveries", c.MaxDeliver))
	case !slices.Equal(slices.Sorted(slices.Values(subjects)), slices.Sorted(slices.Values(b.config.Subjects))):
		return b.foreign(fmt.Sprintf("is for the subjects %q, not %q", subjects, b.config.Subjects))
	}
	return nil
}

// foreign is the error of a consumer that is not for this bridge.
func (b *Bridge) foreign(wrong string) error {
	return &fatalError{fmt.Errorf("bridge: consumer %s of %s %s; remove it or use another name", b.config.Durable, b.config.Stream, wrong)}
}

// transit is one event on its way. It has one of answer, refusal and failed; none of them: it is left to others.
type transit struct {
	msg     jetstream.Msg
	answer  jetstream.PubAckFuture
	refusal *idemstore.Refusal
	failed  error
}

// begin reads an event and publishes its job.
func (b *Bridge) begin(msg jetstream.Msg, keep bool) transit {
	p := transit{msg: msg}
	e, err := openEvent(msg.Headers(), msg.Data(), b.config.MaxBody)
	if err != nil {
		p.refusal = &idemstore.Refusal{Reason: refusalReason(err), Detail: errorText(err)}
		return p
	}
	kind, known := b.kinds[e.attributes["type"]]
	switch {
	case known:
		p.answer, p.failed = b.publisher.PublishMsgAsync(e.forward(kind, msg.Headers()))
	case keep:
		p.refusal = &idemstore.Refusal{Reason: idemstore.UnknownKind, Detail: "CloudEvent: no kind is mapped to its type"}
	default:
		b.tell(e.attributes["type"])
	}
	if errors.Is(p.failed, nats.ErrMaxPayload) {
		p.refusal = &idemstore.Refusal{Kind: kind, Reason: idemstore.TooLarge, Detail: "larger than the broker takes, with its headers"}
	}
	return p
}

// tell names a type without a kind in the log, once, so that a mapping with a slip in it is found.
func (b *Bridge) tell(eventType string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) < bridgeTold && !b.told[eventType] {
		b.told[eventType] = true
		b.log.Info("events of this type are left to others: no kind is mapped to it", "type", errorText(errors.New(eventType)))
	}
}

// finish settles an event once its job is confirmed, or it is kept.
func (b *Bridge) finish(ctx context.Context, p transit) {
	counter, err := b.skipped, p.failed
	switch {
	case p.refusal != nil:
		counter, err = b.refused, b.keep(ctx, p)
	case p.answer != nil:
		counter = b.published
		waiting, cancel := context.WithTimeout(ctx, relayConfirm)
		err = confirmed(waiting, p.answer)
		cancel()
	}
	if err != nil {
		b.log.WarnContext(ctx, "event not passed on; it comes again", "subject", p.msg.Subject(), "error", err)
	} else {
		counter.one()
	}
	if err := p.settle(err == nil); err != nil {
		b.log.InfoContext(ctx, "broker not told; the event will come again", "subject", p.msg.Subject(), "error", err)
	}
}

// keep stores an event that cannot become a job.
func (b *Bridge) keep(ctx context.Context, p transit) error {
	meta, err := p.msg.Metadata()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	r := *p.refusal
	r.Subject, r.Headers, r.Body = p.msg.Subject(), p.msg.Headers(), p.msg.Data()
	r.Origin = idemstore.Origin{Stream: meta.Stream, Sequence: meta.Sequence.Stream, Stored: meta.Timestamp}
	b.log.WarnContext(ctx, "event refused", "reason", string(r.Reason), "detail", r.Detail, "subject", r.Subject, "sequence", r.Origin.Sequence)
	if err := b.store.Refuse(ctx, r); err != nil {
		return err
	}
	b.meters.refusals[r.Reason].one()
	return nil
}
