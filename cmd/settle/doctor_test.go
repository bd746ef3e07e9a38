package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// usual is what the doctor finds on servers for tests: one broker, and a database that may have fsync off. The database server
// may be somebody else's, so what it is like is left out.
var usual = []string{"fsync-off", "full-page-writes-off", "stream-replicas", "no-lookup", "clock-database", "clock-broker", "sync-interval", "pool-over-server",
	"standby-asynchronous"}

// examined runs the doctor, and gives what it found beside the usual, by id and kind.
func examined(t *testing.T, env map[string]string, args ...string) (code int, found map[string]findingObject, last checksObject) {
	t.Helper()
	code, out, errOut := runSettle(t, env, nil, append([]string{"doctor", "--json"}, args...)...)
	if code != exitDone && code != exitNotHeld {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	found = map[string]findingObject{}
	for line := range strings.Lines(out) {
		var o findingObject
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		switch {
		case o.Finding != "":
			if !slices.Contains(usual, o.Finding) {
				found[strings.TrimSuffix(o.Finding+" "+o.Kind, " ")] = o
			}
		case !strings.Contains(line, `"assumption"`):
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if (last.Errors > 0) != (code == exitNotHeld) || last.Checks+last.Left < 40 {
		t.Errorf("exit %d with %+v", code, last)
	}
	return code, found, last
}

// inHealth are servers with the stream and the consumers that a worker makes.
func inHealth(t *testing.T) (env map[string]string, js jetstream.JetStream) {
	t.Helper()
	url, js := devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	env = map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": url, "SETTLE_HTTP_ADDR": "off", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1"}
	return env, js
}

func ids(found map[string]findingObject) string {
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

func TestDoctorFindsNothingAndChangesNothing(t *testing.T) {
	t.Parallel()
	env, js := inHealth(t)
	if _, err := js.Publish(t.Context(), "jobs.payment.charge", []byte(`{"order_id":"1"}`)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"payment-charge"} {
		if _, err := js.CreateConsumer(t.Context(), "JOBS", jetstream.ConsumerConfig{Durable: c, FilterSubject: "jobs.payment.charge",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: 20000}); err != nil {
			t.Fatal(err)
		}
	}
	before, streams := query[string](t, env["DATABASE_URL"], everything), broker(t, js)
	if code, found, last := examined(t, env); code != exitDone || len(found) != 0 || last.Left != 0 {
		t.Errorf("exit %d, found %s, %+v", code, ids(found), last)
	}
	code, out, errOut := runSettle(t, env, nil, "doctor", "--kind", "payment.charge")
	if code != exitDone || errOut != "" || !strings.Contains(out, "Assumed, because nothing can check it from here") || !strings.Contains(out, " checks made.\n") ||
		!strings.Contains(out, "stream-replicas: ") || !strings.Contains(out, "nats stream edit JOBS --replicas=3") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if after := query[string](t, env["DATABASE_URL"], everything); after != before {
		t.Errorf("the database was\n%s\nand is\n%s", before, after)
	}
	if after := broker(t, js); after != streams {
		t.Errorf("the broker was\n%s\nand is\n%s", streams, after)
	}
}

// broker is all that a broker knows of its streams and consumers.
func broker(t *testing.T, js jetstream.JetStream) (all string) {
	t.Helper()
	streams := js.ListStreams(t.Context())
	for s := range streams.Info() {
		all += fmt.Sprintln(s.Config, s.State)
		stream, err := js.Stream(t.Context(), s.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for c := range stream.ListConsumers(t.Context()).Info() {
			all += fmt.Sprintln(c.Config, c.Delivered, c.AckFloor)
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A server that is away is a finding, within its time, and so is a JetStream that is.
func TestDoctorWithoutServers(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://u:hunter2@127.0.0.1:1/x", "NATS_URL": "nats://token123@127.0.0.1:1"}
	code, found, last := examined(t, env)
	if code != exitNotHeld || ids(found) != "broker-away, database-away" || last.Left == 0 || last.Errors != 2 {
		t.Errorf("exit %d, found %s, %+v", code, ids(found), last)
	}
	code, out, errOut := runSettle(t, env, nil, "doctor")
	if code != exitNotHeld || !strings.Contains(out, "Errors\n") || strings.Contains(out+errOut, "hunter2") || strings.Contains(out+errOut, "token123") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	for name, args := range map[string][]string{"argument": {"more"}, "kind": {"--kind", "no.such"}, "flag": {"--lease", "1ms"}} {
		if code, out, errOut := runSettle(t, env, nil, append([]string{"doctor"}, args...)...); code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d: %s%s", name, code, out, errOut)
		}
	}
}

// Real parts with something wrong in each: exactly that is found, and ends a worker if it is an error.
func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*testing.T, map[string]string, jetstream.JetStream)
		want   string
		starts bool // a worker
	}{
		"a consumer with BackOff": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			makeConsumer(t, js, func(c *jetstream.ConsumerConfig) {
				c.BackOff, c.MaxDeliver = []time.Duration{time.Second, 2 * time.Second}, 5
			})
		}, "consumer-ack-wait-differs payment.charge, consumer-backoff payment.charge, consumer-max-deliver payment.charge", false},
		"another AckWait": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			makeConsumer(t, js, func(c *jetstream.ConsumerConfig) { c.AckWait = 40 * time.Second })
		}, "consumer-ack-wait-differs payment.charge", true},
		"a dropped index": {func(t *testing.T, env map[string]string, _ jetstream.JetStream) {
			execute(t, env["DATABASE_URL"], `drop index settle.tasks_open`)
		}, "index-missing", true},
		"a dropped constraint": {func(t *testing.T, env map[string]string, _ jetstream.JetStream) {
			execute(t, env["DATABASE_URL"], `alter table settle.tasks drop constraint tasks_released_is_clean`)
		}, "constraint-missing", false},
		"no schema": {func(t *testing.T, env map[string]string, _ jetstream.JetStream) {
			execute(t, env["DATABASE_URL"], `drop schema settle cascade`)
		}, "schema", false},
		"a role without privileges": {func(t *testing.T, env map[string]string, _ jetstream.JetStream) {
			env["DATABASE_URL"] = asRole(t, env["DATABASE_URL"], `grant usage on schema settle to %[1]s; grant select, insert, update, delete on all tables in schema settle to %[1]s;
				revoke update on settle.tasks from %[1]s`)
		}, "privilege-missing", false},
		"weak commits": {func(t *testing.T, env map[string]string, _ jetstream.JetStream) {
			env["DATABASE_URL"] = withSetting(env["DATABASE_URL"], "synchronous_commit%3Doff")
		}, "synchronous-commit", true},
		"a session that only reads": {func(t *testing.T, env map[string]string, _ jetstream.JetStream) {
			env["DATABASE_URL"] = withSetting(env["DATABASE_URL"], "default_transaction_read_only%3Don")
		}, "read-only", true},
		"a stream that drops": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			changeStream(t, js, func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs, c.MaxAge = jetstream.DiscardOld, 100, time.Hour })
		}, "stream-discard, stream-max-age", false},
		"other subjects": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			changeStream(t, js, func(c *jetstream.StreamConfig) { c.Subjects = []string{"jobs.payment.*"} })
		}, "stream-subjects", false},
		"messages that expire": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			changeStream(t, js, func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
		}, "stream-message-ttl", true},
		"strays": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "jobs.legacy.thing", Data: []byte(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}, "messages-unrouted legacy.thing", true},
		"no stream": {func(t *testing.T, _ map[string]string, js jetstream.JetStream) {
			if err := js.DeleteStream(t.Context(), "JOBS"); err != nil {
				t.Fatal(err)
			}
		}, "stream-missing", true},
		"a stream that was lost": {func(t *testing.T, env map[string]string, js jetstream.JetStream) {
			execute(t, env["DATABASE_URL"], `insert into settle.tasks (kind, key, status, token, sending, give_up_at, finished_at, payload,
				payload_hash, hash_algorithm, result) values ('payment.charge', 'order_1', 'finished', gen_random_uuid(), false, now(), now(),
				'{}', '\x00', 'test', '{"charge_id":"ch_1"}')`)
			if err := js.DeleteStream(t.Context(), "JOBS"); err != nil {
				t.Fatal(err)
			}
		}, "stream-lost", true},
		"short timers": {func(_ *testing.T, env map[string]string, _ jetstream.JetStream) {
			env["SETTLE_LEASE"], env["SETTLE_DRAIN_TIMEOUT"], env["SETTLE_KIND"] = "3s", "1s", "payment.charge"
		}, "drain-under-timeout payment.charge, heartbeat-short", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, js := inHealth(t)
			c.spoil(t, env, js)
			_, found, _ := examined(t, env)
			if got := ids(found); got != c.want {
				t.Errorf("found %s\nwant  %s", got, c.want)
			}
			starts(t, env, c.starts, found)
		})
	}
}

// starts runs a worker: an error ends it, with its name unless the engine says it itself, and a warning is logged.
func starts(t *testing.T, env map[string]string, want bool, found map[string]findingObject) {
	t.Helper()
	worker := start(t, env, "work")
	if !want {
		if code := worker.exit(); code != exitUsage {
			t.Errorf("the worker ends with %d, want %d:\n%s", code, exitUsage, strings.Join(worker.all, "\n"))
		}
		return
	}
	if _, waits := found["read-only"]; waits {
		worker.await(`"msg":"not ready; waiting"`)
	} else {
		worker.await(`"msg":"serving"`)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	log := strings.Join(worker.all, "\n")
	for _, o := range found {
		if o.Finding != "read-only" && o.Finding != "stream-missing" && o.Finding != "messages-unrouted" && strings.Count(log, `"check":"`+o.Finding+`"`) != 1 {
			t.Errorf("%s is not logged once:\n%s", o.Finding, log)
		}
	}
}

func makeConsumer(t *testing.T, js jetstream.JetStream, change func(*jetstream.ConsumerConfig)) {
	t.Helper()
	c := jetstream.ConsumerConfig{Durable: "payment-charge", FilterSubject: "jobs.payment.charge", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: 20000}
	change(&c)
	if _, err := js.CreateConsumer(t.Context(), "JOBS", c); err != nil {
		t.Fatal(err)
	}
}

func changeStream(t *testing.T, js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), "JOBS")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	change(&c)
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// asRole makes a role of its own, and gives the URL with which it logs in.
func asRole(t *testing.T, url, grants string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	role := "role_of_" + config.Database
	execute(t, url, fmt.Sprintf(`create role %[1]s login password 'p';`+grants, role))
	t.Cleanup(func() { dropRole(t, url, role) })
	return fmt.Sprintf("postgres://%s:p@%s:%d/%s?sslmode=disable", role, config.Host, config.Port, config.Database)
}

// dropRole runs when the context of the test is over.
func dropRole(t *testing.T, url, role string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, fmt.Sprintf(`drop owned by %[1]s; drop role %[1]s`, role))
	}
	if err != nil {
		t.Error(err)
	}
}

// withSetting is a URL whose sessions have a setting of their own.
func withSetting(url, setting string) string {
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "options=-c%20" + setting
}

// What a server's clients cannot see it tells through its monitor.
func TestDoctorAsksTheMonitor(t *testing.T) {
	t.Parallel()
	for always, want := range map[bool]bool{true: false, false: true} {
		server, err := devenv.StartNATS(devenv.NATSOptions{SyncAlways: always})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
		env := map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": server.URL(), "SETTLE_NATS_MONITOR": server.MonitorURL()}
		_, out, _ := runSettle(t, env, nil, "doctor", "--json")
		if got := strings.Contains(out, `"finding":"sync-interval"`); got != want {
			t.Errorf("sync always %v: found %v: %s", always, got, out)
		}
		if strings.Contains(out, `"assumption":"sync-interval"`) {
			t.Errorf("it is assumed although it is known")
		}
	}
}

// A database for tests keeps nothing over a crash of the machine, and says so.
func TestDoctorFindsFsyncOff(t *testing.T) {
	t.Parallel()
	for durable, want := range map[bool]int{true: 0, false: 2} {
		server, err := devenv.StartPostgres(t.Context(), devenv.PostgresOptions{Durable: durable})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
		env := map[string]string{"DATABASE_URL": server.URL(), "NATS_URL": "nats://127.0.0.1:1"}
		_, out, _ := runSettle(t, env, nil, "doctor", "--json")
		if got := strings.Count(out, `"finding":"fsync-off"`) + strings.Count(out, `"finding":"full-page-writes-off"`); got != want {
			t.Errorf("durable %v: %d findings: %s", durable, got, out)
		}
	}
}
