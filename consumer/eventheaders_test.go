package consumer

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// Events are CloudEvents in binary mode, follow-up jobs are not: a worker would take them for somebody's event.
func TestEmittedEventsAreCloudEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.trace()
	b.conf.EventSource, b.conf.EventTypePrefix = "https://shop.example/settle", "com.acme."
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Emit("events.test.paid", "Straße 1 %", f.Result)
		w.Emit("events.test.booked", "", f.Result)
		w.Emit("jobs.test.receipt", f.Key, f.Result)
		return nil
	}
	b.run()
	if _, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject(b.kind.Name), Data: []byte(plainJob), Header: binaryEvent("ce-id", "evt 1")}); err != nil {
		t.Fatal(err)
	}
	task := b.awaitStatus("pay_1", idemstore.Finished)
	events := b.published()
	if len(events) != 2 {
		t.Fatalf("%d events", len(events))
	}
	want := map[string]string{"ce-specversion": "1.0", "ce-source": "https://shop.example/settle", "ce-type": "com.acme.test.paid",
		"ce-subject": "Stra%C3%9Fe%201%20%25", "ce-datacontenttype": "application/json", "ce-causationid": "evt%201",
		"ce-id": events[0].Header.Get(headerMessageID), "ce-traceparent": events[0].Header.Get(headerTraceparent)}
	for name, value := range want {
		if got := events[0].Header.Get(name); got != value || value == "" {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if h := events[1].Header; h.Get("ce-type") != "com.acme.test.booked" || len(h["ce-subject"]) != 0 || h.Get("ce-id") == events[0].Header.Get("ce-id") {
		t.Errorf("the second event has %v", h)
	}
	at, err := time.Parse(time.RFC3339Nano, events[0].Header.Get("ce-time"))
	if err != nil || at.Before(task.CreatedAt) || at.After(task.FinishedAt.Add(time.Second)) {
		t.Errorf("ce-time %s (%v), the task finished at %v", events[0].Header.Get("ce-time"), err, task.FinishedAt)
	}
	job, err := b.stream().GetLastMsgForSubject(t.Context(), "jobs.test.receipt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range job.Header {
		if strings.HasPrefix(strings.ToLower(name), "ce-") {
			t.Errorf("the follow-up job has %s", name)
		}
	}
}

// A plain job causes an event without a cause, from the default source.
func TestEmittedEventsOfPlainJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Emit("events.test.paid", f.Key, f.Result)
		return nil
	}
	b.run()
	b.publish(plainJob)
	b.awaitStatus("pay_1", idemstore.Finished)
	h := b.published()[0].Header
	if h.Get("ce-source") != "/settle" || h.Get("ce-type") != "test.paid" || h.Get("ce-subject") != "pay_1" || len(h["ce-causationid"]) != 0 {
		t.Errorf("headers %v", h)
	}
}

// Published again after a crash it is the same event, with the same time.
func TestAnEventPublishedAgainIsTheSame(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	row := idemstore.OutboxRow{ID: 7, TaskID: 3, Name: "events.a k", Subject: "events.a", Key: "k", CreatedAt: time.Unix(1_700_000_000, 5000)}
	headers := func() nats.Header {
		h := nats.Header{headerMessageID: {outboxMessageID(row)}}
		c.eventAttributes(h, row)
		return h
	}
	first, second := headers(), headers()
	for name := range first {
		if http.Header(first).Get(name) != http.Header(second).Get(name) {
			t.Errorf("%s differs", name)
		}
	}
	if first.Get("ce-time") != "2023-11-14T22:13:20.000005Z" {
		t.Errorf("ce-time %s", first.Get("ce-time"))
	}
}

func TestEventSettings(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"EventSource":     func(c *Config) { c.EventSource = "a\nb" },
		"EventTypePrefix": func(c *Config) { c.EventTypePrefix = "com acme" },
		"":                func(c *Config) { c.EventSource, c.EventTypePrefix = "urn:acme:settle", "com.acme." },
	} {
		c := DefaultConfig()
		change(&c)
		err := c.check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What the headers cost, for each event that is emitted.
func BenchmarkEventAttributes(b *testing.B) {
	c := DefaultConfig()
	row := idemstore.OutboxRow{TaskID: 3, Subject: "events.payment.charged", Key: "order_18452", CreatedAt: time.Unix(1_700_000_000, 5000)}
	b.ReportAllocs()
	for b.Loop() {
		h := nats.Header{headerMessageID: {"settle-3-0123456789abcdef0123456789abcdef"}}
		c.eventAttributes(h, row)
	}
}
