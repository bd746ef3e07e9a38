package consumer

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
)

// sent publishes a body as it is.
func (b *bench) sent(body string, header map[string][]string) Publication {
	b.t.Helper()
	out, err := PublishRaw(b.t.Context(), b.js, b.kind, []byte(body), header)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// What has no JSON is refused, and not tried again for ever.
func TestPublishOfWhatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	type measured struct{ Value float64 }
	k := Kind[measured, paid]{Name: "test.measure", Contract: Contract{Effect: "none"}, Key: func(measured) (string, error) { return "k", nil },
		Perform:    func(context.Context, *Attempt[measured]) (paid, error) { return paid{}, nil },
		ExternalID: func(paid) string { return "" }}
	var invalid *InvalidJobError
	if _, err := Publish(t.Context(), nil, k, measured{math.NaN()}); !errors.As(err, &invalid) || invalid.Reason != idemstore.Malformed {
		t.Errorf("%v", err)
	}
	if err := PublishTx(t.Context(), nil, k, measured{math.NaN()}); !errors.As(err, &invalid) {
		t.Errorf("in a transaction: %v", err)
	}
	if _, err := Call(t.Context(), nil, nil, k, measured{math.NaN()}); !errors.As(err, &invalid) {
		t.Errorf("called: %v", err)
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := payJob{Order: NewID("1"), Note: "first"}
	out, err := Publish(t.Context(), b.js, b.kind, job)
	if want := (Publication{Outcome: PublishStored, Stream: "JOBS", Sequence: 1, Key: "pay_1"}); err != nil || out != want {
		t.Fatalf("published: %+v (%v), want %+v", out, err, want)
	}
	msg := b.stored(1)
	d, err := b.kind.define()
	if err != nil {
		t.Fatal(err)
	}
	j, err := d.read(msg.Data, maxBody)
	if err != nil || j.key != "pay_1" || msg.Subject != "jobs.test.pay" || msg.Header.Get(headerMessageID) != messageID("test.pay", "pay_1", j.hash) {
		t.Errorf("message %s %v %s (%v)", msg.Subject, msg.Header, msg.Data, err)
	}
}

func (b *bench) stored(sequence uint64) *jetstream.RawStreamMsg {
	b.t.Helper()
	msg, err := b.stream().GetMsg(b.t.Context(), sequence)
	if err != nil {
		b.t.Fatal(err)
	}
	return msg
}

// An honest repeat is dropped by the server. The same key with other content gets through, for a worker to find the
// conflict (D-14).
func TestPublishAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		body     string
		outcome  PublishOutcome
		sequence uint64
	}{
		{`{"order":"1","note":"a"}`, PublishStored, 1},
		{`{"order":"1","note":"a"}`, PublishDuplicate, 1},
		{`{ "note" : "\u0061", "order" : 1 }`, PublishDuplicate, 1},
		{`{"order":"1","note":"b"}`, PublishStored, 2},
		{`{"order":"2","note":"a"}`, PublishStored, 3},
	} {
		if out := b.sent(c.body, nil); out.Outcome != c.outcome || out.Sequence != c.sequence {
			t.Errorf("%s: %+v, want %s %d", c.body, out, c.outcome, c.sequence)
		}
	}
	// D-08: the same content under ids of its own is stored again, and is one job all the same.
	for _, id := range []string{"replay-1", "replay-2"} {
		if out := b.sent(`{"order":"2","note":"a"}`, map[string][]string{"nats-msg-id": {id}}); out.Outcome != PublishStored {
			t.Errorf("with the id %s: %+v", id, out)
		}
	}
	b.run()
	b.awaitSettled()
	b.awaitStatus("pay_1", idemstore.Finished)
	if task := b.awaitStatus("pay_2", idemstore.Finished); task.Duplicates != 2 {
		t.Errorf("%d duplicates", task.Duplicates)
	}
	if w, e, _ := b.pay.counts(); w != 2 || e != 2 {
		t.Errorf("W=%d E=%d", w, e)
	}
}

func TestPublishRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for body, reason := range map[string]idemstore.Reason{
		`{"order":`:    idemstore.Malformed,
		`{"order":""}`: idemstore.BadKey,
		`{"order":"` + strings.Repeat("x", 600) + `"}`:                idemstore.BadKey,
		`{"order":"1","note":"` + strings.Repeat("x", maxBody) + `"}`: idemstore.TooLarge,
	} {
		out, err := PublishRaw(t.Context(), b.js, b.kind, []byte(body), nil)
		var refused *InvalidJobError
		if !errors.As(err, &refused) || refused.Reason != reason || out != (Publication{}) {
			t.Errorf("%.20s: %+v, %v", body, out, err)
		}
		if err != nil && (!strings.Contains(err.Error(), string(reason)) || strings.Contains(err.Error(), "xxx")) {
			t.Errorf("%.20s: the text is %q", body, err)
		}
	}
	if _, err := Publish(t.Context(), b.js, b.kind, payJob{}); err == nil {
		t.Error("a job without a key was published")
	}
	if n := b.messages(); n != 0 {
		t.Errorf("%d messages are in the stream", n)
	}
}

// No answer means not known, and never failed: the message may be stored.
func TestPublishNotKnown(t *testing.T) {
	t.Parallel()
	server, err := devenv.StartNATS(devenv.NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc, err := nats.Connect(server.URL(), nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { nc.Close(); <-closed }()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kind := newPayProvider(t).kind()
	job := payJob{Order: NewID("1")}

	out, err := Publish(t.Context(), js, kind, job) // there is no stream
	if err == nil || out.Outcome != PublishUnknown {
		t.Errorf("without a stream: %+v, %v", out, err)
	}

	if err := EnsureStreams(t.Context(), js, Config{}); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	out, err = Publish(ctx, js, kind, job)
	if !errors.Is(err, context.DeadlineExceeded) || out.Outcome != PublishUnknown || out.Key != "pay_1" || time.Since(began) > 3*time.Second {
		t.Errorf("without a server, after %v: %+v, %v", time.Since(began), out, err)
	}
	var refused *InvalidJobError
	if errors.As(err, &refused) {
		t.Error("an outage looks like a refusal")
	}
	if PublishUnknown.String() != "unknown" || PublishStored.String() != "stored" || PublishDuplicate.String() != "duplicate" {
		t.Error("the words of the command line are wrong")
	}
}

// The message carries the publisher's trace, unless it brings one of its own, however that is spelled.
func TestPublishTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	parent := spanContextOf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ctx := trace.ContextWithSpanContext(t.Context(), parent)
	if _, err := PublishRaw(ctx, b.js, b.kind, []byte(plainJob), nil); err != nil {
		t.Fatal(err)
	}
	if got := spanContextOf(headers(b.stored(1).Header).Get(headerTraceparent)); got.TraceID() != parent.TraceID() {
		t.Errorf("the message is in trace %s", got.TraceID())
	}
	const own = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
	header := map[string][]string{"Traceparent": {own}, "X-Other": {"kept"}}
	if _, err := PublishRaw(ctx, b.js, b.kind, []byte(`{"order":"2"}`), header); err != nil {
		t.Fatal(err)
	}
	msg := b.stored(2)
	if msg.Header["Traceparent"][0] != own || len(msg.Header[headerTraceparent]) != 0 || msg.Header.Get("X-Other") != "kept" {
		t.Errorf("headers %v", msg.Header)
	}
	if len(header) != 2 {
		t.Errorf("the caller's headers became %v", header)
	}
}
