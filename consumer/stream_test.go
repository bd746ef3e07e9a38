package consumer

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestEnsureStreams(t *testing.T) {
	t.Parallel()
	_, js := devtest.JetStream(t)
	ctx := t.Context()
	for range 2 { // a second time changes nothing
		if err := EnsureStreams(ctx, js, Config{}); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := js.Stream(ctx, "JOBS")
	if err != nil {
		t.Fatal(err)
	}
	if c := jobs.CachedInfo().Config; c.Retention != jetstream.WorkQueuePolicy || c.Storage != jetstream.FileStorage || c.Discard != jetstream.DiscardNew ||
		c.MaxAge != 0 || c.Duplicates != 2*time.Minute || c.Replicas != 1 || len(c.Subjects) != 1 || c.Subjects[0] != "jobs.>" {
		t.Errorf("JOBS: %+v", c)
	}
	events, err := js.Stream(ctx, "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if c := events.CachedInfo().Config; c.Retention != jetstream.LimitsPolicy || c.MaxAge != 7*24*time.Hour || c.Subjects[0] != "events.>" {
		t.Errorf("EVENTS: %+v", c)
	}
}

// An operator's settings are never changed.
func TestEnsureStreamsLeavesExistingOnes(t *testing.T) {
	t.Parallel()
	_, js := devtest.JetStream(t)
	ctx := t.Context()
	own := jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy,
		Storage: jetstream.MemoryStorage, Duplicates: time.Minute, MaxBytes: 1 << 20}
	if _, err := js.CreateStream(ctx, own); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(ctx, js, Config{}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, "JOBS")
	if err != nil {
		t.Fatal(err)
	}
	if c := s.CachedInfo().Config; c.Storage != own.Storage || c.Duplicates != own.Duplicates || c.MaxBytes != own.MaxBytes {
		t.Errorf("JOBS became %+v", c)
	}
}

// Replicas are for streams that are made. On an existing stream with fewer the engine says so and serves.
func TestFewerReplicasThanAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Replicas = 3
	log := b.hearLog()
	e, _ := b.serve(b.kind)
	if !eventually(t, 10*time.Second, func() bool { return e.Ready() == nil }) {
		t.Fatal(e.Ready())
	}
	if n := b.stream().CachedInfo().Config.Replicas; n != 1 {
		t.Errorf("the stream has %d replicas now", n)
	}
	if !log.has("stream=JOBS replicas=1 asked=3") || !log.has("stream=EVENTS replicas=1 asked=3") {
		t.Error("nothing was said about it")
	}
}

func TestMoreReplicasThanServers(t *testing.T) {
	t.Parallel()
	_, js := devtest.JetStream(t)
	err := EnsureStreams(t.Context(), js, Config{Replicas: 3})
	if err == nil || !strings.Contains(err.Error(), "JOBS: create with 3 replicas") {
		t.Errorf("%v", err)
	}
}

func TestConsumerIsCreated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, stop := b.serve(b.kind)
	if !eventually(t, 10*time.Second, func() bool { return e.Ready() == nil }) {
		t.Fatal(e.Ready())
	}
	stop()
	cons, err := b.js.Consumer(t.Context(), "JOBS", "test-pay")
	if err != nil {
		t.Fatal(err)
	}
	c := cons.CachedInfo().Config
	if c.Durable != "test-pay" || c.FilterSubject != "jobs.test.pay" || c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != b.conf.AckWait ||
		c.MaxDeliver != -1 || c.MaxAckPending != 20000 || len(c.BackOff) != 0 {
		t.Errorf("consumer %+v", c)
	}
}

// existing makes the consumer before the engine does.
func (b *bench) existing(c jetstream.ConsumerConfig) {
	b.t.Helper()
	c.Durable, c.AckPolicy = consumerName(b.kind.Name), jetstream.AckExplicitPolicy
	c.FilterSubject = or(c.FilterSubject, subject(b.kind.Name))
	if _, err := b.js.CreateConsumer(b.t.Context(), jobStream, c); err != nil {
		b.t.Fatal(err)
	}
}

// D-04: a consumer that would not do what the engine counts on stops the start, and the message says what to change.
func TestUnsafeConsumerStopsTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		consumer jetstream.ConsumerConfig
		says     []string
	}{
		"BackOff": {jetstream.ConsumerConfig{AckWait: time.Minute, BackOff: []time.Duration{time.Second, 5 * time.Second}},
			[]string{"test-pay", "test.pay", "BackOff [1s 5s]", "AckWait", "1m0s", "effective 1s"}},
		"filter":  {jetstream.ConsumerConfig{FilterSubject: "jobs.test.other"}, []string{"test-pay", "jobs.test.other", "jobs.test.pay"}},
		"AckWait": {jetstream.ConsumerConfig{AckWait: 100 * time.Millisecond}, []string{"AckWait 100ms", "1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.conf.AckWait = time.Minute
			b.existing(c.consumer)
			e, err := New(b.pool, b.js, b.conf, b.kind)
			if err != nil {
				t.Fatal(err)
			}
			err = e.Run(t.Context())
			if err == nil {
				t.Fatal("the engine runs")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

// The server refuses these in a work queue; another server, or another stream, might not.
func TestAdopt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, err := New(b.pool, b.js, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	k := e.kinds[0]
	good := jetstream.ConsumerConfig{Durable: "test-pay", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "jobs.test.pay", AckWait: 7 * time.Second}
	for name, c := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		ok     bool
	}{
		"as it should be": {func(*jetstream.ConsumerConfig) {}, true},
		"no ack":          {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy }, false},
		"ack of all":      {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, false},
		"no filter":       {func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" }, false},
		"one of two filters": {func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.FilterSubjects = "", []string{"jobs.test.pay", "jobs.x"}
		}, false},
		"the filter as a list": {func(c *jetstream.ConsumerConfig) { c.FilterSubject, c.FilterSubjects = "", []string{"jobs.test.pay"} }, true},
		"gives up":             {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, true},
		"few in flight":        {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 }, true},
	} {
		config := good
		c.change(&config)
		k.setAckWait(time.Minute)
		err := e.adopt(t.Context(), k, config)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if c.ok && (k.ackWaitNow() != good.AckWait || e.beatEvery() != b.conf.Lease/3) {
			t.Errorf("%s: AckWait %v, a beat every %v", name, k.ackWaitNow(), e.beatEvery())
		}
	}
	k.setAckWait(1500 * time.Millisecond)
	if every := e.beatEvery(); every != 500*time.Millisecond {
		t.Errorf("a beat every %v under an AckWait of 1.5s", every)
	}
}

// D-06: the durable is deleted under a worker that has a job in hand. It binds to a new one without a restart, and
// the row keeps the job from being done twice.
func TestConsumerDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	entered, release := b.pay.hold()
	e, _ := b.serve(b.kind)
	b.publish(plainJob)
	await(t, entered, "the request reaches the provider")
	b.deleteConsumer()
	if !eventually(t, 10*time.Second, func() bool { return b.deliveredAgain() && e.Ready() == nil }) {
		t.Errorf("not bound again: %v", e.Ready())
	}
	release()
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if task.Attempt != 1 || task.LastError != "" {
		t.Errorf("attempt %d, error %q", task.Attempt, task.LastError)
	}
	if w, e, _ := b.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d", w, e)
	}
}

func (b *bench) deleteConsumer() {
	b.t.Helper()
	if err := b.js.DeleteConsumer(b.t.Context(), jobStream, consumerName(b.kind.Name)); err != nil {
		b.t.Fatal(err)
	}
}

// deliveredAgain reports whether a consumer that was made again has delivered something.
func (b *bench) deliveredAgain() bool {
	cons, err := b.js.Consumer(b.t.Context(), jobStream, consumerName(b.kind.Name))
	return err == nil && cons.CachedInfo().Delivered.Consumer > 0
}

// In a stream that was made anew another job has the sequence of the old one. What is said about the old delivery
// must not reach it.
func TestStreamMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slowBroker()
	first, releaseFirst := b.pay.hold()
	second, releaseSecond := b.pay.hold()
	spans := b.trace()
	e, _ := b.serve(b.kind)
	b.publish(plainJob)
	await(t, first, "the first reaches the provider")
	if err := b.js.DeleteStream(t.Context(), jobStream); err != nil {
		t.Fatal(err)
	}
	if !eventually(t, 10*time.Second, func() bool { _, err := b.js.Stream(t.Context(), jobStream); return err == nil }) {
		t.Fatalf("the stream was not made again: %v", e.Ready())
	}
	b.publish(`{"order":"2"}`)
	await(t, second, "the second reaches the provider")
	releaseFirst()
	b.awaitStatus("pay_1", idemstore.Finished)
	if !eventually(t, 10*time.Second, func() bool { return len(named(spans.GetSpans(), spanDeliver)) == 1 }) {
		t.Fatal("the old delivery never ended")
	}
	if n := b.messages(); n != 1 {
		t.Errorf("%d messages in the new stream: the ack of the old delivery took the new job away", n)
	}
	releaseSecond()
	b.awaitStatus("pay_2", idemstore.Finished)
	b.awaitSettled()
}
