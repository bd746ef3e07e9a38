package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

const (
	orders  = "ORDERS"
	placed  = "com.acme.order.placed"
	shipped = "com.acme.order.shipped"
)

// shop is somebody else's stream, which holds CloudEvents, and a bridge from there.
type shop struct {
	*bench
	config BridgeConfig
}

func newShop(t *testing.T, retention jetstream.RetentionPolicy) *shop {
	t.Helper()
	s := &shop{bench: newBench(t)}
	s.config = BridgeConfig{Stream: orders, Kinds: map[string]Definition{placed: s.kind}, Logger: s.conf.Logger}
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: orders, Subjects: []string{"orders.>"}, Retention: retention}); err != nil {
		t.Fatal(err)
	}
	return s
}

// quick makes the consumer of the bridge, with a short AckWait: tests do not wait for half a minute.
func (s *shop) quick() *shop {
	s.t.Helper()
	c := (&Bridge{config: BridgeConfig{Stream: orders, Durable: "settle"}}).consumer()
	c.AckWait = time.Second
	if _, err := s.js.CreateConsumer(s.t.Context(), orders, c); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// place publishes an event of an order, as a service does that knows nothing of Settle.
func (s *shop) place(id, eventType, data string, changes ...string) {
	s.t.Helper()
	m := &nats.Msg{Subject: "orders.placed", Data: []byte(data), Header: binaryEvent(append([]string{"ce-id", id, "ce-type", eventType}, changes...)...)}
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// bridge runs one until the test ends, or it is stopped.
func (s *shop) bridge(js jetstream.JetStream) (b *Bridge, stop func()) {
	s.t.Helper()
	b, err := NewBridge(s.pool, js, s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("bridge: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return b, stop
}

// standing is what the stream still has for the bridge: neither delivered nor acked, and delivered without an ack.
func (s *shop) standing() (waiting uint64, unacked int) {
	s.t.Helper()
	c, err := s.js.Consumer(s.t.Context(), orders, "settle")
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 1, 0
	}
	if err != nil {
		s.t.Fatal(err)
	}
	stream, err := s.js.Stream(s.t.Context(), orders)
	if err != nil {
		s.t.Fatal(err)
	}
	// Not the consumer's own count: it takes in an event a moment after the stream has confirmed it.
	return stream.CachedInfo().State.LastSeq - c.CachedInfo().Delivered.Stream, c.CachedInfo().NumAckPending
}

// awaitBridged waits until every event is acked.
func (s *shop) awaitBridged() {
	s.t.Helper()
	if !eventually(s.t, 20*time.Second, func() bool { waiting, unacked := s.standing(); return waiting == 0 && unacked == 0 }) {
		waiting, unacked := s.standing()
		s.t.Fatalf("%d events are not delivered, %d not acked", waiting, unacked)
	}
}

// refused lists the refusals, oldest first.
func (s *shop) refused() (out []string) {
	s.t.Helper()
	found, err := s.store.Refusals(s.t.Context(), idemstore.RefusalFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range found {
		out = append([]string{fmt.Sprintf("%s %s %s %d: %s", r.Reason, r.Origin.Stream, r.Subject, r.Origin.Sequence, r.Detail)}, out...)
	}
	return out
}

// paidOnce fails unless each of these orders was paid once, and nothing else.
func (s *shop) paidOnce(keys ...string) {
	s.t.Helper()
	for _, key := range keys {
		s.awaitStatus("pay_"+key, idemstore.Finished)
	}
	s.awaitSettled()
	if n := s.count("true"); n != len(keys) {
		s.t.Errorf("%d tasks, want %d", n, len(keys))
	}
	if _, n, _ := s.pay.counts(); n != len(keys) {
		s.t.Errorf("%d effects, want %d", n, len(keys))
	}
}

func TestBridge(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.LimitsPolicy)
	s.run()
	b, stop := s.bridge(s.js)
	s.place("1", placed, `{"order":"1"}`, "ce-source", "/shop/web")
	s.awaitStatus("pay_1", idemstore.Finished)                                // the first of its order
	s.place("2", shipped, `{"order":"1"}`)                                    // not mapped
	s.place("3", placed, `{"order":"1"}`)                                     // another event of the same order
	s.place("1", placed, `{"order":"1"}`, "ce-source", "/shop/web")           // sent twice
	s.place("5", placed, `{"order":"2"}`, "ce-type", "")                      // no type
	s.place("6", placed, `{"order":"2"}`, "ce-specversion", "0.3")            // another version
	s.place("7", placed, `{"order":null}`)                                    // no job of the kind
	s.place("8", placed, `{"order":"1","note":"more"}`)                       // other data, same key
	s.place("9", "image.taken", "\x89PNG", "ce-datacontenttype", "image/png") // not for us, so its data is nobody's business
	if _, err := s.js.Publish(t.Context(), "orders.placed", []byte(envelope(`"data":{"order":"2"},`))); err != nil {
		t.Fatal(err) // structured, as the SDK sends it; its type is not mapped
	}
	if _, err := s.js.Publish(t.Context(), "orders.placed", []byte(strings.ReplaceAll(envelope(`"data":{"order":"3"},`), "com.acme.placed", placed))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.Publish(t.Context(), "orders.placed", []byte(`{"order":"4"}`)); err != nil {
		t.Fatal(err) // no event at all
	}
	s.place("3", placed, `{"order":"1","note":"another"}`) // an id that is used again gets through, and is found
	s.awaitBridged()
	s.paidOnce("1", "3")
	stop()
	if got, want := b.Counts(), (BridgeCounts{Published: 7, Refused: 3, Unmapped: 3}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	task := s.awaitStatus("pay_1", idemstore.Finished)
	if task.Event != (idemstore.EventName{ID: "1", Source: "/shop/web"}) {
		t.Errorf("the task came in %+v", task.Event)
	}
	for _, text := range []string{"1", "/shop/web"} {
		hits, err := s.store.Search(t.Context(), idemstore.Search{Text: text, Kind: s.kind.Name})
		if err != nil || len(hits) == 0 || hits[0].TaskID != task.TaskID {
			t.Errorf("search for %q finds %v (%v)", text, hits, err)
		}
	}
	refused := fmt.Sprint(s.refused())
	for _, want := range []string{
		"malformed ORDERS orders.placed 5: malformed: CloudEvent: type is missing, empty or no text",
		"malformed ORDERS orders.placed 6: malformed: CloudEvent: specversion is not 1.0",
		"malformed ORDERS orders.placed 12: no CloudEvent: it has neither",
		"bad_key JOBS jobs.test.pay", "conflict JOBS jobs.test.pay",
	} {
		if !strings.Contains(refused, want) {
			t.Errorf("no refusal %q in %s", want, refused)
		}
	}
	if n := len(s.refused()); n != 6 || strings.Count(refused, "conflict JOBS") != 2 {
		t.Errorf("%d refusals: %s", n, refused)
	}
}

// In a work queue an ack removes the event for everybody, so one without a kind is kept.
func TestBridgeFromAWorkQueue(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.WorkQueuePolicy)
	s.run()
	s.bridge(s.js)
	s.place("1", shipped, `{"order":"1"}`)
	s.place("2", placed, `{"order":"2"}`)
	s.awaitBridged()
	s.paidOnce("2")
	if got := fmt.Sprint(s.refused()); got != "[unknown_kind ORDERS orders.placed 1: CloudEvent: no kind is mapped to its type]" {
		t.Error(got)
	}
}

// The bridge dies, or is cut off, between the confirmation of JOBS and its ack. The event comes again; in the stream's
// window the stream drops the repeat, after it the key does.
func TestBridgeCutBeforeTheAck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window     time.Duration
		duplicates int
	}{"within the window": {2 * time.Minute, 0}, "after the window": {100 * time.Millisecond, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, jetstream.LimitsPolicy).quick()
			jobs := s.stream().CachedInfo().Config
			jobs.Duplicates = c.window
			if _, err := s.js.UpdateStream(t.Context(), jobs); err != nil {
				t.Fatal(err)
			}
			proxy := rig.NewNATSProxy(t, s.js.Conn().ConnectedUrl())
			cut := proxy.CutBefore(rig.PublicationCut{Match: func(p rig.Publication) bool { return p.IsAck() && p.Of(orders, "settle") }})
			s.bridge(connectThrough(t, proxy))
			s.place("1", placed, `{"order":"1"}`)
			rig.Await(t, cut.Fired(), 20*time.Second, "the ack")
			if n := s.messages(); n != 1 {
				t.Errorf("%d jobs when the bridge was cut off, want 1", n)
			}
			s.awaitBridged()
			if n := s.messages(); n != uint64(1+c.duplicates) {
				t.Errorf("%d jobs in the end", n)
			}
			s.run()
			s.paidOnce("1")
			if task := s.awaitStatus("pay_1", idemstore.Finished); task.Duplicates != c.duplicates {
				t.Errorf("%d duplicates, want %d", task.Duplicates, c.duplicates)
			}
		})
	}
}

// connectThrough is a client whose connection can be cut. It writes nothing after a reconnect that it had meant for before.
func connectThrough(t *testing.T, p *rig.NATSProxy) jetstream.JetStream {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(p.URL(), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// The confirmation is lost: the event is published again under the same id, and acked then.
func TestBridgeWithoutTheConfirmation(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.LimitsPolicy).quick()
	s.run()
	proxy := rig.NewNATSProxy(t, s.js.Conn().ConnectedUrl())
	cut := proxy.DropReply(rig.PublicationCut{Match: func(p rig.Publication) bool { return p.Subject == "jobs.test.pay" }})
	s.bridge(connectThrough(t, proxy))
	s.place("1", placed, `{"order":"1"}`)
	rig.Await(t, cut.Fired(), 20*time.Second, "the confirmation")
	if _, unacked := s.standing(); unacked != 1 {
		t.Errorf("%d events wait for an ack, want 1: its job was not confirmed", unacked)
	}
	s.awaitBridged()
	s.paidOnce("1")
}

// A confirmation that never comes is forgotten in time, whatever the caller's connection allows: else the bridge would stand
// still for ever once enough of them were lost.
func TestBridgeForgetsConfirmationsThatNeverCome(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.LimitsPolicy).quick()
	deaf := s.stream().CachedInfo().Config
	deaf.NoAck = true
	if _, err := s.js.UpdateStream(t.Context(), deaf); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(s.js.Conn(), jetstream.WithPublishAsyncMaxPending(1))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := s.bridge(js)
	s.place("1", placed, `{"order":"1"}`)
	s.place("2", placed, `{"order":"2"}`)
	if !eventually(t, 20*time.Second, func() bool { return s.redelivered() }) {
		t.Fatal("no event came again")
	}
	deaf.NoAck = false
	if _, err := s.js.UpdateStream(t.Context(), deaf); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.awaitBridged()
	s.paidOnce("1", "2")
	if !eventually(t, 20*time.Second, func() bool { return b.publisher.PublishAsyncPending() == 0 }) {
		t.Errorf("%d publishes still wait for a confirmation", b.publisher.PublishAsyncPending())
	}
}

// Nothing is acked that JOBS did not take. Once it does, the event comes again.
func TestBridgeBeforeAFullStream(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.LimitsPolicy).quick()
	jobs := s.stream().CachedInfo().Config
	jobs.MaxMsgs = 1
	if _, err := s.js.UpdateStream(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	b, _ := s.bridge(s.js)
	s.place("1", placed, `{"order":"1"}`)
	if !eventually(t, 20*time.Second, func() bool { return b.Counts().Published == 1 }) {
		t.Fatal("the first event never was passed on")
	}
	s.place("2", placed, `{"order":"2"}`)
	if !eventually(t, 20*time.Second, func() bool { return s.redelivered() }) {
		t.Fatal("the second event never came again")
	}
	if n := b.Counts().Published; n != 1 {
		t.Errorf("%d events count as published, JOBS has room for one", n)
	}
	jobs.MaxMsgs = -1
	if _, err := s.js.UpdateStream(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.awaitBridged()
	s.paidOnce("1", "2")
}

// redelivered reports whether some event came a second time.
func (s *shop) redelivered() bool {
	c, err := s.js.Consumer(s.t.Context(), orders, "settle")
	return err == nil && c.CachedInfo().NumRedelivered > 0
}

// A bridge waits for a stream that is not there yet, and takes what came since a time.
func TestBridgeWaitsForItsStream(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.LimitsPolicy)
	s.place("old", placed, `{"order":"1"}`)
	last, err := s.js.Stream(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	s.config.Since = last.CachedInfo().State.LastTime.Add(time.Nanosecond)
	if err := s.js.DeleteStream(t.Context(), jobStream); err != nil {
		t.Fatal(err)
	}
	said := s.hearLog()
	s.config.Logger = s.conf.Logger
	s.bridge(s.js)
	if !eventually(t, 20*time.Second, func() bool { return said.has("stream JOBS, which a worker makes") }) {
		t.Error("it does not say what it waits for")
	}
	s.run()
	s.place("new", placed, `{"order":"2"}`)
	s.awaitBridged()
	s.paidOnce("2")
}

func TestBridgeRefusesSomebodyElsesConsumer(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*jetstream.ConsumerConfig){
		"does not ask for acks":                   func(c *jetstream.ConsumerConfig) { c.AckPolicy, c.MaxAckPending = jetstream.AckNonePolicy, 0 },
		"gives events up after 5":                 func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 },
		`is for the subjects ["orders.x"]`:        func(c *jetstream.ConsumerConfig) { c.FilterSubject = "orders.x" },
		"is a push consumer":                      func(c *jetstream.ConsumerConfig) { c.DeliverSubject = "somebody" },
		`is for the subjects ["orders.a" "orders`: func(c *jetstream.ConsumerConfig) { c.FilterSubjects = []string{"orders.a", "orders.b"} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, jetstream.LimitsPolicy)
			c := (&Bridge{config: BridgeConfig{Stream: orders, Durable: "settle"}}).consumer()
			change(&c)
			if err := createConsumer(t, s.js, c); err != nil {
				t.Fatal(err)
			}
			b, err := NewBridge(s.pool, s.js, s.config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := b.Run(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// D-39: where key rows go, a consumer that was lost does not bring back events that are older than they get. With a time from
// which it takes events it does begin.
func TestBridgeDoesNotBringBackForgottenKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t, jetstream.LimitsPolicy)
	s.place("1", placed, `{"order":"1"}`)
	s.stream()
	s.config.ProofRetention, s.config.ReplayHorizon = time.Hour, time.Hour // less is left than a nak takes
	b, err := NewBridge(s.pool, s.js, s.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := b.Run(ctx); !errors.Is(err, ErrProofAge) || !strings.Contains(err.Error(), "in stream "+orders) {
		t.Errorf("%v", err)
	}
	if _, err := s.js.Consumer(t.Context(), orders, "settle"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer is there (%v)", err)
	}
	s.config.ProofRetention, s.config.Since = 1000*time.Hour, time.Now().Add(-time.Minute)
	s.run()
	s.bridge(s.js)
	s.awaitBridged()
	s.paidOnce("1")
}

// createConsumer also makes push consumers.
func createConsumer(t *testing.T, js jetstream.JetStream, c jetstream.ConsumerConfig) error {
	t.Helper()
	var err error
	if c.DeliverSubject != "" {
		_, err = js.CreatePushConsumer(t.Context(), orders, c)
	} else {
		_, err = js.CreateConsumer(t.Context(), orders, c)
	}
	return err
}

func TestNewBridgeNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	kinds := map[string]Definition{placed: Kind[payJob, paid]{Name: "test.pay"}}
	for want, c := range map[string]BridgeConfig{
		"Stream is missing": {Kinds: kinds}, "Kinds is empty": {Stream: orders}, "Stream is JOBS": {Stream: "JOBS", Kinds: kinds},
		`type "com.acme.order.placed": kind "test.pay": Contract.Effect is missing`: {Stream: orders, Kinds: kinds},
	} {
		if _, err := NewBridge(nil, nil, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
