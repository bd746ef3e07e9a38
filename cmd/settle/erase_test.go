package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
)

// erasing is the block of SQL of the operations guide that erases a person's data.
func erasing(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(repository + "deploy/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(begin;.*?commit;)\n```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 || !strings.Contains(blocks[0][1], "'c_17'") {
		t.Fatalf("%d blocks of SQL erase the customer c_17", len(blocks))
	}
	return blocks[0][1]
}

// What is erased is nowhere in the tables any more; what proves that the job was done stays, and still stops a repeat.
func TestErasingAPersonKeepsTheProof(t *testing.T) {
	t.Parallel()
	t.Run("of a new task", func(t *testing.T) { t.Parallel(); eraseAPerson(t, false) })
	t.Run("of an archived one", func(t *testing.T) { t.Parallel(); eraseAPerson(t, true) })
}

func eraseAPerson(t *testing.T, archived bool) {
	t.Helper()
	env := servers(t)
	url := env["DATABASE_URL"]
	start(t, env, "work").await(`"msg":"serving"`)
	job := `{"order_id":"18452","customer_id":"c_17","amount":1200,"currency":"EUR"}` + "\n"
	other := `{"order_id":"18453","customer_id":"c_18","amount":1200,"currency":"EUR"}` + "\n"
	conflicting := `{"order_id":"18452","customer_id":"c_17","amount":990,"currency":"EUR"}` + "\n"
	startWaiting(t, env, job+other, "--wait").exits(exitDone)
	startWaiting(t, env, conflicting, "--wait").exits(exitFailed)
	awaitRow(t, url, `settle.refusals where reason = 'conflict' and encode(body, 'escape') like '%c\_17%'`)
	runOrFail(t, env, "tasks", "note", "payment.charge/order_18452", "--reason", "Ms Seventeen, c_17, called")

	if archived {
		execute(t, url, `update settle.tasks set expires_at = clock_timestamp()`)
		runOrFail(t, env, "archive")
	}
	execute(t, url, `insert into settle.presses (id, token, actor, act, place, reason, digest, outcome, message, ended_at)
		select gen_random_uuid(), gen_random_uuid(), 'ann', 'note', '/tasks/' || id, 'c_17 called', '', 'done', 'c_17 is noted', clock_timestamp()
		from settle.tasks where key = 'order_18452'`) // as the screen does
	execute(t, url, `update settle.tasks set event_id = 'of c_17', event_source = '/c_17' where key = 'order_18452'`)
	awaitRow(t, url, `(select where not exists (select from settle.outbox)) published`) // else the task is left alone
	execute(t, url, erasing(t))

	for _, table := range []string{"tasks", "task_refs", "task_events", "refusals", "outbox", "steps", "tasks_archive", "alerts", "presses"} {
		if n := rowsOf(t, url, naming(table, "c_17")); n != 0 {
			t.Errorf("%d rows of %s still have the customer", n, table)
		}
		if n := rowsOf(t, url, naming(table, "c_18")); n == 0 && table == "task_refs" {
			t.Error("another customer's data is gone")
		}
	}
	charged := `provider.charges`
	before := rowsOf(t, url, charged)
	for _, body := range []string{job, conflicting} { // without a message id, so that the stream lets them through
		publishByHand(t, env["NATS_URL"], body)
	}
	awaitRow(t, url, `settle.tasks where key = 'order_18452' and duplicates = 1`)
	awaitRow(t, url, `settle.refusals where kind = 'payment.charge' and key = 'order_18452' and body <> '\x'`)
	if n := rowsOf(t, url, charged); n != before || before != 2 {
		t.Errorf("%d charges, and after a repeat %d; want 2", before, n)
	}
	if n := rowsOf(t, url, `settle.tasks where key = 'order_18452' and status = 'finished' and external_id is not null and finished_at is not null`); n != 1 {
		t.Error("the proof is not what it was")
	}
	if out := runOrFail(t, env, "tasks", "show", "payment.charge/order_18452", "--content"); !strings.Contains(out, "personal data erased") {
		t.Errorf("the story does not say that data was erased: %s", out)
	}
	if code, out, errOut := runSettle(t, env, nil, "archive", "restore", "payment.charge/order_18452", "--reason", "try"); code != exitFailed {
		t.Errorf("what is erased was restored: exit %d %s%s", code, out, errOut)
	}
}

// naming is the rows of a table that have the name in any column, as text or as the bytes of a body. It is looked for as it is: to "like", its
// underscore would stand for any character, and one random id in a few hundred has a c, any digit and a 17.
func naming(table, name string) string {
	return fmt.Sprintf("settle.%s x where strpos(x::text, '%s') > 0 or strpos(x::text, encode('%s', 'hex')) > 0", table, name, name)
}

func publishByHand(t *testing.T, url, body string) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stored, err := conn.RequestWithContext(t.Context(), "jobs.payment.charge", []byte(body))
	if err != nil || !strings.Contains(string(stored.Data), `"seq"`) {
		t.Fatalf("not stored: %v", err)
	}
}

func runOrFail(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	code, out, errOut := runSettle(t, env, nil, args...)
	if code != exitDone {
		t.Fatalf("%v: exit %d: %s%s", args, code, out, errOut)
	}
	return out
}

func rowsOf(t *testing.T, url, from string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), "select count(*) from "+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
