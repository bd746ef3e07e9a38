package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv"
)

// leastGrants are the privileges of a worker that serves a capped kind with a key prefix and a resumable one, and of its handlers.
const leastGrants = `grant usage on schema settle, shop to %[1]s; grant select, insert, update, delete on all tables in schema shop to %[1]s;
	grant select on settle.schema_version, settle.tasks_archive, settle.controls to %[1]s;
	grant insert on settle.task_refs to %[1]s;
	grant select, insert on settle.task_events, settle.refusals to %[1]s;
	grant select, insert, update on settle.tasks, settle.alerts, settle.key_prefixes to %[1]s;
	grant select, insert on settle.steps to %[1]s;
	grant select, insert, update, delete on settle.outbox, settle.workers, settle.tallies to %[1]s;`

// What no check asks for, no statement of a worker needs: a job is done and published on, another one refused, people are
// told, and nothing fails for want of a privilege. What people's commands need is no matter of a worker.
func TestAWorkerWithItsOwnPrivilegesAlone(t *testing.T) {
	t.Parallel()
	env := servers(t)
	owner := env["DATABASE_URL"]
	env["DATABASE_URL"], env["SETTLE_KIND"], env["SETTLE_RECOVER_EVERY"] = asRole(t, owner, leastGrants), "payment.charge,contacts.import", "100ms"
	env["SETTLE_PROVIDER_MAX_IN_FLIGHT"] = "5"
	worker := start(t, env, "work")
	worker.await(`"msg":"serving"`)

	js := streams(t, env["NATS_URL"])
	for range 2 {
		if _, err := js.Publish(t.Context(), "jobs.payment.charge", []byte(charge(18452))); err != nil {
			t.Fatal(err)
		}
	}
	awaitTask(t, owner, "payment.charge", "order_18452", "finished")
	if _, err := js.Publish(t.Context(), "jobs.contacts.import", []byte(`{"batch_id":"b_1","records":[{},{}]}`)); err != nil {
		t.Fatal(err)
	}
	awaitTask(t, owner, "contacts.import", "crm_batch_b_1", "finished")
	other := strings.Replace(charge(18452), `"c_1"`, `"c_2"`, 1)
	if _, err := js.Publish(t.Context(), "jobs.payment.charge", []byte(other)); err != nil {
		t.Fatal(err)
	}
	awaitRow(t, owner, `settle.refusals where reason = 'conflict'`)
	awaitRow(t, owner, `settle.alerts where told_at is not null`)
	execute(t, owner, `do $$ begin
		for i in 1..1000 loop
			perform from settle.outbox; if not found then return; end if;
			perform pg_sleep(0.03);
		end loop;
		raise exception 'the outbox is never empty';
	end $$`)
	_, found, last := examined(t, env)
	if got := ids(found); got != "privilege-of-operators" && got != "messages-unrouted receipt.send, privilege-of-operators" || last.Errors != 0 {
		t.Errorf("found %s, %+v", got, last)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	if log := strings.Join(worker.all, "\n"); strings.Contains(log, "permission denied") || strings.Contains(log, "privilege") {
		t.Errorf("the worker lacks something:\n%s", log)
	}
	execute(t, owner, `revoke update on settle.key_prefixes from role_of_`+databaseOf(t, owner))
	starts(t, env, false, nil)
}

func databaseOf(t *testing.T, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}

// A database that does not answer in time keeps nobody from looking at the broker, nor the worker from starting.
func TestAWorkerStartsBesideASlowDatabase(t *testing.T) {
	t.Parallel()
	env, js := inHealth(t)
	makeConsumer(t, js, func(c *jetstream.ConsumerConfig) { c.AckWait = 40 * time.Second })
	conn, err := pgx.Connect(t.Context(), env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table settle.schema_version in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	worker := start(t, env, "work")
	if line := worker.await(`some checks are left out`); !strings.Contains(line, `"level":"WARN"`) || !strings.Contains(line, `"why":"Postgres: `) ||
		strings.Contains(line, "NATS") || strings.Contains(line, `"checks":0`) {
		t.Fatalf("logged %s", line)
	}
	worker.await(`"check":"consumer-ack-wait-differs"`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker.await(`"msg":"serving"`)
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}

// A monitor that is away, is another's, or never answers says nothing about the broker. A worker asks it, too.
func TestDoctorWithoutItsMonitor(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close() // nobody accepts: the connection stands, and is silent
	another := httptest.NewServer(http.NotFoundHandler())
	defer another.Close()
	env, js := inHealth(t)
	makeConsumer(t, js, func(c *jetstream.ConsumerConfig) { c.AckWait = 5 * time.Second })
	const want = "consumer-ack-wait-differs payment.charge, heartbeat-short payment.charge, lease-over-ack-wait payment.charge, monitor-away"
	for _, url := range []string{"http://user:hunter2@127.0.0.1:1", "http://" + deaf.Addr().String(), another.URL, "://hunter2"} {
		env["SETTLE_NATS_MONITOR"] = url
		_, found, last := examined(t, env)
		if got := ids(found); got != want || last.Left != 0 || strings.Contains(found["monitor-away"].What, "hunter2") {
			t.Errorf("%s: found %s, %+v, %s", url, got, last, found["monitor-away"].What)
		}
		if fix := found["heartbeat-short payment.charge"].Fix; fix != "nats consumer edit JOBS payment-charge --wait=30s" {
			t.Errorf("to do: %s", fix)
		}
	}
	_, found, _ := examined(t, env)
	starts(t, env, true, found)
}

// A worker hears from the monitor how the server writes to its disk.
func TestAWorkerAsksTheMonitor(t *testing.T) {
	t.Parallel()
	server, err := devenv.StartNATS(devenv.NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	env, _ := inHealth(t)
	env["NATS_URL"], env["SETTLE_NATS_MONITOR"] = server.URL(), server.MonitorURL()
	worker := start(t, env, "work")
	if line := worker.await("some checks are left out"); !strings.Contains(line, `"level":"INFO"`) {
		t.Errorf("a stream that is not there yet is said so: %s", line)
	}
	worker.await(`"check":"sync-interval"`)
	worker.await(`"msg":"serving"`)
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}
