package consumer

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// givesUp makes a consumer of the test kind that gives messages up after so many deliveries.
func (b *bench) givesUp(maxDeliver int) jetstream.Consumer {
	b.t.Helper()
	c, err := b.stream().CreateConsumer(b.t.Context(), jetstream.ConsumerConfig{Durable: consumerName(b.kind.Name),
		FilterSubject: subject(b.kind.Name), AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: maxDeliver, AckWait: b.conf.AckWait})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// use lets deliveries die: the next n messages are taken and given back at once.
func (b *bench) use(c jetstream.Consumer, n int) {
	b.t.Helper()
	for range n {
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			b.t.Fatal(err)
		}
		if err := m.Nak(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// abandoned waits until the broker has given up so many messages of the test kind.
func (b *bench) abandoned(c jetstream.Consumer, n uint64) {
	b.t.Helper()
	if !eventually(b.t, 20*time.Second, func() bool {
		_, _ = c.FetchNoWait(1) // a server gives up when somebody asks for the message
		s, err := standingOf(b.t.Context(), b.stream(), consumerName(b.kind.Name), subject(b.kind.Name))
		if err != nil {
			b.t.Fatal(err)
		}
		return s.givenUp() == n
	}) {
		b.t.Fatalf("the broker never gave up %d messages", n)
	}
}

// claimOf is the claim that somebody else would make for a message, with a long lease.
func (b *bench) claimOf(body string) idemstore.Claim {
	b.t.Helper()
	d, err := b.kind.define()
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := d.read([]byte(body), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return idemstore.Claim{Kind: b.kind.Name, Key: j.key, Token: uuid.New(), Payload: j.payload, Hash: j.hash, HashAlgorithm: hashAlgorithm,
		Provider: "test", ProviderKey: j.key, Lease: time.Hour, MaxAge: time.Hour, MaxFailures: 5}
}

// saidLog is what an engine logged.
type saidLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *saidLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *saidLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// hearLog keeps what the engines of the bench log from now on.
func (b *bench) hearLog() *saidLog {
	l := &saidLog{}
	b.conf.Logger = slog.New(slog.NewTextHandler(l, nil))
	return l
}

// D-05: messages that were given up while no worker ran: nobody heard the advisory, and pending counts are zero.
func TestD05GivenUpBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log, p := b.hearLog(), b.calling()
	c := b.givesUp(2)
	b.publish(`{"order":"1"}`)
	b.publish(`not JSON`)
	b.publish(`{"order":"3"}`)
	b.use(c, 6)
	b.abandoned(c, 3)
	info, err := c.Info(t.Context())
	if err != nil || info.NumPending != 0 || info.NumAckPending != 0 || b.messages() != 3 {
		t.Fatalf("%d pending, %d under way, %d stored (%v)", info.NumPending, info.NumAckPending, b.messages(), err)
	}
	b.pay.then(status(402)) // one of the two is declined
	b.run()
	b.awaitSettled()
	w, e, _ := b.pay.counts()
	ended := map[idemstore.Status]int{}
	for _, key := range []string{"pay_1", "pay_3"} {
		task, err := b.store.Find(t.Context(), b.kind.Name, key)
		if err != nil {
			t.Fatal(err)
		}
		ended[task.Status]++
	}
	if ended[idemstore.Finished] != 1 || ended[idemstore.Failed] != 1 || w != 2 || e != 1 {
		t.Errorf("%v, W=%d, E=%d", ended, w, e)
	}
	refused, err := b.store.Refusals(t.Context(), idemstore.RefusalFilter{})
	if err != nil || len(refused) != 1 || refused[0].Reason != idemstore.Malformed || refused[0].Origin.Sequence != 2 {
		t.Errorf("refusals %+v (%v)", refused, err)
	}
	if !log.has("gave messages up") || !log.has("level=ERROR") {
		t.Error("nothing was said about it")
	}
	b.told(p, "given_up test.pay")
	if a := b.alertOf("given_up test.pay"); a.Count != 3 {
		t.Errorf("an alert about %d messages, want 3", a.Count)
	}
}

// D-05: a message is given up under a running worker, which hears of it and does not have to look.
func TestD05GivenUpUnderAWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.givesUp(1)
	b.conf.NoRecovery = true
	e := b.engine(b.kind)
	e.givenUpEvery = time.Hour
	b.pay.then(status(429)) // released, and its message given back, of which that was the last delivery
	b.runEngine(e)
	eventuallyReady(t, e)
	b.publish(`{"order":"1"}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if w, made, _ := b.pay.counts(); w != 2 || made != 1 {
		t.Errorf("W=%d, E=%d", w, made)
	}
}

// A job that is not done when its message is given up is done when it is due, and then the message goes.
func TestGivenUpAndNotDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.givesUp(1)
	e := b.engine(b.kind)
	e.givenUpEvery = 500 * time.Millisecond
	b.pay.then(noAnswer, noAnswer)
	b.pay.onLookup = status(404)
	b.runEngine(e)
	eventuallyReady(t, e)
	b.publish(`{"order":"1"}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if w, made, _ := b.pay.counts(); w != 3 || made != 1 {
		t.Errorf("W=%d, E=%d", w, made)
	}
}

func eventuallyReady(t *testing.T, e *Engine) {
	t.Helper()
	if !eventually(t, 20*time.Second, func() bool { return e.Ready() == nil }) {
		t.Fatalf("never ready: %v", e.Ready())
	}
}

// A message that is given up while its last worker is still at it: the task is left to that worker, and the message goes
// once it is settled.
func TestGivenUpBehindItsWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.givesUp(1)
	b.publish(`{"order":"1"}`)
	b.use(c, 1)
	b.abandoned(c, 1)
	claim := b.claimOf(`{"order":"1"}`)
	holder, err := b.store.Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}

	log := b.hearLog()
	e := b.engine(b.kind)
	e.givenUpEvery = 50 * time.Millisecond
	b.runEngine(e)
	if !eventually(t, 20*time.Second, func() bool { return log.has("found=busy") }) {
		t.Fatal("the message was not taken up")
	}
	if w, _, _ := b.pay.counts(); w != 0 || b.messages() != 1 {
		t.Errorf("W=%d, %d messages while somebody works on the task", w, b.messages())
	}
	if _, err := b.store.Save(t.Context(), idemstore.Save{Fence: holder[0].Task.Fence, Kind: claim.Kind, Key: claim.Key, Status: idemstore.Finished,
		MayBeApplied: true, ExternalID: "pay_7", Result: []byte(`{"id":"pay_7"}`), MaxFailures: 5, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b.awaitSettled()
	if w, _, _ := b.pay.counts(); w != 0 {
		t.Errorf("W=%d", w)
	}
}

// What is under way hides nothing that was given up behind it, and is not mistaken for it for ever.
func TestGivenUpBesideWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.givesUp(2)
	b.publish(`{"order":"1"}`)
	first, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.NakWithDelay(time.Hour); err != nil { // by a worker that is gone
		t.Fatal(err)
	}
	b.publish(`{"order":"2"}`)
	b.use(c, 2)
	b.abandoned(c, 1)
	b.run()
	b.awaitStatus("pay_2", idemstore.Finished)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if w, e, _ := b.pay.counts(); w != 2 || e != 2 {
		t.Errorf("W=%d, E=%d", w, e)
	}
}

// A look takes up so many messages and the next one those behind them: none hides the others.
func TestLooksGoOnWhereTheyEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.givesUp(2)
	const many = unsureAtOnce + 20
	for i := range many {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	if err := b.fetchAll(c, many, func(m jetstream.Msg) error { return m.NakWithDelay(time.Hour) }); err != nil {
		t.Fatal(err)
	}
	b.publish(`{"order":"last"}`)
	b.use(c, 2)
	b.abandoned(c, 1)
	var claims []idemstore.Claim
	for i := range many { // somebody works on all of them
		claims = append(claims, b.claimOf(fmt.Sprintf(`{"order":"%d"}`, i)))
	}
	if _, err := b.store.Claim(t.Context(), claims...); err != nil {
		t.Fatal(err)
	}
	b.conf.Logger = slog.New(slog.DiscardHandler)
	e := b.engine(b.kind)
	e.givenUpEvery = 200 * time.Millisecond
	b.runEngine(e)
	b.awaitStatus("pay_last", idemstore.Finished)
	if !eventually(t, 20*time.Second, func() bool { return b.messages() <= many }) {
		t.Error("the last message is not acked")
	}
	if w, _, _ := b.pay.counts(); w != 1 || b.messages() != many {
		t.Errorf("W=%d, %d messages are left", w, b.messages())
	}
}

func (b *bench) fetchAll(c jetstream.Consumer, n int, f func(jetstream.Msg) error) error {
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(20*time.Second))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		if err := f(m); err != nil {
			return err
		}
		n--
	}
	if n != 0 {
		return fmt.Errorf("%d messages did not come: %w", n, batch.Error())
	}
	return b.js.Conn().Flush()
}

// An outcome that is not final leaves the message where it is; one that needs a person removes it.
func TestGivenUpMessagesAreSettledLikeOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.givesUp(1)
	b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = time.Hour, time.Hour
	b.publish(`{"order":"1"}`)
	b.use(c, 1)
	b.abandoned(c, 1)
	b.pay.then(noAnswer)
	stop := b.run()
	b.awaitStatus("pay_1", idemstore.Unknown)
	stop()
	if b.messages() != 1 {
		t.Fatalf("%d messages while the outcome is unknown", b.messages())
	}
	if _, err := b.pool.Exec(t.Context(), `update settle.tasks set status = 'needs_review', review_cause = 'budget'`); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.awaitSettled()
	if w, e, _ := b.pay.counts(); w != 1 || e != 0 {
		t.Errorf("W=%d, E=%d", w, e)
	}
}

// In a stream that was made anew another job may have the sequence: that one is not removed.
func TestGivenUpInAStreamThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish(`{"order":"1"}`)
	m, err := b.stream().GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(t.Context(), jobStream); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(t.Context(), b.js, b.conf); err != nil {
		t.Fatal(err)
	}
	old := &givenUpMessage{stream: b.stream(), raw: m}
	// A local job takes its claim for the first if it was delivered once.
	if meta, err := old.Metadata(); err != nil || meta.NumDelivered < 2 || meta.Sequence.Stream != 1 || !meta.Timestamp.Equal(m.Time) {
		t.Errorf("%+v, %v", meta, err)
	}
	if err := old.DoubleAck(t.Context()); err != nil {
		t.Errorf("of no message: %v", err)
	}
	b.publish(`{"order":"2"}`)
	if err := old.Term(); err != nil || b.messages() != 1 {
		t.Errorf("%v, %d messages", err, b.messages())
	}
	there, err := b.stream().GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // two workers, one after the other
		if err := (&givenUpMessage{stream: b.stream(), raw: there}).Ack(); err != nil || b.messages() != 0 {
			t.Errorf("%v, %d messages", err, b.messages())
		}
	}
}

// A message that somebody else terminates is lost: that is said. What the engine terminates itself is not.
func TestTerminatedBySomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	log, p := b.hearLog(), b.calling()
	b.givesUp(-1)
	e := b.engine(b.kind)
	b.runEngine(e)
	eventuallyReady(t, e)
	b.publish(`not JSON`)
	b.awaitSettled()
	entered, release := b.pay.hold()
	b.publish(`{"order":"1"}`)
	await(t, entered, "the job is performed")
	defer release()
	if !eventually(t, 20*time.Second, func() bool {
		// The message is with the engine; somebody else answers for it, as the server lets them.
		reply := fmt.Sprintf("$JS.ACK.%s.%s.1.2.2.%d.0", jobStream, consumerName(b.kind.Name), time.Now().UnixNano())
		_ = b.js.Conn().Publish(reply, []byte("+TERM"))
		return log.has("terminated by somebody who is no worker")
	}) {
		t.Error("nothing was said about it")
	}
	if log.has("no worker; it is gone from the stream\" kind=test.pay sequence=1 ") {
		t.Error("a term of the engine's own was reported")
	}
	b.told(p, "terminated test.pay")
}
