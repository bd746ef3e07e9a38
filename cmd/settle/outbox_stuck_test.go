package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
)

// streams connects to a broker as an operator does, beside the workers.
func streams(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	conn.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { conn.Close(); <-closed })
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// limitEvents lets the stream of events hold only so many, and refuse the rest; -1 ends that.
func limitEvents(t *testing.T, js jetstream.JetStream, n int64) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.MaxMsgs, c.Discard = n, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// A stream of events that takes nothing holds up no charge and no ack. settle outbox says what waits, for how long and
// why; once the stream is well again all of it goes out by itself.
func TestEventsThatCannotBePublished(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stuck, well func(*testing.T, jetstream.JetStream)
		says        string
	}{
		"full": {
			func(t *testing.T, js jetstream.JetStream) { limitEvents(t, js, 1) },
			func(t *testing.T, js jetstream.JetStream) { limitEvents(t, js, -1) }, "maximum messages exceeded"},
		"missing": {
			func(t *testing.T, js jetstream.JetStream) {
				if err := js.DeleteStream(t.Context(), "EVENTS"); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, js jetstream.JetStream) {
				if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
					t.Fatal(err)
				}
			}, "no response from stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := servers(t)
			env["SETTLE_BACKOFF_MIN"], env["SETTLE_BACKOFF_MAX"] = "10ms", "500ms"
			js := streams(t, env["NATS_URL"])
			worker := start(t, env, "work")
			worker.await(`"msg":"serving"`)
			chargeAll(t, js, 1, 1)
			awaitRow(t, env["DATABASE_URL"], `shop.receipts where order_id = '1'`)
			c.stuck(t, js)
			chargeAll(t, js, 2, 4)
			awaitRow(t, env["DATABASE_URL"], `(select count(*) from settle.tasks where status = 'finished' and kind = 'payment.charge') x (n) where n = 4`)
			awaitAcked(t, js)
			awaitRow(t, env["DATABASE_URL"], `(select count(*) from settle.outbox where failures > 0) x (n) where n = 3`)
			sayStuck(t, env, c.says)

			c.well(t, js)
			awaitRow(t, env["DATABASE_URL"], `(select count(*) from shop.receipts) x (n) where n = 4`)
			awaitRow(t, env["DATABASE_URL"], `(select count(*) from settle.outbox) x (n) where n = 0`)
			worker.signal(syscall.SIGTERM)
			if code := worker.exit(); code != exitDone {
				t.Errorf("work: exit %d", code)
			}
			if code, out, _ := runSettle(t, env, nil, "outbox"); code != exitDone || !strings.Contains(out, "is empty") {
				t.Errorf("afterwards: exit %d, %s", code, out)
			}
		})
	}
}

// chargeAll publishes the charges of some orders. settle publish would make the missing stream.
func chargeAll(t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if _, err := js.Publish(t.Context(), "jobs.payment.charge", []byte(charge(i))); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitAcked waits until no job is left in the stream.
func awaitAcked(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		stream, err := js.Stream(t.Context(), "JOBS")
		if err != nil {
			t.Fatal(err)
		}
		if left := stream.CachedInfo().State.Msgs; left == 0 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d jobs are not acked", left)
		}
	}
}

// sayStuck checks what settle outbox tells of three charges whose events the stream does not take, and of the jobs of
// their receipts, which wait behind them.
func sayStuck(t *testing.T, env map[string]string, why string) {
	t.Helper()
	code, out, errOut := runSettle(t, env, nil, "outbox")
	if code != exitDone || !strings.Contains(out, "6 wait, the oldest for ") || !strings.Contains(out, "3 were tried and not confirmed") || !strings.Contains(out, why) {
		t.Errorf("outbox: exit %d, %s%s", code, out, errOut)
	}
	_, out, _ = runSettle(t, env, nil, "outbox", "--json")
	tried, behind := 0, 0
	for line := range strings.Lines(out) {
		var row outboxObject
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		age := time.Since(row.CreatedAt)
		switch {
		case row.Task == 0 || row.Key == "" || age < 0 || age > 2*time.Minute:
			t.Errorf("--json: %s", line)
		case row.Subject == "events.payment.charged" && row.Failures > 0 && strings.Contains(row.LastError, why):
			tried++
		case row.Subject == "jobs.receipt.send" && row.Failures == 0 && row.LastError == "":
			behind++
		}
	}
	if tried != 3 || behind != 3 {
		t.Errorf("--json: %d events tried and %d jobs behind them, want 3 of each:\n%s", tried, behind, out)
	}
}
