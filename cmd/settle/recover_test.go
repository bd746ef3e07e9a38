package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// stuckCharges puts tasks into the database that a worker left behind an hour ago: 1 released, 2 unknown, 3 parked by age, 4
// held by somebody, and 5, younger than the others, released. No stream has a message of them.
func stuckCharges(t *testing.T, env map[string]string) {
	t.Helper()
	execute(t, env["DATABASE_URL"], `
		insert into settle.tasks (kind, key, status, attempts, token, sending, unsure, first_sent_at, lease_until, review_cause,
			give_up_at, provider, provider_key, payload, payload_hash, hash_algorithm, created_at)
		select 'payment.charge', 'order_' || n, status, 1, gen_random_uuid(), sending, unsure, sent, lease, cause,
			clock_timestamp() + interval '1 day', '`+env["SETTLE_PROVIDER_URL"]+`', 'order_' || n,
			convert_to(format('{"order_id":"%s","customer_id":"c_1","amount":1200,"currency":"EUR"}', n), 'utf8'), '\x00', 'test',
			clock_timestamp() - age * interval '1 minute'
		from (values
			(1, 'started', false, false, null::timestamptz, null::timestamptz, null, 60),
			(2, 'unknown', false, true, clock_timestamp(), null, null, 60),
			(3, 'needs_review', false, true, clock_timestamp(), null, 'age', 60),
			(4, 'started', true, false, clock_timestamp(), clock_timestamp() + interval '1 hour', null, 60),
			(5, 'started', false, false, null, null, null, 1)
		) as t(n, status, sending, unsure, sent, lease, cause, age)`)
}

// query reads one value.
func query[T any](t *testing.T, url, sql string) (out T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// everything is all that the database knows.
const everything = `select coalesce(string_agg(x, E'\n' order by x), '') from (
	select to_jsonb(t)::text from settle.tasks t union all select to_jsonb(e)::text from settle.task_events e
	union all select to_jsonb(p)::text from settle.key_prefixes p union all select to_jsonb(o)::text from shop.orders o
	union all select to_jsonb(r)::text from provider.requests r union all select to_jsonb(c)::text from provider.charges c) as all_rows(x)`

func outcomesIn(t *testing.T, out string) string {
	t.Helper()
	var got []string
	for line := range strings.Lines(out) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		for _, field := range []string{"task", "kind", "key", "status", "attempts", "external_id", "outcome", "message"} {
			if _, ok := o[field]; !ok || o["message"] == "" {
				t.Errorf("%s is missing in %s", field, line)
			}
		}
		got = append(got, fmt.Sprint(o["key"], " ", o["status"], " ", o["outcome"]))
	}
	return strings.Join(got, "\n")
}

func TestRecoverDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	env := servers(t)
	stuckCharges(t, env)
	before := query[string](t, env["DATABASE_URL"], everything)
	code, out, errOut := runSettle(t, env, nil, "recover", "--dry-run", "--json", "--kind", "payment.charge")
	if code != exitDone || errOut != "" {
		t.Errorf("exit %d: %s", code, errOut)
	}
	want := "order_1 started would_perform\norder_2 unknown would_ask\norder_3 needs_review would_ask\norder_4 started skipped"
	if got := outcomesIn(t, out); got != want {
		t.Errorf("it would come to\n%s\nwant\n%s", got, want)
	}
	code, out, _ = runSettle(t, env, nil, "recover", "--dry-run")
	if code != exitDone || !strings.Contains(out, "payment.charge/order_2 (task 2), pending – being checked with the provider: would ask: ") ||
		!strings.HasSuffix(out, "2 would ask, 1 would perform, 0 would park, 1 skipped; nothing was changed\n") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if after := query[string](t, env["DATABASE_URL"], everything); after != before {
		t.Errorf("the database was\n%s\nand is\n%s", before, after)
	}
}

// That there is nothing to do is said, and is no failure.
func TestRecoverWithNothingToDo(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "SETTLE_PROVIDER_URL": "http://127.0.0.1:1"}
	for _, args := range [][]string{{"--dry-run"}, {"--reason", "so"}} {
		code, out, errOut := runSettle(t, env, nil, append([]string{"recover", "--older-than", "15m", "--window", "24h"}, args...)...)
		if code != exitDone || out != "No task that was created 15m to 24h ago is open. Older ones: --window.\n" || errOut != "" {
			t.Errorf("%v: exit %d, %s%s", args, code, out, errOut)
		}
	}
	if code, out, errOut := runSettle(t, env, nil, "recover", "--dry-run", "--json"); code != exitDone || out+errOut != "" {
		t.Errorf("as JSON: exit %d, %s%s", code, out, errOut)
	}
}

func TestRecoverSettlesWhatIsStuck(t *testing.T) {
	t.Parallel()
	env := servers(t)
	delete(env, "NATS_URL")
	stuckCharges(t, env)
	code, out, errOut := runSettle(t, env, nil, "recover", "--json", "--kind", "payment.charge", "--reason", "the stream was lost", "--actor", "anna")
	if code != exitFailed || !strings.Contains(errOut, "2 of 4 tasks are not settled") {
		t.Errorf("exit %d: %s", code, errOut)
	}
	for _, want := range []string{"order_1 finished settled", "order_2 finished settled", "order_3 needs_review still_parked", "order_4 started skipped"} {
		if got := outcomesIn(t, out); !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if by := query[string](t, env["DATABASE_URL"], `select string_agg(distinct actor, ' ') from settle.task_events`); by != "anna" {
		t.Errorf("the audit says that it was %s", by)
	}
	if why := query[int](t, env["DATABASE_URL"], `select count(*)::int from settle.task_events where reason like '%the stream was lost%'`); why != 2 {
		t.Errorf("%d lines of the audit say why, want one per task", why)
	}

	// The provider has answered by now, and nobody holds the fourth any more.
	execute(t, env["DATABASE_URL"], `delete from settle.tasks where key in ('order_3', 'order_4')`)
	code, out, errOut = runSettle(t, env, nil, "recover", "--reason", "the rest", "--older-than", "1s")
	if code != exitDone || !strings.HasSuffix(out, "1 settled, 0 open, 0 parked, 0 still parked, 0 skipped\n") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if by := query[string](t, env["DATABASE_URL"], `select string_agg(distinct actor, ' ') from settle.task_events join settle.tasks t on t.id = task_id
		where key = 'order_5'`); by != me.Username {
		t.Errorf("the audit says that it was %s, want %s", by, me.Username)
	}
	if effects := query[int](t, env["DATABASE_URL"], `select count(*)::int from provider.charges`); effects != 3 {
		t.Errorf("%d effects, want one for each of three", effects)
	}
	if code, out, errOut := runSettle(t, env, nil, "recover", "--reason", "nothing"); code != exitDone || !strings.HasPrefix(out, "No task ") {
		t.Errorf("with nothing to do: exit %d: %s%s", code, out, errOut)
	}
}

func TestRecoverRefusesMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	env := servers(t)
	stuckCharges(t, env)
	before := query[string](t, env["DATABASE_URL"], everything)
	for _, dry := range []string{"--dry-run", "--dry-run=false"} {
		code, out, errOut := runSettle(t, env, nil, "recover", dry, "--reason", "why", "--limit", "3")
		if code != exitUsage || out != "" || !strings.Contains(errOut, "nothing was done") || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d: %s%s", dry, code, out, errOut)
		}
	}
	if after := query[string](t, env["DATABASE_URL"], everything); after != before {
		t.Errorf("the database was\n%s\nand is\n%s", before, after)
	}
}

func TestRecoverShowsItsProgressOnATerminal(t *testing.T) {
	t.Parallel()
	env := servers(t)
	stuckCharges(t, env)
	screen, terminal := openTerminal(t)
	cmd := command(t, env, "recover", "--reason", "why")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close() // the program has it; the screen ends with it
	shown, _ := io.ReadAll(screen)
	_ = cmd.Wait() // it leaves two
	if !strings.Contains(string(shown), " tasks, ") || !strings.Contains(out.String(), "2 settled, ") {
		t.Errorf("shown %q, printed %s", shown, out.String())
	}
}

// A worker settles by itself what its messages do not bring, a person's retry included, and says so.
func TestAWorkerRecovers(t *testing.T) {
	t.Parallel()
	env := servers(t)
	stuckCharges(t, env)
	env["SETTLE_RECOVER_EVERY"] = "100ms"
	worker := start(t, env, "work")
	worker.await(`"msg":"recovery"`)
	for _, order := range []string{"order_1", "order_2", "order_5"} {
		awaitTask(t, env["DATABASE_URL"], "payment.charge", order, "finished")
	}
	if code, out, errOut := runSettle(t, env, nil, "tasks", "retry", "payment.charge/order_3", "--reason", "the provider is back"); code != exitDone {
		t.Errorf("retry: exit %d: %s%s", code, out, errOut)
	}
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_3", "finished")
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}

func TestRecoverNeedsADatabaseOnlyForADryRun(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	if code, out, errOut := runSettle(t, env, nil, "recover", "--dry-run"); code != exitDone || !strings.HasPrefix(out, "No task ") || errOut != "" {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	execute(t, env["DATABASE_URL"], `drop schema settle cascade`)
	if code, _, errOut := runSettle(t, env, nil, "recover", "--dry-run"); code != exitUsage || !strings.Contains(errOut, "settle migrate") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}
