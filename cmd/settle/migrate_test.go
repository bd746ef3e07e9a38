package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// Where workers may create nothing, migrate has made it before, with the settings of a worker; again changes nothing.
func TestMigrateMakesStreamsAndConsumers(t *testing.T) {
	t.Parallel()
	broker, js := devtest.JetStream(t)
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": broker, "NATS_INBOX": "_INBOX.admin", "SETTLE_ACK_WAIT": "7s"}
	made := func() *jetstream.ConsumerInfo {
		t.Helper()
		code, out, errOut := runSettle(t, env, nil, "migrate", "--streams", "--kind", "report.create", "--max-ack-pending", "500")
		if code != exitDone || !strings.Contains(out, "consumers are there") {
			t.Fatalf("exit %d, %s%s", code, out, errOut)
		}
		for _, name := range []string{"JOBS", "EVENTS"} {
			if _, err := js.Stream(t.Context(), name); err != nil {
				t.Errorf("stream %s: %v", name, err)
			}
		}
		found, err := js.Consumer(t.Context(), "JOBS", "report-create")
		if err != nil {
			t.Fatal(err)
		}
		return found.CachedInfo()
	}
	first := made()
	if c := first.Config; c.AckWait != 7*time.Second || c.MaxAckPending != 500 || c.MaxDeliver != -1 || c.FilterSubject != "jobs.report.create" {
		t.Errorf("the consumer is %+v", c)
	}
	if again := made(); !again.Created.Equal(first.Created) {
		t.Error("the consumer was made anew")
	}
	if _, err := js.Consumer(t.Context(), "JOBS", "payment-charge"); err == nil {
		t.Error("a kind that was not named has a consumer")
	}
}

// Kinds of a file are made as the worker makes them that serves the file: it may not be allowed to.
func TestMigrateMakesConsumersOfTheKindsFile(t *testing.T) {
	t.Parallel()
	broker, js := devtest.JetStream(t)
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": broker, "SETTLE_KINDS_FILE": writeKinds(t, archiveKind),
		"ARCHIVE_URL": "http://127.0.0.1:1"}
	code, out, errOut := runSettle(t, env, nil, "migrate", "--streams")
	if code != exitDone {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	if _, err := js.Consumer(t.Context(), "JOBS", "archive-create"); err != nil {
		t.Error(err)
	}
}

// A stream that was there before is not made again without a word: jobs that had not begun are gone with it.
func TestMigrateSaysThatTheStreamWasLost(t *testing.T) {
	t.Parallel()
	broker, js := devtest.JetStream(t)
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": broker}
	says := func(want bool) {
		t.Helper()
		code, out, errOut := runSettle(t, env, nil, "migrate", "--streams")
		if code != exitDone || strings.Contains(errOut, "JOBS was gone") != want {
			t.Errorf("exit %d, %s%s; want it to speak of a lost stream: %t", code, out, errOut, want)
		}
	}
	says(false) // a new installation
	if err := js.DeleteStream(t.Context(), "JOBS"); err != nil {
		t.Fatal(err)
	}
	says(false) // nothing was done yet
	execute(t, env["DATABASE_URL"], `insert into settle.tasks (kind, key, status, token, sending, give_up_at, finished_at, payload,
		payload_hash, hash_algorithm, result) values ('payment.charge', 'order_1', 'finished', gen_random_uuid(), false, now(), now(),
		'{}', '\x00', 'test', '{"charge_id":"ch_1"}')`)
	if err := js.DeleteStream(t.Context(), "JOBS"); err != nil {
		t.Fatal(err)
	}
	says(true)
	says(false) // it is there
}

func TestMigrateWithoutNATSLeavesItAlone(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": "nats://127.0.0.1:1"}
	if code, out, errOut := runSettle(t, env, nil, "migrate"); code != exitDone {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	delete(env, "NATS_URL")
	if code, _, errOut := runSettle(t, env, nil, "migrate", "--streams"); code != exitUsage || !strings.Contains(errOut, "NATS_URL") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
