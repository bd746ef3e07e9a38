package cloudevents

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

const placed = "com.acme.order.placed"

// order is what a service says of an order, in the body that payment.charge takes.
func order(id string) map[string]any {
	return map[string]any{"order_id": id, "customer_id": "c_1", "amount": 1200, "currency": "EUR"}
}

// newEvent is an event as a service makes it.
func newEvent(t *testing.T, id, eventType string, data any) event.Event {
	t.Helper()
	e := event.New()
	e.SetID(id)
	e.SetSource("/shop/web")
	e.SetType(eventType)
	e.SetTime(time.Now())
	e.SetExtension("tenant", "t1")
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		t.Fatal(err)
	}
	return e
}

// The SDK publishes to jobs.<kind>, in both modes: a job each time, charged once, and its event is kept with the task.
func TestSDKPublishesJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.settle("work")
	rig.Eventually(t, soon, "the stream is there", func() bool { _, err := s.js.Stream(t.Context(), "JOBS"); return err == nil })
	for i, structured := range []bool{false, true} {
		id := fmt.Sprint(100 + i)
		first, again := newEvent(t, "evt-"+id, placed, order(id)), newEvent(t, "evt-"+id+"-again", placed, order(id))
		s.send("JOBS", "jobs.payment.charge", first, structured)
		task := s.finished(id)
		s.send("JOBS", "jobs.payment.charge", again, structured)                                              // another event of the order
		s.send("JOBS", "jobs.payment.charge", again, !structured)                                             // the same in the other mode
		s.send("JOBS", "jobs.payment.charge", newEvent(t, "evt-"+id, placed, order("other-"+id)), structured) // another order
		s.finished("other-" + id)
		rig.Eventually(t, soon, "both repeats are answered", func() bool { return s.finished(id).Duplicates == 2 })
		if requests, effects := s.effect("order_" + id); requests != 1 || effects != 1 {
			t.Errorf("structured %v: %d requests, %d charges", structured, requests, effects)
		}
		if want := (idemstore.EventName{ID: "evt-" + id, Source: "/shop/web"}); task.Event != want {
			t.Errorf("structured %v: the task came in %+v, want %+v", structured, task.Event, want)
		}
	}
}

// What the SDK can send and Settle does not take is refused, and the refusal says why.
func TestSDKPublishesWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.settle("work")
	rig.Eventually(t, soon, "the stream is there", func() bool { _, err := s.js.Stream(t.Context(), "JOBS"); return err == nil })
	s.send("JOBS", "jobs.payment.charge", newEvent(t, "paid", placed, order("1")), false)
	s.finished("1")
	old := newEvent(t, "old", placed, order("2"))
	old.SetSpecVersion(event.CloudEventsVersionV03)
	text := newEvent(t, "text", placed, nil)
	if err := text.SetData(event.TextPlain, "charge it"); err != nil {
		t.Fatal(err)
	}
	more := order("1")
	more["amount"] = 1300
	list := newEvent(t, "list", placed, []any{order("3")})
	for _, e := range []event.Event{old, text, newEvent(t, "more", placed, more), list} {
		s.send("JOBS", "jobs.payment.charge", e, false)
		s.send("JOBS", "jobs.payment.charge", e, true)
	}
	based := newEvent(t, "based", placed, nil) // JSON as bytes: data_base64 in structured mode, and a job
	body, err := json.Marshal(order("4"))
	if err != nil {
		t.Fatal(err)
	}
	based.DataEncoded, based.DataBase64 = body, true
	s.send("JOBS", "jobs.payment.charge", based, true)
	s.finished("4")
	rig.Eventually(t, soon, "eight refusals", func() bool { return strings.Count(s.run("refusals", "list", "--json"), "\n") == 8 })
	refused := s.run("refusals", "list", "--json")
	for text, n := range map[string]int{"specversion is not 1.0": 2, "datacontenttype is not JSON": 2, `"reason":"conflict"`: 2,
		"data of the CloudEvent: not a JSON object": 2} {
		if strings.Count(refused, text) != n {
			t.Errorf("%q is not there %d times:\n%s", text, n, refused)
		}
	}
}

// The SDK publishes to a stream of its own. The program takes the events from there, in both modes, and each order is charged
// once; what it emits is received by the SDK, with all attributes.
func TestSDKOnBothSides(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.stream("ORDERS", "orders.>")
	s.settle("work")
	s.settle("cloudevents", "--stream", "ORDERS", "--map", placed+"=payment.charge")
	s.send("ORDERS", "orders.placed", newEvent(t, "evt-1", placed, order("1")), false)
	s.send("ORDERS", "orders.placed", newEvent(t, "evt-2", placed, order("2")), true)
	s.send("ORDERS", "orders.placed", newEvent(t, "evt-1", placed, order("1")), true) // sent again, in the other mode
	s.send("ORDERS", "orders.shipped", newEvent(t, "evt-3", "com.acme.order.shipped", order("1")), false)
	first, second := s.finished("1"), s.finished("2")
	rig.Eventually(t, soon, "the repeat is answered", func() bool { return s.finished("1").Duplicates == 1 })
	for key, task := range map[string]idemstore.Task{"order_1": first, "order_2": second} {
		if requests, effects := s.effect(key); requests != 1 || effects != 1 {
			t.Errorf("%s: %d requests, %d charges", key, requests, effects)
		}
		if shown := s.run("tasks", "show", fmt.Sprint(task.TaskID)); !strings.Contains(shown, "evt-"+key[6:]) || !strings.Contains(shown, "/shop/web") {
			t.Errorf("tasks show does not name the event:\n%s", shown)
		}
		if found := s.run("tasks", "find", "evt-"+key[6:]); !strings.Contains(found, key) {
			t.Errorf("tasks find does not find the task of the event:\n%s", found)
		}
	}
	for _, e := range s.receive("EVENTS", "events.payment.charged", 2) {
		s.charged(e, map[string]idemstore.Task{"order_1": first, "order_2": second}[e.Subject()])
	}
}

// charged compares an event that was received with the task that emitted it.
func (s *stage) charged(e event.Event, task idemstore.Task) {
	s.t.Helper()
	if err := e.Validate(); err != nil {
		s.t.Errorf("not a valid event: %v", err)
	}
	var data struct {
		Order  string `json:"order_id"`
		Charge string `json:"charge_id"`
	}
	if err := e.DataAs(&data); err != nil || "order_"+data.Order != task.Key || data.Charge != task.ExternalID {
		s.t.Errorf("data %s of %s (%v)", e.Data(), task.Key, err)
	}
	if e.Type() != "com.acme.payment.charged" || e.Source() != "https://shop.example/settle" || e.DataContentType() != event.ApplicationJSON ||
		!strings.HasPrefix(e.ID(), fmt.Sprintf("settle-%d-", task.TaskID)) {
		s.t.Errorf("attributes %s", e)
	}
	if at := e.Time(); task.FinishedAt == nil || at.Sub(*task.FinishedAt).Abs() > time.Minute {
		s.t.Errorf("time %s, the task finished %v", at, task.FinishedAt)
	}
	if cause := e.Extensions()["causationid"]; cause != task.Event.ID {
		s.t.Errorf("caused by %v, want %s", cause, task.Event.ID)
	}
}

// The bridge is killed again and again while events come. Each becomes one task and one charge.
func TestBridgeIsKilled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.stream("ORDERS", "orders.>")
	s.settle("work")
	// Made by hand, with a short AckWait: what a killed bridge had taken comes again after that.
	_, err := s.js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "settle", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 2 * time.Second, MaxDeliver: -1})
	if err != nil {
		t.Fatal(err)
	}
	const n = 300
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			body, _ := json.Marshal(order(fmt.Sprint(i)))
			m := &nats.Msg{Subject: "orders.placed", Data: body, Header: nats.Header{"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprint("evt-", i)},
				"ce-source": {"/shop"}, "ce-type": {placed}}}
			if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	}()
	args := []string{"cloudevents", "--stream", "ORDERS", "--map", placed + "=payment.charge"}
	for kill := range 3 {
		bridge := s.settle(args...)
		rig.Eventually(t, soon, "some jobs have come", func() bool { return s.started() > (kill+1)*n/8 })
		bridge.Signal(syscall.SIGKILL)
		rig.Await(t, bridge.Exited(), soon, "the end of the bridge")
	}
	rig.Await(t, sent, soon, "all events")
	s.settle(args...)
	for i := range n {
		s.finished(fmt.Sprint(i))
		if _, effects := s.effect(fmt.Sprint("order_", i)); effects != 1 {
			t.Errorf("order %d has %d charges", i, effects)
		}
	}
	if got := s.started(); got != n {
		t.Errorf("%d tasks for %d events", got, n)
	}
}

// started counts the charges that have a task.
func (s *stage) started() (n int) {
	s.t.Helper()
	tasks, err := s.store.List(s.t.Context(), idemstore.Filter{Kind: "payment.charge", Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(tasks)
}
