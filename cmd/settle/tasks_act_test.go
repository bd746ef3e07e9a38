package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// charged is a charge that the stand-in provider has for order 2, as the kind stores it.
const charged = `{"charge_id":"ch_9","status":"succeeded"}`

// handMade puts tasks into a fresh database, one of each kind that a person may find, beside a stand-in provider.
func handMade(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "SETTLE_PROVIDER_ADDR": "127.0.0.1:0"}
	provider := start(t, env, "provider")
	env["SETTLE_PROVIDER_URL"] = urlIn(t, provider.await("the stand-in provider listens"))
	execute(t, env["DATABASE_URL"], `
		insert into shop.orders (order_id, customer_id, amount, currency)
		select n::text, 'c_1', 1200, 'EUR' from generate_series(1, 9) as n;
		insert into settle.tasks (kind, key, status, attempts, failures, token, sending, unsure, lease_until, give_up_at, finished_at,
			first_sent_at, last_sent_by, external_id, review_cause, last_error, payload, payload_hash, hash_algorithm, provider_key, result)
		select 'payment.charge', 'order_' || n, status, 3, 5, gen_random_uuid(), false, unsure, lease, clock_timestamp() + interval '1 day', finished,
			case when unsure then clock_timestamp() - interval '1 hour' end, case when unsure then clock_timestamp() - interval '1 hour' end,
			external_id, cause, 'no answer in time', format('{"order_id":"%s","customer_id":"c_1","amount":1200,"currency":"EUR"}', n)::bytea,
			'\x00', 'test', 'order_' || n, result
		from (values
			(1, 'needs_review', true, null::timestamptz, null::timestamptz, null, 'budget', null),
			(2, 'unknown', true, null, null, null, null, null),
			(3, 'finished', true, null, clock_timestamp(), 'ch_3', null, '{"charge_id":"ch_3","status":"succeeded"}'),
			(4, 'failed', true, null, clock_timestamp(), null, null, null),
			(5, 'needs_review', false, null, null, null, 'conflict', null),
			(6, 'needs_review', true, null, null, 'ch_6', 'not_booked', '{"charge_id":"ch_6","status":"succeeded"}'),
			(7, 'started', true, clock_timestamp() + interval '1 hour', null, null, null, null),
			(8, 'started', false, null, null, null, null, null)
		) as x(n, status, unsure, lease, finished, external_id, cause, result);`)
	return env
}

// atProvider makes the provider perform the charge of an order, as if a worker had sent it and not heard the answer.
func atProvider(t *testing.T, env map[string]string, order int) (chargeID string) {
	t.Helper()
	body := fmt.Sprintf(`{"order_id":"%d","customer_id":"c_1","amount":1200,"currency":"EUR"}`, order)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, env["SETTLE_PROVIDER_URL"]+"/charges", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", fmt.Sprintf("order_%d", order))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var made struct {
		ID string `json:"charge_id"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.ID == "" {
		t.Fatalf("the provider made %+v (%v)", made, err)
	}
	return made.ID
}

func charge9(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, []byte(charged), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// value reads one text from the database.
func value(t *testing.T, env map[string]string, sql string) (out string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), env["DATABASE_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

const wholeTable = `select string_agg(t::text, '|' order by id) || (select count(*) from settle.task_events) || (select count(*) from settle.outbox)
	|| (select string_agg(o::text, '|' order by order_id) from shop.orders o) from settle.tasks t`

// acted is what an operator command prints with --json.
type actedLine struct {
	Task       int64  `json:"task"`
	Kind       string `json:"kind"`
	Key        string `json:"key"`
	Status     string `json:"status"`
	Attempts   int    `json:"attempts"`
	ExternalID string `json:"external_id"`
	Outcome    string `json:"outcome"`
	Message    string `json:"message"`
}

func actedLines(t *testing.T, out string) (all []actedLine) {
	t.Helper()
	for text := range strings.Lines(out) {
		var line actedLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		all = append(all, line)
	}
	return all
}

func TestActsByHand(t *testing.T) {
	t.Parallel()
	file := charge9(t)
	for _, c := range []struct {
		name    string
		args    []string
		code    int
		want    actedLine // its task, kind and key are those of the order in args
		says    string
		after   string // SQL, and
		is      string
		request bool // one was sent to the provider before
	}{
		{"ask, the provider knows", []string{"ask", "payment.charge/order_2"}, exitDone, actedLine{Status: "finished", Attempts: 4, Outcome: "done"},
			"it happened as ch_", `select status from shop.orders where order_id = '2'`, "paid", true},
		{"ask, the provider does not know", []string{"ask", "payment.charge/order_1"}, exitDone, actedLine{Status: "needs_review", Attempts: 3, Outcome: "asked"},
			"does not know it", `select reason from settle.task_events where old_status = new_status`, "the provider was asked: it does not know it", false},
		{"retry, parked", []string{"retry", "--reason", "so", "payment.charge/order_1"}, exitDone, actedLine{Status: "unknown", Attempts: 4, Outcome: "done"},
			"asked before anything is sent", `select reason from settle.task_events`, "retry: so", false},
		{"retry, failed", []string{"retry", "payment.charge/order_4", "--reason=so"}, exitDone, actedLine{Status: "unknown", Attempts: 4, Outcome: "done"}, "", "", "", false},
		{"retry, not booked", []string{"retry", "payment.charge/order_6", "--reason", "so"}, exitDone,
			actedLine{Status: "finished", Attempts: 4, Outcome: "done", ExternalID: "ch_6"}, "nothing is sent",
			`select (select status || ' ' || charge_id from shop.orders where order_id = '6') || ' ' || (select count(*) from provider.requests)`, "paid ch_6 0", false},
		{"retry, finished", []string{"retry", "payment.charge/order_3", "--reason", "so"}, exitFailed,
			actedLine{Status: "finished", Attempts: 3, Outcome: "refused", ExternalID: "ch_3"}, "it is done", "", "", false},
		{"retry, at work", []string{"retry", "payment.charge/order_7", "--reason", "so"}, exitFailed, actedLine{Status: "started", Attempts: 3, Outcome: "refused"},
			"at work", "", "", false},
		{"send again", []string{"send-again", "payment.charge/order_1", "--reason", "so"}, exitDone, actedLine{Status: "unknown", Attempts: 4, Outcome: "done"},
			"sent once more", `select resend_once::text from settle.tasks where key = 'order_1'`, "true", false},
		{"resolve, by decision", []string{"resolve", "payment.charge/order_1", "--as", "finished", "--result", file, "--reason", "so"}, exitDone,
			actedLine{Status: "finished", Attempts: 4, Outcome: "done", ExternalID: "ch_9"}, "finished as ch_9, by decision",
			`select status || ' ' || charge_id from shop.orders where order_id = '1'`, "paid ch_9", false},
		{"resolve, the provider knows better", []string{"resolve", "payment.charge/order_2", "--as", "failed", "--reason", "so"}, exitFailed,
			actedLine{Status: "unknown", Attempts: 3, Outcome: "refused"}, "which contradicts the decision", "", "", true},
		{"resolve, at work", []string{"resolve", "payment.charge/order_7", "--as", "failed", "--reason", "so"}, exitFailed,
			actedLine{Status: "started", Attempts: 3, Outcome: "refused"}, "at work", "", "", false},
		{"resolve, forced", []string{"resolve", "payment.charge/order_7", "--as", "failed", "--force", "--reason", "so"}, exitDone,
			actedLine{Status: "failed", Attempts: 4, Outcome: "done"}, "by decision", `select result from settle.tasks where key = 'order_7'`,
			`{"resolved":"failed","reason":"so"}`, false},
		{"resolve without a result", []string{"resolve", "payment.charge/order_1", "--as", "finished", "--external-id", "ch_9", "--reason", "so"}, exitFailed,
			actedLine{Status: "needs_review", Attempts: 3, Outcome: "refused"}, "a result must be given", "", "", false},
		{"cancel", []string{"cancel", "payment.charge/order_8", "--reason", "so", "--actor", "anna"}, exitDone, actedLine{Status: "failed", Attempts: 4, Outcome: "done"},
			"given up", `select actor || ' ' || (select status from shop.orders where order_id = '8') from settle.task_events`, "anna declined", false},
		{"cancel, sent", []string{"cancel", "payment.charge/order_1", "--reason", "so"}, exitFailed, actedLine{Status: "needs_review", Attempts: 3, Outcome: "refused"},
			"may have left", "", "", false},
		{"note", []string{"note", "payment.charge/order_3", "--reason", "refunded"}, exitDone,
			actedLine{Status: "finished", Attempts: 3, Outcome: "done", ExternalID: "ch_3"}, "a line", `select reason from settle.task_events`, "note: refunded", false},
		{"as it was shown", []string{"retry", "payment.charge/order_1", "--if-attempts", "3", "--reason", "so"}, exitDone,
			actedLine{Status: "unknown", Attempts: 4, Outcome: "done"}, "", "", "", false},
		{"not as it was shown", []string{"retry", "payment.charge/order_1", "--if-attempts", "2", "--reason", "so"}, exitFailed,
			actedLine{Status: "needs_review", Attempts: 3, Outcome: "changed"}, "look again", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := handMade(t)
			if c.request {
				atProvider(t, env, 2)
			}
			before := value(t, env, wholeTable)
			if c.want.Outcome != "asked" { // what was asked is asked in a dry run, too
				code, out, errOut := runSettle(t, env, nil, append([]string{"tasks"}, append(slices.Clone(c.args), "--dry-run", "--json")...)...)
				if code != c.code || value(t, env, wholeTable) != before {
					t.Errorf("dry run: exit %d, %s%s; or it changed something", code, out, errOut)
				}
			}
			code, out, errOut := runSettle(t, env, nil, append([]string{"tasks"}, append(slices.Clone(c.args), "--json")...)...)
			if code != c.code || (code != exitDone) != (strings.Count(errOut, "\n") == 1) {
				t.Fatalf("exit %d, %s%s", code, out, errOut)
			}
			got := actedLines(t, out)[0]
			if got.Kind != "payment.charge" || !strings.Contains(strings.Join(c.args, " "), got.Key) || got.Task == 0 || !strings.Contains(got.Message, c.says) {
				t.Errorf("%+v, want it to say %q", got, c.says)
			}
			if c.request {
				c.want.ExternalID = got.ExternalID
			}
			c.want.Task, c.want.Kind, c.want.Key, c.want.Message = got.Task, got.Kind, got.Key, got.Message
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if c.after != "" && value(t, env, c.after) != c.is {
				t.Errorf("%s is %q, want %q", c.after, value(t, env, c.after), c.is)
			}
			if c.code != exitDone && value(t, env, wholeTable) != before {
				t.Error("something was changed")
			}
		})
	}
}

// Several tasks are acted on in order; one that does not allow it does not stop the others.
func TestSeveralTasks(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	code, out, errOut := runSettle(t, env, nil, "tasks", "retry", "payment.charge/order_1", "--reason", "so", "payment.charge/order_99", "3", "payment.charge/order_4")
	if code != exitFailed || strings.Count(out, "asked before anything is sent") != 2 ||
		!strings.Contains(errOut, "no task payment.charge/order_99") || !strings.Contains(errOut, "task 3 (payment.charge order_3): not done: it is done") ||
		!strings.Contains(errOut, "2 of 4 tasks") {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	// Pressed again, there is nothing left to do, and it is said why.
	code, out, errOut = runSettle(t, env, nil, "tasks", "retry", "1", "--reason", "so")
	if code != exitFailed || out != "" || !strings.Contains(errOut, "asked about it by itself") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
}

func TestTheActorIsWhoRunsTheProgram(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	if code, out, errOut := runSettle(t, env, nil, "tasks", "note", "1", "--reason", "so"); code != exitDone {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if got := value(t, env, `select actor || ' ' || length(trace_id) from settle.task_events`); got != me.Username+" 32" {
		t.Errorf("by %q in a trace of so many digits, want %q", got, me.Username)
	}
}

// A corrected message that was refused as a conflict becomes the content of the task.
func TestSupersedeByHand(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	execute(t, env["DATABASE_URL"], `insert into settle.refusals (kind, key, reason, body, body_size, digest, cut, sequence) values
		('payment.charge', 'order_5', 'conflict', '{"order_id":"5","customer_id":"c_1","amount":1300,"currency":"EUR"}', 1, '\x00', false, 1),
		('payment.charge', 'order_9', 'conflict', '{"order_id":"9","customer_id":"c_1","amount":1300,"currency":"EUR"}', 1, '\x00', false, 2),
		('report.create', 'order_5', 'conflict', '{}', 1, '\x00', false, 3),
		('payment.charge', 'order_5', 'conflict', '{"order_id":', 1, '\x00', true, 4)`)
	before := value(t, env, wholeTable)
	for refusal, says := range map[string]string{"2": "another key", "3": "report.create", "4": "only the beginning", "5": "no refusal 5"} {
		code, out, errOut := runSettle(t, env, nil, "tasks", "supersede", "payment.charge/order_5", "--refusal", refusal, "--reason", "so")
		if code != exitUsage || out != "" || !strings.Contains(errOut, says) {
			t.Errorf("refusal %s: exit %d, %s%s; want %q", refusal, code, out, errOut, says)
		}
	}
	if value(t, env, wholeTable) != before {
		t.Error("something was changed")
	}
	code, out, errOut := runSettle(t, env, nil, "tasks", "supersede", "payment.charge/order_5", "--refusal", "1", "--reason", "so")
	if code != exitDone || value(t, env, `select status || convert_from(payload, 'UTF8') from settle.tasks where key = 'order_5'`) !=
		`started{"order_id":"5","customer_id":"c_1","amount":1300,"currency":"EUR"}` {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
}

func TestShowSaysWhatCanBeDone(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	for key, says := range map[string][]string{
		"order_1": {"its attempts are used up and nobody could tell", "settle tasks ask 1 ", "settle tasks retry 1 --reason TEXT --if-attempts 3", "settle tasks send-again 1",
			"settle tasks resolve 1 --as finished --external-id ID", "--as failed, without id and result", "settle tasks note 1"},
		"order_2": {"being checked", "settle tasks ask 2 ", "settle tasks resolve 2", "settle tasks send-again 2"},
		"order_3": {"is done", "settle tasks note 3"},
		"order_4": {"failed for good", "settle tasks retry 4 --reason TEXT "},
		"order_5": {"its data contradict ours", "settle tasks supersede 5 --refusal ID", "settle tasks cancel 5"},
		"order_6": {"the local rows were refused", "settle tasks retry 6", "committed here, and nothing is sent"},
		"order_7": {"is at work", "settle tasks note 7"},
		"order_8": {"nothing was sent yet", "settle tasks cancel 8"},
	} {
		code, out, errOut := runSettle(t, env, nil, "tasks", "show", "payment.charge/"+key)
		if code != exitDone {
			t.Fatalf("%s: exit %d: %s", key, code, errOut)
		}
		for _, s := range append(says, "What can be done") {
			if !strings.Contains(out, s) {
				t.Errorf("%s: %q is not in\n%s", key, s, out)
			}
		}
		code, text, _ := runSettle(t, env, nil, "tasks", "show", "--json", "payment.charge/"+key)
		var story struct {
			Next []struct{ Act, Command, Effect string }
		}
		if err := json.Unmarshal([]byte(text), &story); err != nil || code != exitDone || len(story.Next) != strings.Count(out, "settle tasks ") {
			t.Errorf("%s as JSON: exit %d (%v), %s", key, code, err, text)
		}
		for _, n := range story.Next { // what is offered is possible
			if n.Act == "resolve" || n.Act == "supersede" {
				continue
			}
			if code, out, errOut := runSettle(t, env, nil, "tasks", n.Act, "payment.charge/"+key, "--dry-run"); code != exitDone {
				t.Errorf("%s %s: exit %d, %s%s", n.Act, key, code, out, errOut)
			}
		}
	}
}

// A result that is not the kind's own is wrong use: one line that names the member, and nothing is changed.
func TestResultsThatDoNotFit(t *testing.T) {
	t.Parallel()
	env := handMade(t)
	before := value(t, env, wholeTable)
	for given, says := range map[string]string{
		`{"charge_id":"ch_9","status":"succeeded","amount":1200}`: "amount",
		`{"charge_id":"ch_9"}`:              "member status is missing",
		`{"charge_id":9,"status":"done"}`:   "charge_id",
		`{"Charge_ID":"ch_9","status":"s"}`: "did you mean charge_id",
		`ch_9`:                              "not a JSON object",
	} {
		code, out, errOut := runSettle(t, env, strings.NewReader(given), "tasks", "resolve", "1", "--as", "finished", "--result", "-", "--reason", "so")
		if code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, says) {
			t.Errorf("%s: exit %d, %s%s; want %q", given, code, out, errOut, says)
		}
	}
	code, _, errOut := runSettle(t, env, strings.NewReader(charged), "tasks", "resolve", "1", "--as", "finished", "--external-id", "ch_8", "--result", "-", "--reason", "so")
	if code != exitUsage || !strings.Contains(errOut, "ch_8") || !strings.Contains(errOut, "ch_9") {
		t.Errorf("two ids: exit %d, %s", code, errOut)
	}
	if value(t, env, wholeTable) != before {
		t.Error("something was changed")
	}
}

// D-44: two people press retry on a charge whose answer was never heard. One attempt comes of it, and it asks.
func TestD44ARetryByHandOfAChargeThatHappened(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["SETTLE_MAX_FAILURES"], env["SETTLE_DEADLINE"], env["SETTLE_PROVIDER_TIMEOUT"], env["SETTLE_RECOVER_EVERY"] = "1", "1s", "1s", "200ms"
	put(t, env["SETTLE_PROVIDER_URL"]+"/faults", `[{"count": 1, "delay-after": "1m"}]`)
	worker := start(t, env, "work")
	if code, _, errOut := runSettle(t, env, strings.NewReader(charge(7)), "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatalf("publish: exit %d, %s", code, errOut)
	}
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_7", "needs_review")
	if code, out, _ := runSettle(t, env, nil, "tasks", "show", "payment.charge/order_7"); code != exitDone || !strings.Contains(out, "settle tasks retry 1 --reason TEXT") {
		t.Errorf("show: exit %d, %s", code, out)
	}
	attempts := value(t, env, `select attempts::text from settle.tasks`)
	codes := make(chan int, 2)
	for range 2 {
		go func() {
			code, _, _ := runSettle(t, env, nil, "tasks", "retry", "payment.charge/order_7", "--reason", "so", "--if-attempts", attempts)
			codes <- code
		}()
	}
	if first, second := <-codes, <-codes; first+second != exitDone+exitFailed {
		t.Errorf("exits %d and %d, want one to be done and one to be told", first, second)
	}
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_7", "finished")
	if _, body := get(t, env["SETTLE_PROVIDER_URL"]+"/stats?idempotency_key=order_7"); !strings.Contains(body, `"requests":1`) || !strings.Contains(body, `"effects":1`) {
		t.Errorf("stats of the provider: %s; want one request and one effect", body)
	}
	if n := value(t, env, `select count(*)::text from settle.task_events where reason = 'retry: so'`); n != "1" {
		t.Errorf("%s lines about a retry in the history", n)
	}
	if paid := value(t, env, `select status from shop.orders where order_id = '7'`); paid != "paid" {
		t.Errorf("the order is %s", paid)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("work: exit %d", code)
	}
}
