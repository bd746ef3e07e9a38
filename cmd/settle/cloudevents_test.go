package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestCloudEventsWrongUse(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		"--stream (SETTLE_STREAM) is not set": "--map a=payment.charge",
		"--map (SETTLE_MAP) is not set":       "--stream ORDERS",
		`"payment.charge" is not TYPE=KIND`:   "--stream ORDERS --map payment.charge",
		`this build knows no kind "pay"`:      "--stream ORDERS --map a=pay",
		`type "a" is mapped twice`:            "--stream ORDERS --map a=payment.charge --map a=report.create",
		"--since (SETTLE_SINCE)":              "--stream ORDERS --map a=payment.charge --since yesterday",
		"must be one of skip, refuse":         "--stream ORDERS --map a=payment.charge --unmapped drop",
		"Stream is JOBS":                      "--stream JOBS --map a=payment.charge",
	} {
		env := map[string]string{}
		if want == "Stream is JOBS" {
			broker, _ := devtest.JetStream(t)
			env = map[string]string{"NATS_URL": broker, "DATABASE_URL": devtest.Database(t)}
		}
		code, _, errOut := runSettle(t, env, nil, append([]string{"cloudevents"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit %d: %s", args, code, errOut)
		}
	}
}

// page is docs/cloudevents.md: its blocks in the order of the page, by the language that they name.
func page(t *testing.T) (blocks map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/cloudevents.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks = map[string][]string{}
	for i, part := range strings.Split(string(text), "```") {
		if i%2 == 1 {
			language, block, _ := strings.Cut(part, "\n")
			blocks[language] = append(blocks[language], block)
		}
	}
	return blocks
}

// messageIn reads an example: a subject and headers, then a body.
func messageIn(block string) *nats.Msg {
	head, body, _ := strings.Cut(block, "\n\n")
	m := &nats.Msg{Header: nats.Header{}, Data: []byte(strings.TrimSpace(body))}
	for line := range strings.Lines(head) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		m.Header.Set(name, value)
	}
	m.Subject = m.Header.Get("subject")
	m.Header.Del("subject")
	return m
}

// The messages of the page become jobs, its command takes those of another stream, and what is emitted has the headers that it
// shows.
func TestThePageAboutCloudEvents(t *testing.T) {
	t.Parallel()
	env := servers(t)
	js := connect(t, env)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	worker := start(t, env, "work")
	worker.await(`"msg":"serving"`)
	blocks := page(t)
	command := strings.Fields(blocks["sh"][0])
	bridge := start(t, env, command[1:]...)
	bridge.await(`"msg":"bridge serves"`)
	for _, block := range blocks["nats"] {
		m := messageIn(block)
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(blocks["nats"]); n != 3 {
		t.Errorf("the page has %d messages", n)
	}
	for order, event := range map[string]string{"order_18452": "evt-18452", "order_18453": "evt-18453", "order_18454": "evt-18454"} {
		awaitTask(t, env["DATABASE_URL"], "payment.charge", order, "finished")
		shownEvent(t, env, order, event)
	}
	emitted(t, js, messageIn(blocks["event"][0]))
	bridge.signal(syscall.SIGTERM)
	worker.signal(syscall.SIGTERM)
	for name, s := range map[string]*service{"bridge": bridge, "worker": worker} {
		if code := s.exit(); code != exitDone {
			t.Errorf("%s: exit %d", name, code)
		}
	}
}

// connect is a client of the broker of env.
func connect(t *testing.T, env map[string]string) jetstream.JetStream {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(env["NATS_URL"], nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
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

// shownEvent fails unless the task of an order is found by its event, and shows it.
func shownEvent(t *testing.T, env map[string]string, order, event string) {
	t.Helper()
	code, out, errOut := runSettle(t, env, nil, "tasks", "find", event)
	if code != exitDone || !strings.Contains(out, order) {
		t.Errorf("tasks find %s: exit %d, %s%s", event, code, out, errOut)
	}
	_, out, errOut = runSettle(t, env, nil, "tasks", "show", "--json", "payment.charge/"+order)
	var shown taskObject
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.EventID != event || shown.EventSource != "/shop/web" {
		t.Errorf("tasks show: %v: %s%s", err, out, errOut)
	}
	if _, out, _ = runSettle(t, env, nil, "tasks", "show", "payment.charge/"+order); !strings.Contains(out, event) {
		t.Errorf("tasks show does not print the event:\n%s", out)
	}
}

// emitted fails unless an event is in the stream that has these headers; "…" stands for the rest of a value.
func emitted(t *testing.T, js jetstream.JetStream, want *nats.Msg) {
	t.Helper()
	c, err := js.OrderedConsumer(t.Context(), "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{want.Subject}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := c.Next()
		if err != nil {
			t.Fatalf("no event for %s: %v", want.Header.Get("ce-subject"), err)
		}
		if m.Headers().Get("ce-subject") != want.Header.Get("ce-subject") {
			continue
		}
		for name := range want.Header {
			value, open := strings.CutSuffix(want.Header.Get(name), "…")
			got := m.Headers().Get(name)
			if ok := got == value || open && strings.HasPrefix(got, value); !ok || got == "" {
				t.Errorf("%s is %q, the page says %q", name, got, want.Header.Get(name))
			}
		}
		return
	}
}
