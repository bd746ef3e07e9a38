package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
)

// The relay publishes what was committed to the outbox: the events and follow-up jobs of a result, and the jobs of
// publishers that enqueue in their own transactions. It is woken by each commit of this process, and looks by itself
// once a second for what others have left. Nothing waits for it: a job is acked whether or not its events are out.
//
// A row goes only once the stream has confirmed it. A crash in between publishes it again under the same message id:
// within its window the stream drops the repeat, after it the consumer gets it twice, with the same id. Of one task,
// nothing is published before what was emitted earlier is confirmed.
//
// Jobs and events have a lane each, so that a stream that does not answer holds up the rows of the other one no longer
// than the order within a task demands.

const (
	relayEvery   = time.Second      // between looks for what others have left
	relayGroup   = 256              // rows in one transaction
	relayConfirm = 5 * time.Second  // for the stream's answers to one group
	relayHeld    = 3 * relayConfirm // for which nobody else takes the rows of a group
	relayLast    = 3 * time.Second  // for what is left when the process stops
)

// relay is one per engine.
type relay struct {
	*Engine
	// publisher has the caller's connection and limits of its own: an answer that never comes is forgotten in time, and
	// what the caller publishes takes nothing from it.
	publisher    jetstream.JetStream
	jobs, events *lane
}

// lane publishes a part of the outbox, group after group.
type lane struct {
	*relay
	part idemstore.Lane
	wake chan struct{}
}

func newRelay(e *Engine) (*relay, error) {
	r := &relay{Engine: e}
	r.jobs = &lane{r, idemstore.Lane{Prefix: jobSubjects}, make(chan struct{}, 1)}
	r.events = &lane{r, idemstore.Lane{Prefix: jobSubjects, Others: true}, make(chan struct{}, 1)}
	if e.js == nil {
		return r, nil
	}
	var err error
	r.publisher, err = newPublisher(e.js)
	return r, err
}

// newPublisher has the connection of js, and forgets a message whose confirmation does not come in time.
func newPublisher(js jetstream.JetStream) (jetstream.JetStream, error) {
	return jetstream.New(js.Conn(), jetstream.WithPublishAsyncTimeout(relayConfirm))
}

// poke tells the relay that rows were committed. It never blocks.
func (r *relay) poke() {
	r.jobs.poke()
	r.events.poke()
}

// emitted is poke for the rows of one save: what follows the first waits for it in any case.
func (r *relay) emitted(first idemstore.Emit) {
	if strings.HasPrefix(first.Subject, jobSubjects) {
		r.jobs.poke()
	} else {
		r.events.poke()
	}
}

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run publishes until ctx ends, and then once more what is there.
func (r *relay) run(ctx context.Context) {
	defer r.publisher.CleanupPublisher()
	var lanes sync.WaitGroup
	lanes.Go(func() { r.jobs.run(ctx) })
	lanes.Go(func() { r.events.run(ctx) })
	lanes.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), relayLast)
	defer cancel()
	all := &lane{relay: r}
	if err := all.sweep(ctx); err != nil {
		r.log.InfoContext(ctx, "outbox left for the next worker", "error", err)
	}
}

func (l *lane) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; {
		err := l.sweep(ctx)
		n++
		if err == nil {
			n = 0
		} else if ctx.Err() == nil {
			l.log.WarnContext(ctx, "outbox not published", "error", err)
		}
		l.rest(ctx, n)
	}
}

// rest waits for the next commit, or for the next look; after n failures in a row only for the latter, and longer.
func (l *lane) rest(ctx context.Context, n int) {
	wake, wait := l.wake, relayEvery
	if n > 0 {
		wake, wait = nil, relayEvery<<min(n, 4)
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-l.after(wait):
	}
}

// sweep publishes until nothing of the lane is due any more.
func (l *lane) sweep(ctx context.Context) error {
	for {
		rows, err := l.take(ctx)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := l.send(ctx, rows); err != nil {
			return err
		}
		l.wakeNext(rows)
	}
}

// take takes the rows of the next group for this process. Begun, it does not end with ctx but a while later: a take whose
// answer nobody read would keep its rows from everybody, also from the last sweep of this process.
func (l *lane) take(ctx context.Context) ([]idemstore.OutboxRow, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := outlive(ctx, relayLast)
	defer cancel()
	return l.store.TakeOutbox(ctx, l.part, relayGroup, relayHeld)
}

// outlive is a context that ends d after ctx has.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		rest, end := context.WithTimeout(longer, d)
		defer end()
		<-rest.Done()
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// wakeNext wakes the other lane, where what follows these rows may lie.
func (l *lane) wakeNext(sent []idemstore.OutboxRow) {
	if !slices.ContainsFunc(sent, func(row idemstore.OutboxRow) bool { return row.TaskID != 0 }) {
		return
	}
	if l == l.jobs {
		l.events.poke()
	} else {
		l.jobs.poke()
	}
}

// send publishes rows and tells the table what became of them. Begun, it does not end with ctx: rows that nobody waited for
// would lie there until the next worker finds them due.
func (r *relay) send(ctx context.Context, rows []idemstore.OutboxRow) error {
	ctx = context.WithoutCancel(ctx)
	sent := r.publishAll(ctx, rows)
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	return r.store.SettleOutbox(ctx, sent)
}

// publishAll publishes rows at once and collects the stream's answers.
func (r *relay) publishAll(ctx context.Context, rows []idemstore.OutboxRow) []idemstore.Sent {
	ctx, cancel := context.WithTimeout(ctx, relayConfirm)
	defer cancel()
	out := make([]idemstore.Sent, len(rows))
	messages := make([]*nats.Msg, len(rows))
	answers := make([]jetstream.PubAckFuture, len(rows))
	spans := make([]trace.Span, len(rows))
	for i, row := range rows {
		out[i].ID = row.ID
		messages[i], spans[i] = r.message(ctx, row)
		var err error
		if answers[i], err = r.publish(messages[i]); err != nil {
			out[i] = r.notSent(trace.ContextWithSpan(ctx, spans[i]), row, messages[i], err)
		}
	}
	for i, row := range rows {
		var err error
		if answers[i] != nil {
			if err = confirmed(ctx, answers[i]); err != nil {
				out[i] = r.notSent(trace.ContextWithSpan(ctx, spans[i]), row, messages[i], err)
			}
		}
		endSpan(spans[i], err)
	}
	return out
}

// publish sends a message whose subject is one of ours.
func (r *relay) publish(m *nats.Msg) (jetstream.PubAckFuture, error) {
	if err := checkOutgoing(m.Subject); err != nil {
		return nil, err
	}
	return r.publisher.PublishMsgAsync(m)
}

// message is a row as it travels. Its span is a child of the attempt that emitted it.
func (r *relay) message(ctx context.Context, row idemstore.OutboxRow) (*nats.Msg, trace.Span) {
	m := nats.NewMsg(row.Subject)
	m.Data = row.Payload
	if parent := spanContextOf(row.Trace); parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	if row.TaskID != 0 {
		m.Header.Set(headerTask, taskID(row.TaskID))
	}
	if row.Key != "" && !strings.ContainsAny(row.Key, "\r\n") {
		m.Header.Set(headerKey, row.Key)
	}
	if usableReply(row.Reply) != "" {
		m.Header.Set(headerReply, row.Reply)
	}
	ctx, span := r.startPublish(ctx, row)
	propagator.Inject(ctx, headers(m.Header))
	m.Header.Set(headerMessageID, outboxMessageID(row))
	if strings.HasPrefix(row.Subject, eventSubjects) {
		r.config.eventAttributes(m.Header, row)
	}
	return m, span
}

// outboxMessageID is stable for a row: made of the task and the event's name, never of the publisher's form, which would
// make a follow-up job disappear into a message that somebody had published by hand.
func outboxMessageID(row idemstore.OutboxRow) string {
	if row.MessageID != "" {
		return row.MessageID
	}
	sum := sha256.Sum256([]byte(strconv.FormatInt(row.TaskID, 10) + "\x00" + row.Name))
	return "settle-" + strconv.FormatInt(row.TaskID, 10) + "-" + hex.EncodeToString(sum[:16])
}

// confirmed waits for the stream. A duplicate had been stored before, which is as good.
func confirmed(ctx context.Context, answer jetstream.PubAckFuture) error {
	select {
	case <-answer.Ok():
		return nil
	case err := <-answer.Err():
		return err
	case <-ctx.Done():
		return errors.New("the stream did not confirm in time")
	}
}

// notSent says when a row is tried again, or that it never will be: then it is kept whole, so that a person can publish it
// once what stood in its way is gone, such as a limit of the broker.
func (r *relay) notSent(ctx context.Context, row idemstore.OutboxRow, m *nats.Msg, err error) idemstore.Sent {
	log := r.log.With(aboutRow(row)...)
	var subject *outgoingError
	if errors.As(err, &subject) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) {
		log.ErrorContext(ctx, "event or follow-up job can never be published; kept as a refusal", "error", err)
		r.meters.refusals[idemstore.Unsendable].one()
		r.alarm.raise(unsendableAlert(row))
		return idemstore.Sent{ID: row.ID, Unsendable: &idemstore.Refusal{Key: row.Key, Reason: idemstore.Unsendable, Detail: errorText(err),
			Subject: row.Subject, Headers: m.Header, Body: row.Payload, TaskID: row.TaskID, Origin: idemstore.Origin{Stream: "outbox", Sequence: uint64(row.ID)}}}
	}
	wait := r.config.Policy.delay(waitFailures, counts{failures: row.Failures, jitter: rand.Float64()})
	log.WarnContext(ctx, "event or follow-up job not confirmed; published again later", "failures", row.Failures+1, "again_in", wait, "error", err)
	return idemstore.Sent{ID: row.ID, Error: errorText(err), Delay: wait}
}

// aboutRow is what a log line says of a row: its subject and key, and the task that emitted it, if one did.
func aboutRow(row idemstore.OutboxRow) []any {
	about := []any{"subject", row.Subject, "key", row.Key}
	if row.TaskID != 0 {
		about = append(about, "kind", row.TaskKind, "task", row.TaskID, "attempt", row.TaskAttempt)
	}
	return about
}

// outgoingError is a subject that the outbox may not publish to.
type outgoingError struct{ subject string }

func (e *outgoingError) Error() string {
	return fmt.Sprintf("subject %q: events go to %s<name>, follow-up jobs to %s<kind>", e.subject, eventSubjects, jobSubjects)
}

// checkOutgoing accepts subjects of the two streams: tokens joined by dots, without wildcards.
func checkOutgoing(subject string) error {
	rest, ours := strings.CutPrefix(subject, eventSubjects)
	if !ours {
		rest, ours = strings.CutPrefix(subject, jobSubjects)
	}
	if !ours || len(subject) > maxSubject {
		return &outgoingError{subject}
	}
	for token := range strings.SplitSeq(rest, ".") {
		if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c == '*' || c == '>' || c == 0x7f }) {
			return &outgoingError{subject}
		}
	}
	return nil
}

// maxSubject is what a row of the outbox can hold.
const maxSubject = 256
