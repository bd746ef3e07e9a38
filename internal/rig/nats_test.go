package rig

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// bench is a stream with a consumer, seen directly and through a proxy.
type bench struct {
	*NATSProxy
	direct  jetstream.JetStream
	proxied jetstream.JetStream
}

func newBench(t *testing.T) *bench {
	t.Helper()
	url, direct := devtest.JetStream(t)
	p := NewNATSProxy(t, url)
	conn, err := nats.Connect(p.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	proxied, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := direct.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "RIG", Subjects: []string{"rig.>"}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return &bench{NATSProxy: p, direct: direct, proxied: proxied}
}

func (b *bench) publish(t *testing.T, body string) {
	t.Helper()
	msg := &nats.Msg{Subject: "rig.job", Data: []byte(body), Header: nats.Header{"X": {"y"}}}
	if _, err := b.direct.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// deliver takes one message through the proxy.
func (b *bench) deliver(t *testing.T) jetstream.Msg {
	t.Helper()
	c, err := b.proxied.Consumer(t.Context(), "RIG", "all")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Next(jetstream.FetchMaxWait(soon))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// doubleAck acks with confirmation, and without the client's own patience getting in the way.
func doubleAck(t *testing.T, msg jetstream.Msg) error {
	t.Helper()
	ctx, cancel := contextFor(t, time.Second)
	defer cancel()
	return msg.DoubleAck(ctx)
}

func TestDropReplyToAck(t *testing.T) {
	b := newBench(t)
	b.publish(t, "job")
	shot := b.DropReply(PublicationCut{})
	if err := doubleAck(t, b.deliver(t)); err == nil {
		t.Error("the ack was confirmed")
	}
	Await(t, shot.Fired(), soon, "the shot has fired")
	if n := StreamMessages(t, b.direct, "RIG"); n != 0 {
		t.Errorf("%d messages in the stream, want 0: the server has handled the ack", n)
	}
}

func TestCutBeforeAck(t *testing.T) {
	b := newBench(t)
	b.publish(t, "job")
	var settledAtCut int
	shot := b.CutBefore(PublicationCut{Do: func() { settledAtCut = len(b.Settling()) }})
	msg := b.deliver(t)
	if err := msg.InProgress(); err != nil {
		t.Fatal(err)
	}
	if err := doubleAck(t, msg); err == nil {
		t.Error("the ack was confirmed")
	}
	Await(t, shot.Fired(), soon, "the shot has fired")
	if settledAtCut != 1 || len(b.Settling()) != 1 {
		t.Errorf("%d settling messages at the cut, %d now; want 1: the in-progress", settledAtCut, len(b.Settling()))
	}
	if got, want := ConsumerStanding(t, b.direct, "RIG", "all"), (Standing{AckPending: 1}); got != want {
		t.Errorf("consumer: %+v, want %+v: the server never saw the ack", got, want)
	}
	if n := StreamMessages(t, b.direct, "RIG"); n != 1 {
		t.Errorf("%d messages in the stream, want 1", n)
	}
}

func TestPublicationCutChoosesItsPublication(t *testing.T) {
	b := newBench(t)
	shot := b.DropReply(PublicationCut{
		Skip:  1,
		Match: func(p Publication) bool { return p.Subject == "rig.job" && strings.HasPrefix(p.Body, "pick") },
	})
	for _, body := range []string{"other", "pick this later"} {
		if _, err := b.proxied.Publish(t.Context(), "rig.job", []byte(body)); err != nil {
			t.Fatalf("publish %q: %v", body, err)
		}
	}
	ctx, cancel := contextFor(t, time.Second)
	defer cancel()
	if _, err := b.proxied.PublishMsg(ctx, &nats.Msg{Subject: "rig.job", Data: []byte("pick this"),
		Header: nats.Header{"Nats-Msg-Id": {"1"}}}); err == nil {
		t.Error("the publication was confirmed")
	}
	Await(t, shot.Fired(), soon, "the shot has fired")
	if n := StreamMessages(t, b.direct, "RIG"); n != 3 {
		t.Errorf("%d messages in the stream, want 3: the server has stored the last one", n)
	}
}

func TestSettlingIsRecorded(t *testing.T) {
	b := newBench(t)
	for range 3 {
		b.publish(t, "job")
	}
	first, second, third := b.deliver(t), b.deliver(t), b.deliver(t)
	for _, err := range []error{
		first.InProgress(), doubleAck(t, first), second.NakWithDelay(time.Hour), third.TermWithReason("why"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.deliverNothing(t)
	var got []string
	for _, p := range b.Settling() {
		if !p.Of("RIG", "all") || p.Of("RIG", "al") {
			t.Errorf("%s is not told apart by stream and consumer", p.Subject)
		}
		got = append(got, sort(p))
	}
	if want := []string{"in-progress", "ack", "nak", "term"}; !slices.Equal(got, want) {
		t.Errorf("settling: %v, want %v", got, want)
	}
	if got, want := ConsumerStanding(t, b.direct, "RIG", "all"), (Standing{AckPending: 1}); got != want {
		t.Errorf("consumer: %+v, want %+v: the delayed nak", got, want)
	}
}

// deliverNothing makes sure that the server has seen everything that was sent before.
func (b *bench) deliverNothing(t *testing.T) {
	t.Helper()
	if err := b.proxied.Conn().FlushTimeout(soon); err != nil {
		t.Fatal(err)
	}
}

func sort(p Publication) string {
	switch {
	case p.IsAck():
		return "ack"
	case p.IsNak():
		return "nak"
	case p.IsTerm():
		return "term"
	case p.IsInProgress():
		return "in-progress"
	}
	return "not settling"
}

// A client that was cut off must not find its way past the proxy by the addresses that the server advertises.
func TestCutClientStaysCutOff(t *testing.T) {
	b := newBench(t)
	b.Refuse(true)
	b.Cut()
	conn := b.proxied.Conn()
	Eventually(t, soon, "the client has noticed", func() bool { return conn.Status() == nats.RECONNECTING })
	if servers := conn.DiscoveredServers(); len(servers) != 0 {
		t.Errorf("the client knows other ways to the server: %v", servers)
	}
	b.Refuse(false)
	Eventually(t, soon, "the client is back", conn.IsConnected)
}
