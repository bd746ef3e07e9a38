package consumer

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// refuse keeps a refusal and returns its id.
func (b *bench) refuse(change func(*idemstore.Refusal)) (id int64) {
	b.t.Helper()
	r := idemstore.Refusal{Kind: b.kind.Name, Reason: idemstore.UnknownKind, Subject: subject(b.kind.Name), Body: []byte(`{"order":"1"}`),
		Origin: idemstore.Origin{Stream: jobStream, Sequence: 99, Stored: time.Unix(1_700_000_000, 0)}}
	change(&r)
	if err := b.store.Refuse(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
	found, err := b.store.Refusals(b.t.Context(), idemstore.RefusalFilter{Limit: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	return found[0].ID
}

func (b *bench) republish(id int64, dry bool) Republication {
	b.t.Helper()
	out, err := Republish(b.t.Context(), b.pool, b.js, id, ActOptions{Actor: "anna", Reason: "the kind is known now", DryRun: dry})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// read makes the consumer that is given the messages of the test kind.
func (b *bench) read() {
	b.t.Helper()
	_, err := b.stream().CreateConsumer(b.t.Context(), jetstream.ConsumerConfig{Durable: consumerName(b.kind.Name),
		FilterSubject: subject(b.kind.Name), AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, AckWait: b.conf.AckWait})
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestRepublish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.read()
	id := b.refuse(func(r *idemstore.Refusal) {
		r.Headers = nats.Header{"X-Shop": {"7"}, "Nats-Msg-Id": {"old"}, "nats-expected-last-sequence": {"4711"}, "traceparent": {publishersTrace}}
	})
	if out := b.republish(id, true); out.Outcome != OutcomeWouldDo || b.messages() != 0 {
		t.Errorf("a dry run: %+v, %d messages", out, b.messages())
	}
	out := b.republish(id, false)
	if out.Outcome != OutcomeDone || out.Sequence != 1 || !strings.Contains(out.Message, "message 1") {
		t.Errorf("%+v", out)
	}
	m, err := b.stream().GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Data) != `{"order":"1"}` || m.Header.Get("X-Shop") != "7" || m.Header.Get("traceparent") != publishersTrace ||
		m.Header.Get("nats-expected-last-sequence") != "" || !strings.HasPrefix(m.Header.Get("Nats-Msg-Id"), "again-") {
		t.Errorf("published %q with %v", m.Data, m.Header)
	}
	if again := b.republish(id, false); again.Outcome != OutcomeRefused || !strings.Contains(again.Message, "message 1, by anna") || b.messages() != 1 {
		t.Errorf("once more: %+v, %d messages", again, b.messages())
	}
	b.run()
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
}

// D-44: pressed several times at once it is published once, and only one press says so.
func TestD44RepublishPressedTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.read()
	id := b.refuse(func(*idemstore.Refusal) {})
	const presses = 8
	outcomes := make(chan ActOutcome, presses)
	var pressing sync.WaitGroup
	for i := range presses {
		pressing.Go(func() {
			out, err := Republish(t.Context(), b.pool, b.js, id, ActOptions{Actor: fmt.Sprint("actor ", i), Reason: "now"})
			if err != nil {
				t.Error(err)
			}
			outcomes <- out.Outcome
		})
	}
	pressing.Wait()
	close(outcomes)
	count := map[ActOutcome]int{}
	for o := range outcomes {
		count[o]++
	}
	if count[OutcomeDone] != 1 || count[OutcomeDropped]+count[OutcomeRefused] != presses-1 || b.messages() != 1 {
		t.Errorf("%v, %d messages", count, b.messages())
	}
}

// A press that died between publish and note left a message; the stream drops the next press, which says so and notes it.
func TestRepublishThatWasNotNoted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.read()
	id := b.refuse(func(*idemstore.Refusal) {})
	b.republish(id, false)
	if _, err := b.pool.Exec(t.Context(), `update settle.refusals set republished_at = null, republished_as = null`); err != nil {
		t.Fatal(err)
	}
	if out := b.republish(id, false); out.Outcome != OutcomeDropped || out.Sequence != 1 || !strings.Contains(out.Message, "dropped") || b.messages() != 1 {
		t.Errorf("%+v, %d messages", out, b.messages())
	}
	if r, err := b.store.FindRefusal(t.Context(), id); err != nil || r.Republished == nil || r.Republished.Sequence != 1 {
		t.Errorf("noted %+v (%v)", r.Republished, err)
	}
}

func TestRepublishRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.read()
	for _, c := range []struct {
		name   string
		change func(*idemstore.Refusal)
		says   string
	}{
		{"cut", func(r *idemstore.Refusal) { r.Body = []byte(strings.Repeat("x", 64<<10+5)) }, "first 65536 of 65541 bytes"},
		{"no consumer", func(r *idemstore.Refusal) { r.Subject = "jobs.nobody.knows" }, "no consumer"},
		{"no stream", func(r *idemstore.Refusal) { r.Subject = "elsewhere" }, "no consumer"},
		{"larger than the broker takes", func(r *idemstore.Refusal) {
			r.Subject, r.Reason, r.Body = "events.huge", idemstore.Unsendable, []byte(strings.Repeat("x", 2<<20))
		}, "raise max_payload"},
		{"no subject", func(r *idemstore.Refusal) { r.Subject = "" }, "not known where"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := b.refuse(func(r *idemstore.Refusal) {
				r.Origin.Sequence = uint64(len(c.name))
				c.change(r)
			})
			for _, dry := range []bool{true, false} {
				if out := b.republish(id, dry); out.Outcome != OutcomeRefused || !strings.Contains(out.Message, c.says) {
					t.Errorf("%s: %q, want %q", out.Outcome, out.Message, c.says)
				}
			}
			if r, err := b.store.FindRefusal(t.Context(), id); err != nil || r.Republished != nil || b.messages() != 0 {
				t.Errorf("noted %+v (%v), %d messages", r.Republished, err, b.messages())
			}
		})
	}
	for _, p := range []ActOptions{{Reason: "x"}, {Actor: "anna"}} {
		if _, err := Republish(t.Context(), b.pool, b.js, 1, p); err == nil {
			t.Errorf("%+v: no error", p)
		}
	}
}

// An event that could not be published goes to whoever reads its stream.
func TestRepublishAnEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.refuse(func(r *idemstore.Refusal) { r.Subject, r.Reason = "events.paid", idemstore.Unsendable })
	if out := b.republish(id, false); out.Outcome != OutcomeDone {
		t.Errorf("%+v", out)
	}
}
