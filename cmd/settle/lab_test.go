//go:build !nodemo

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/lab"
)

// ended is how a task of a lab ended, as the tables say it; the lab's own checks have no part in it.
type ended struct {
	status   string // "" : no row
	attempts int    // 0: any
	reports  int    // that the provider made
	points   int    // which of them the row has, from 1; 0: none
	posts    string // Idempotency-Key and status of the requests for it that carried a key, sorted
}

// labEnds is what each lab must come to, task by task.
var labEnds = map[string]struct{ plain, broken []ended }{
	"duplicate": {
		[]ended{{"finished", 2, 2, 2, ""}},
		[]ended{{"needs_review", 2, 1, 0, ""}, {"finished", 1, 1, 1, ""}},
	},
	"idempotent": {
		[]ended{{"finished", 2, 1, 1, "KEY 200, KEY 201"}},
		[]ended{{"finished", 2, 2, 2, "KEY 201, KEY 201"}},
	},
	"timeout": {
		[]ended{{"finished", 2, 1, 1, "KEY 200, KEY 201"}},
		[]ended{{"finished", 2, 2, 2, "KEY-attempt-1 201, KEY-attempt-2 201"}},
	},
	"concurrent": {
		[]ended{{"", 0, 1, 0, "KEY 200, KEY 201, KEY 409"}},
		[]ended{{"", 0, 2, 0, "KEY 201, KEY 201"}},
	},
	"lease": {
		[]ended{{"finished", 1, 1, 1, "KEY 201"}},
		[]ended{{"finished", 2, 2, 2, ""}},
	},
	"lease-stale": {
		[]ended{{"finished", 2, 1, 1, "KEY 201"}},
		[]ended{{"finished", 2, 2, 1, ""}},
	},
	"unknown": {
		[]ended{{"finished", 2, 1, 1, "KEY 201"}, {"needs_review", 0, 1, 0, "KEY -"}},
		[]ended{{"finished", 0, 2, 2, "KEY -, KEY 201"}},
	},
	"retention": {
		[]ended{{"finished", 1, 2, 2, "KEY 201, KEY 201"}},
		[]ended{{"finished", 1, 2, 2, "KEY 201, KEY 201"}},
	},
}

// labEnvironment is what a lab is run with. Another locale than the default would show in its words.
func labEnvironment(url string) map[string]string {
	return map[string]string{"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "DATABASE_URL": url, "NATS_URL": "nats://127.0.0.1:1"}
}

// All labs and all their breaks at the same time in one database (L14), which has a row that is none of their business.
func TestLabsEndAsTheTablesSay(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	url := pool.Config().ConnString()
	bystander := plantBystander(t, pool)
	t.Run("together", func(t *testing.T) {
		for _, name := range lab.Names() {
			for _, broken := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, break %v", name, broken), func(t *testing.T) {
					t.Parallel()
					args := []string{"lab", name, "--json"}
					want := labEnds[name].plain
					if broken {
						args, want = append(args, "--break", "--lang", "ru"), labEnds[name].broken
					}
					r := runLabJSON(t, url, args...)
					if len(want) == 0 || len(r.Tasks) != len(want) {
						t.Fatalf("tasks %v, %d expected", r.Tasks, len(want))
					}
					for i, task := range tasksOf(r) {
						if got := labEnd(t, pool, r.Kind, task, want[i]); got != want[i] {
							t.Errorf("task %d ended as %+v, want %+v", task, got, want[i])
						}
					}
				})
			}
		}
	})
	if now := snapshot(t, pool, "report-task-42"); now != bystander {
		t.Errorf("a row that is not theirs became\n%s\nit was\n%s", now, bystander)
	}
}

// tasksOf are the tasks of a result. A step that a busy machine made twice has moved to a later one.
func tasksOf(r lab.Result) []int64 {
	tasks := slices.Clone(r.Tasks)
	for _, s := range r.Steps {
		tasks[len(tasks)-1] += int64(len(s.View.Notes))
	}
	return tasks
}

func runLabJSON(t *testing.T, url string, args ...string) (r lab.Result) {
	t.Helper()
	code, out, errOut := runSettle(t, labEnvironment(url), nil, args...)
	if code != exitDone {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	if !r.OK || len(r.Broken) != 0 || r.Lab != args[1] || len(r.Steps) == 0 || r.Question == "" || r.Answer == "" || r.Limit == "" {
		t.Errorf("result %+v", r)
	}
	for _, s := range r.Steps {
		if len(s.Checks) == 0 || s.Text == "" || slices.ContainsFunc(s.Checks, func(c lab.Check) bool { return !c.OK }) {
			t.Errorf("step %+v", s)
		}
	}
	if words := regexp.MustCompile(`\{[a-z_.]+\}`).FindAllString(out, -1); words != nil { // shown for a text that is missing
		t.Errorf("texts are missing: %q", words)
	}
	if !strings.Contains(errOut, fmt.Sprint(r.Tasks[0])) {
		t.Errorf("standard error does not name task %d: %s", r.Tasks[0], errOut)
	}
	return r
}

// labEnd reads how a task ended.
func labEnd(t *testing.T, pool *pgxpool.Pool, kind string, task int64, want ended) (e ended) {
	t.Helper()
	key := fmt.Sprint("report-task-", task)
	var id string
	err := pool.QueryRow(t.Context(), `select status, attempts, coalesce(external_id, '') from settle.tasks where kind = $1 and key = $2`,
		kind, key).Scan(&e.status, &e.attempts, &id)
	if err != nil && want.status != "" {
		t.Errorf("task %d: %v", task, err)
	}
	if want.attempts == 0 {
		e.attempts = 0
	}
	rows, err := pool.Query(t.Context(), `select report_id from provider.reports where task_id = $1::numeric order by id`, task)
	if err != nil {
		t.Fatal(err)
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	e.reports, e.points = len(made), slices.Index(made, id)+1
	err = pool.QueryRow(t.Context(), `select coalesce(string_agg(x, ', ' order by x), '') from (
		select replace(key, $1, 'KEY') || ' ' || coalesce(status::text, '-') as x
		from provider.requests where key in ($1, $1 || '-attempt-1', $1 || '-attempt-2') and method = 'POST') as posts`, key).Scan(&e.posts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// plantBystander makes a task of a real kind that a worker may take up, under a key that a lab uses in a database of its own.
func plantBystander(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	_, err := pool.Exec(t.Context(), `insert into settle.tasks (kind, key, status, token, sending, unsure, give_up_at, payload, payload_hash, hash_algorithm)
		values ('report.create', 'report-task-42', 'unknown', gen_random_uuid(), false, true, clock_timestamp() + interval '1 day', '{}', 'h', 'a')`)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot(t, pool, "report-task-42")
}

func snapshot(t *testing.T, pool *pgxpool.Pool, key string) (row string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `select t::text from settle.tasks t where key = $1`, key).Scan(&row); err != nil {
		t.Fatal(err)
	}
	return row
}

// All labs, four times at once, and then again.
func TestAllLabsFourAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	url := devtest.Database(t)
	for range 2 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				code, out, errOut := runSettle(t, labEnvironment(url), nil, "lab", "all")
				if code != exitDone || strings.Count(out, " holds (") != len(lab.Names()) {
					t.Errorf("exit code %d\n%s\n%s", code, out, errOut)
				}
			})
		}
		all.Wait()
	}
}

// Without a database a lab brings everything itself, and leaves nothing behind.
func TestALabBringsItsServers(t *testing.T) {
	t.Parallel()
	env, folder := demoEnvironment(t)
	delete(env, "DATABASE_URL")
	code, out, errOut := runSettle(t, env, nil, "lab", "all")
	if code != exitDone || errOut != "" {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
	}
	flat := strings.Join(strings.Fields(out), " ") // lines are broken anywhere
	for _, text := range []string{"Task ids of this run: 42, 52,", "Kind of the jobs: report.create.", "Its key is report-task-52", "WHAT IT RESTS ON", "See it happen: settle lab lease-stale --break"} {
		if !strings.Contains(flat, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "{") {
		t.Errorf("colors without a terminal, or a text that is missing:\n%s", out)
	}
	leavesNothing(t, folder)
}

// An interrupt in the middle of a lab ends its worker processes and its servers.
func TestALabEndsOnSignal(t *testing.T) {
	t.Parallel()
	env, folder := demoEnvironment(t)
	delete(env, "DATABASE_URL")
	s := start(t, env, "lab", "all", "--logs")
	s.await("msg=serving")
	s.signal(os.Interrupt)
	if code := s.exit(); code != exitFailed || !strings.Contains(strings.Join(s.all, "\n"), "settle: stopped") {
		t.Errorf("exit code %d:\n%s", code, strings.Join(s.all, "\n"))
	}
	leavesNothing(t, folder)
}

// Each lab notices when what it shows is not so: here the database or the provider does not do what it should.
func TestASabotagedLabExitsWith3(t *testing.T) {
	t.Parallel()
	trigger := func(when, table, body string) string {
		return fmt.Sprintf(`create function public.sabotage() returns trigger language plpgsql as $$ begin %s end $$;
			create trigger sabotage %s on %s for each row execute function public.sabotage()`, body, when, table)
	}
	for name, c := range map[string]struct{ sql, flag, says string }{
		"duplicate": {trigger("after insert", "provider.reports", `delete from provider.reports where task_id = new.task_id and id < new.id; return null;`), "",
			"reports: expected 2, saw 1"},
		"idempotent":  {"", lab.IgnoreKeys, "answers: expected 200, 201, saw 201, 201"},
		"timeout":     {"", lab.IgnoreKeys, "answers: expected 200, 201, saw 201, 201"},
		"concurrent":  {"", lab.IgnoreKeys, "waited_for: expected yes, saw no"},
		"lease":       {trigger("before update", "settle.tasks", `new.external_id := 'rep_other'; return new;`), "", "points_at: expected 1, saw rep_other"},
		"lease-stale": {trigger("before update", "settle.tasks", `new.attempts := old.attempts; return new;`), "", "attempts: expected 2, saw 1"},
		"unknown": {trigger("before insert", "provider.reports", `new.visible_at := clock_timestamp() + interval '1 hour'; return new;`), "",
			"status: expected finished, saw needs_review"},
		"retention": {trigger("before delete", "settle.tasks", `return null;`), "", "task: expected none, saw finished"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := devtest.Database(t)
			if c.sql != "" {
				execute(t, url, c.sql)
			}
			args := []string{"lab", name}
			if c.flag != "" {
				args = append(args, "--sabotage", c.flag)
			}
			code, out, errOut := runSettle(t, labEnvironment(url), nil, args...)
			if code != exitNotHeld || !strings.Contains(errOut, c.says) || !strings.HasPrefix(errOut, "settle: it does not hold: lab "+name) {
				t.Errorf("exit code %d, %s\n%s", code, errOut, out)
			}
			if !strings.Contains(out, "✗ ") || !strings.Contains(out, "Lab "+name+" DOES NOT HOLD.") {
				t.Errorf("the story does not tell:\n%s", out)
			}
		})
	}
}

func TestLabSpeaksRussian(t *testing.T) {
	t.Parallel()
	url := devtest.Database(t)
	for what, c := range map[string]struct {
		args     []string
		variable string
		says     string
	}{
		"by the locale":  {nil, "ru_RU.UTF-8", "Лаборатория concurrent: всё сошлось"},
		"by the flag":    {[]string{"--lang", "ru"}, "en_US.UTF-8", "Лаборатория concurrent: всё сошлось"},
		"not by default": {nil, "", "Lab concurrent holds"},
		"flag first":     {[]string{"--lang", "en"}, "ru_RU.UTF-8", "Lab concurrent holds"},
	} {
		env := labEnvironment(url)
		env["LC_MESSAGES"] = c.variable
		code, out, errOut := runSettle(t, env, nil, append([]string{"lab", "concurrent"}, c.args...)...)
		if code != exitDone || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d\n%s\n%s", what, code, out, errOut)
		}
	}
}

// With --step a line of input goes on, and after the end of the input nothing waits.
func TestLabWaitsForEnter(t *testing.T) {
	t.Parallel()
	env := labEnvironment(devtest.Database(t))
	for input, prompts := range map[string]int{"\n\n": 2, "": 2} {
		code, out, errOut := runSettle(t, env, strings.NewReader(input), "lab", "concurrent", "--step")
		if code != exitDone || strings.Count(errOut, "(Enter goes on)") != prompts || !strings.Contains(out, "2. ") {
			t.Errorf("input %q: exit code %d\n%s\n%s", input, code, out, errOut)
		}
	}
	s := start(t, env, "lab", "concurrent", "--step") // its input is empty, so it ends by itself
	if code := s.exit(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

func TestLabRefusesBadUse(t *testing.T) {
	t.Parallel()
	empty := devtest.Database(t)
	execute(t, empty, `drop schema settle cascade`)
	for what, c := range map[string]struct {
		url  string
		args []string
		says string
	}{
		"unknown lab":      {"", []string{"lost"}, "known are duplicate, idempotent"},
		"two labs":         {"", []string{"lease", "unknown"}, "unknown"},
		"unknown language": {"", []string{"lease", "--lang", "de"}, "en, ru"},
		"unknown sabotage": {"", []string{"lease", "--sabotage", "all"}, lab.IgnoreKeys},
		"pauses in JSON":   {"", []string{"lease", "--json", "--step"}, "--step and --json"},
		"no schema":        {empty, []string{"lease"}, "settle migrate"},
		"unreadable URL":   {"postgres://a:se/cret@h", []string{"lease"}, "DATABASE_URL"},
	} {
		code, _, errOut := runSettle(t, labEnvironment(c.url), nil, append([]string{"lab"}, c.args...)...)
		if code != exitUsage || !strings.Contains(errOut, c.says) || strings.Contains(errOut, "cret@") {
			t.Errorf("%s: exit code %d, %s", what, code, errOut)
		}
	}
	code, _, errOut := runSettle(t, nil, nil, "lab-worker")
	if code != exitFailed || !strings.Contains(errOut, "run by the labs") {
		t.Errorf("lab-worker: exit code %d, %s", code, errOut)
	}
}

func TestLabListsTheLabs(t *testing.T) {
	t.Parallel()
	code, out, _ := runSettle(t, nil, nil, "lab")
	_, help, _ := runSettle(t, nil, nil, "lab", "--help")
	for _, name := range lab.Names() {
		line := fmt.Sprintf("  %-12s %s\n", name, lab.Summary(name, lab.English))
		if code != exitDone || !strings.Contains(out, line) || !strings.Contains(help, lab.Summary(name, lab.English)) {
			t.Errorf("exit code %d; %q is not in\n%s\n%s", code, line, out, help)
		}
	}
}
