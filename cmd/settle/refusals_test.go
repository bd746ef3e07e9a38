package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// refused puts refusals 1 to 4 into a fresh database: malformed, a conflict with task 3, one that was cut, no text at all.
func refused(t *testing.T) (env map[string]string) {
	t.Helper()
	env = oneOfEach(t)
	execute(t, env["DATABASE_URL"], `
		insert into settle.refusals (at, kind, key, reason, detail, stream, sequence, subject, headers, body, body_size, cut, digest, task_id) values
		(now() - interval '2 days', 'payment.charge', '', 'malformed', E'unexpected \x1b[31m end', 'JOBS', 1, 'jobs.payment.charge', '{"X-Shop":["7"]}', convert_to(E'{"a":\n\t"\x1b[31m"', 'UTF8'), 15, false, '1', null),
		(now(), 'payment.charge', 'order_3', 'conflict', '', 'JOBS', 2, 'jobs.payment.charge', '{}', '{"order_id":"3"}', 16, false, '2', 3),
		(now(), 'report.create', '', 'too_large', '', 'JOBS', 3, 'jobs.report.create', '{"too_large":9000}', '{"x":"xxx', 300000, true, '3', null),
		(now(), 'payment.charge', '', 'malformed', '', 'JOBS', 4, 'jobs.payment.charge', '{}', '\xff00fe', 3, false, '4', null)`)
	return env
}

func TestRefusalsList(t *testing.T) {
	t.Parallel()
	env := refused(t)
	for name, c := range map[string]struct{ args, ids string }{
		"all":         {"", "4 3 2 1"},
		"by kind":     {"--kind report.create", "3"},
		"by reason":   {"--reason malformed", "4 1"},
		"by age":      {"--since 24h", "4 3 2"},
		"by date":     {"--since " + time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly), "4 3 2"},
		"by time":     {"--since " + time.Now().Add(-72*time.Hour).Format(time.RFC3339), "4 3 2 1"},
		"a page":      {"--limit 2", "4 3"},
		"a next page": {"--limit 2 --before 3", "2 1"},
	} {
		code, out, errOut := runSettle(t, env, nil, append([]string{"refusals", "list", "--json"}, strings.Fields(c.args)...)...)
		var ids []string
		for line := range strings.Lines(out) {
			var o refusalObject
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, string(rune('0'+o.Refusal)))
			if o.Body != nil || o.Headers != nil {
				t.Errorf("%s: a list shows content: %s", name, line)
			}
		}
		if strings.Join(ids, " ") != c.ids || code != exitDone {
			t.Errorf("%s: exit %d, %v, want %s; %s", name, code, ids, c.ids, errOut)
		}
	}
	code, out, errOut := runSettle(t, env, nil, "refusals", "list", "--limit", "4")
	if code != exitDone || strings.Count(out, "\n") != 5 || strings.ContainsRune(out, '\x1b') || !strings.Contains(errOut, "--before 1") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
}

func TestRefusalsShow(t *testing.T) {
	t.Parallel()
	env := refused(t)
	for id, says := range map[string][]string{
		"1": {"malformed", "header X-Shop  7", "1 of JOBS", "{\"a\":\n\t\"", "15 bytes"},
		"2": {"conflicts with  3", "order_3", `{"order_id":"3"}`},
		"3": {"300000 bytes, of which the first 9 were kept", `{"x":"xxx`, "too large to be kept"},
		"4": {"ff 00 fe"},
	} {
		code, out, errOut := runSettle(t, env, nil, "refusals", "show", id)
		if code != exitDone || strings.ContainsRune(out, '\x1b') {
			t.Errorf("%s: exit %d: %q %s", id, code, out, errOut)
		}
		for _, s := range says {
			if !strings.Contains(out, s) {
				t.Errorf("%s: %q is not in\n%s", id, s, out)
			}
		}
	}
	var o refusalObject
	if _, out, _ := runSettle(t, env, nil, "refusals", "show", "--json", "4"); json.Unmarshal([]byte(out), &o) != nil || string(o.BodyBase64) != "\xff\x00\xfe" || o.Body != nil {
		t.Errorf("%s", out)
	}
	for id, want := range map[string]int{"5": exitFailed, "x": exitUsage, "0": exitUsage} {
		if code, out, errOut := runSettle(t, env, nil, "refusals", "show", id); code != want || out != "" || errOut == "" {
			t.Errorf("%s: exit %d, want %d: %s%s", id, code, want, out, errOut)
		}
	}
}

func TestRefusalsRepublish(t *testing.T) {
	t.Parallel()
	env := refused(t)
	url, js := withStrays(t)
	env["NATS_URL"] = url
	before := len(stored(t, js))
	run := func(args ...string) (int, string, string) {
		return runSettle(t, env, nil, append([]string{"refusals", "republish"}, args...)...)
	}
	if code, out, errOut := run("--dry-run", "2"); code != exitDone || !strings.Contains(out, "dry run, nothing is changed") || len(stored(t, js)) != before {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	code, out, errOut := run("--json", "--reason", "superseded", "--actor", "anna", "2", "3", "5")
	if code != exitFailed || strings.Count(out, "\n") != 3 {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	for _, s := range []string{`"refusal":2,"kind":"payment.charge","key":"order_3","subject":"jobs.payment.charge","outcome":"done"`,
		`"refusal":3,"kind":"report.create","key":"","subject":"jobs.report.create","outcome":"refused","message":"only the first 9 of 300000`, `"refusal":5,`} {
		if !strings.Contains(out, s) {
			t.Errorf("%s is not in\n%s", s, out)
		}
	}
	messages := stored(t, js)
	if last := messages[len(messages)-1]; len(messages) != before+1 || string(last.Data) != `{"order_id":"3"}` || last.Subject != "jobs.payment.charge" {
		t.Errorf("%d messages, the last %q", len(messages), last.Data)
	}
	if code, out, errOut := run("--reason", "again", "2"); code != exitFailed || out != "" || !strings.Contains(errOut, "by anna") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if _, out, _ := runSettle(t, env, nil, "refusals", "show", "2"); !strings.Contains(out, "by anna, as message 10: superseded") {
		t.Errorf("%s", out)
	}
	// A kind that nobody serves: the message would lie there for ever.
	execute(t, env["DATABASE_URL"], `update settle.refusals set cut = false where id = 3`)
	if code, out, errOut := run("--reason", "now", "3"); code != exitFailed || out != "" || !strings.Contains(errOut, "no consumer") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if n := len(stored(t, js)); n != before+1 {
		t.Errorf("%d messages", n)
	}
}

func TestRefusalsWrongUse(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t), "NATS_URL": "nats://127.0.0.1:1"}
	for _, args := range []string{"list --reason nonsense", "list --since yesterday", "list --since -1h", "list --limit 0", "list --before 0", "republish 1",
		"republish --reason x", "republish --reason x one", "show"} {
		if code, out, errOut := runSettle(t, env, nil, append([]string{"refusals"}, strings.Fields(args)...)...); code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d: %s%s", args, code, out, errOut)
		}
	}
}
