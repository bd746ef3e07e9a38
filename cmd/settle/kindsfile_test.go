package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A kind that only the file has, at the provider's reports: no kind of the build is served.
const archiveKind = `settle: 1
kinds:
  archive.create:
    contract: {effect: one report}
    job: {number: id, note: optional text}
    key: archive/${job.number}
    provider: {url: "${env:ARCHIVE_URL}", keyed: true}
    send:
      path: /reports
      body:
        task_id: 7
        report_type: "archive of ${job.number}"
      answers:
        - {status: [200, 201], where: {status: ready}, means: done}
    result: {id: "${answer.report_id}"}
    external_id: id
    look_up:
      by_key: {path: /reports, query: {idempotency_key: "${provider_key}"}}
      answers:
        - {status: 200, where: {status: ready}, means: found}
        - {status: 404, where: {error: not_found}, means: absent}
      same: {report_type: "archive of ${job.number}"}
`

func writeKinds(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kinds.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAKindOfAFileFromPublishToShow(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["ARCHIVE_URL"], env["SETTLE_PROVIDER_URL"] = env["SETTLE_PROVIDER_URL"], ""
	file := writeKinds(t, archiveKind)
	worker := start(t, env, "work", "--kinds", file)
	worker.await(`"msg":"serving"`)
	env["SETTLE_KINDS_FILE"] = file

	job := strings.NewReader(`{"number": 12, "note": "as soon as possible"}` + "\n")
	if code, out, errOut := runSettle(t, env, job, "publish", "--kind", "archive.create", "--wait=1m"); code != exitDone || !strings.Contains(out, `"id"`) {
		t.Fatalf("publish: exit %d, %s%s", code, out, errOut)
	}
	again := strings.NewReader(`{"number": "12", "note": "as soon as possible"}` + "\n")
	if code, out, errOut := runSettle(t, env, again, "publish", "--kind", "archive.create", "--wait=1m"); code != exitDone {
		t.Errorf("the other spelling of the id is another job: exit %d, %s%s", code, out, errOut)
	}
	for _, args := range [][]string{{"tasks", "show"}, {"tasks", "ask"}} {
		code, out, errOut := runSettle(t, env, nil, append(args, "archive.create/archive/12")...)
		if out += errOut; strings.Contains(out, "no such kind") || !strings.Contains(out, "archive/12") || code > exitFailed {
			t.Errorf("%s: exit %d, %s", args, code, out)
		}
	}
	if _, body := get(t, env["ARCHIVE_URL"]+"/stats"); !strings.Contains(body, `"effects":1`) {
		t.Errorf("the provider says %s", body)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("work: exit %d after SIGTERM:\n%s", code, strings.Join(worker.all, "\n"))
	}
}

func TestKindsCheckExitsWith3AndTellsAllLines(t *testing.T) {
	t.Parallel()
	bad := writeKinds(t, strings.NewReplacer("keyed: true", "keyd: true", "means: done", "means: don").Replace(archiveKind))
	code, out, errOut := runSettle(t, nil, nil, "kinds", "check", bad)
	if code != exitNotHeld || !strings.Contains(out, bad+":7: archive.create: ") || !strings.Contains(out, bad+":14: archive.create: ") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	code, out, _ = runSettle(t, nil, nil, "kinds", "check", "--json", bad)
	for line := range strings.Lines(out) {
		var p struct {
			Line int
			Text string
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Line == 0 || p.Text == "" {
			t.Errorf("%v in %s", err, line)
		}
	}
	if code != exitNotHeld || strings.Count(out, "\n") < 2 {
		t.Errorf("--json: exit %d, %s", code, out)
	}
	good := writeKinds(t, archiveKind)
	if code, out, errOut := runSettle(t, nil, nil, "kinds", "check", good); code != exitDone || !strings.Contains(out, "can be used: 1 kinds, limits of 0") {
		t.Errorf("a sound file: exit %d, %s%s", code, out, errOut)
	}
	if code, out, _ := runSettle(t, nil, nil, "kinds", "check", "--ready", good); code != exitNotHeld || !strings.Contains(out, "ARCHIVE_URL is not set") {
		t.Errorf("--ready: exit %d, %s", code, out)
	}
	if code, _, errOut := runSettle(t, nil, nil, "kinds", "check", "no-such-file"); code != exitUsage || !strings.Contains(errOut, "no-such-file") {
		t.Errorf("no file: exit %d, %s", code, errOut)
	}
}

func TestAWorkerNeedsAFileOfKindsThatCanBeUsed(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1"}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no file":        {[]string{"--kinds", "no-such-file"}, "no-such-file"},
		"not usable":     {[]string{"--kinds", writeKinds(t, "settle: 1\nkinds: {}\n")}, "declares no kind"},
		"secret missing": {[]string{"--kinds", writeKinds(t, archiveKind)}, "ARCHIVE_URL is not set"},
		"unknown kind":   {[]string{"--kinds", writeKinds(t, archiveKind), "--kind", "payment.charge"}, "known are archive.create"},
	} {
		code, out, errOut := runSettle(t, env, nil, append([]string{"work"}, c.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(errOut, "--kind") || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errOut)
		}
	}
}

// A flag or its variable goes before the file, the file before the default; a kind of the file takes the place of a
// built-in one.
func TestFlagsGoBeforeTheFileOfKinds(t *testing.T) {
	t.Parallel()
	limits := "    policy: {deadline: 7s, max_failures: 9}\n    send:\n"
	file := writeKinds(t, strings.Replace(strings.Replace(archiveKind, "archive.create", "report.create", 1), "    send:\n", limits, 1))
	env := map[string]string{"SETTLE_KINDS_FILE": file, "SETTLE_MAX_FAILURES": "3", "ARCHIVE_URL": "http://u:s3cret@archive/x?token=s3cret"}
	code, out, errOut := runSettle(t, env, nil, "kinds", "--json", "--kind", "report.create")
	for _, says := range []string{`"deadline":"7s"`, `"max_failures":3`, `"max_age":"24h"`, `"effect":"one report"`, `"identity":"http://archive/x"`} {
		if !strings.Contains(out, says) {
			t.Errorf("exit %d, no %s in %s%s", code, says, out, errOut)
		}
	}
	if strings.Contains(out+errOut, "s3cret") {
		t.Errorf("shows a secret: %s%s", out, errOut)
	}
	if code, out, errOut := runSettle(t, env, nil, "kinds", "--json"); code != exitDone || strings.Count(out, `"kind":"report.create"`) != 1 || strings.Count(out, "\n") != 5 {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
}

const builtInLimits = `settle: 1
built_in:
  payment.charge:
    policy: {max_failures: 2, retention: 1000h, lease_policy: strict, deadline: 9s}
    provider: {max_per_second: 50, keyed: false, absent_after: 1m}
  contact.sync:
    policy: {max_age: 2h}
`

// Flags go before variables, variables before the file, the file before the defaults, for each kind and each limit alone.
func TestLimitsOfBuiltInKindsComeFromTheFile(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SETTLE_KINDS_FILE": writeKinds(t, builtInLimits), "SETTLE_DEADLINE": "8s", "SETTLE_ABSENT_AFTER": "2m"}
	code, out, errOut := runSettle(t, env, nil, "kinds", "--json", "--max-age", "3h")
	kinds := map[string]kindObject{}
	for line := range strings.Lines(out) {
		var k kindObject
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		kinds[k.Kind] = k
	}
	if code != exitDone || len(kinds) != 5 {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	charge, report, contact := kinds["payment.charge"], kinds["report.create"], kinds["contact.sync"]
	if p := charge.Policy; p.MaxFailures != 2 || p.Retention != "1000h" || p.Lease != leaseStrict || p.Deadline != "8s" || p.MaxAge != "3h" {
		t.Errorf("charges: %+v", p)
	}
	if p := charge.Provider; p.MaxPerSecond != 50 || p.Keyed || p.AbsentAfter != "2m" || p.KeyLifetime != "24h" {
		t.Errorf("charges: %+v", p)
	}
	if p := report.Policy; p.MaxFailures != 5 || p.Retention != "168h" || !report.Provider.Keyed {
		t.Errorf("reports: %+v %+v", p, report.Provider)
	}
	if p := contact.Policy; p.MaxAge != "3h" {
		t.Errorf("contacts: %+v", p)
	}
	if _, out, _ := runSettle(t, env, nil, "kinds", "--json", "--kind", "contact.sync"); !strings.Contains(out, `"max_age":"2h"`) {
		t.Errorf("contacts without the flag: %s", out)
	}
	env["SETTLE_RETENTION"] = "24h"
	if _, out, _ := runSettle(t, env, nil, "kinds", "--json", "--kind", "payment.charge"); !strings.Contains(out, `"retention":"24h"`) {
		t.Errorf("charges with SETTLE_RETENTION: %s", out)
	}
}

// A file that only has limits brings no provider.
func TestAFileOfLimitsAloneStillNeedsAProvider(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1", "SETTLE_KINDS_FILE": writeKinds(t, builtInLimits)}
	for _, args := range [][]string{{"work"}, {"recover", "--reason", "so"}, {"tasks", "ask", "1", "--reason", "so"}} {
		if code, _, errOut := runSettle(t, env, nil, args...); code != exitUsage || !strings.Contains(errOut, "--provider-url") {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
	}
}

func TestWrongLimitsOfBuiltInKindsAreToldWithTheirLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, line, says string }{
		"misspelt":     {"max_age", "max_aeg", "7", "did you mean max_age?"},
		"no such kind": {"contact.sync", "contact.synk", "6", "has no such kind"},
		"no provider":  {"    policy: {max_age: 2h}", "    provider: {max_in_flight: 2}", "7", "calls no provider"},
		"of the file":  {"provider: {max_per", "provider: {url: http://h, max_per", "5", `unknown key "url"`},
		"together":     {"max_age: 2h", "backoff_min: 2h", "6", "ackoff"},
		"nothing":      {"    policy: {max_age: 2h}", "    policy: {}", "6", "nothing is changed"},
		"too short":    {"deadline: 9s", "deadline: 9ms", "4", "at least 1s"},
		"declared too": {"settle: 1\n", "settle: 1\n" + strings.Replace(strings.TrimPrefix(archiveKind, "settle: 1\n"), "archive.create", "payment.charge", 1), "24", "its limits belong there"},
	} {
		file := writeKinds(t, strings.Replace(builtInLimits, c.old, c.new, 1))
		code, out, errOut := runSettle(t, nil, nil, "kinds", "check", file)
		if code != exitNotHeld || !strings.Contains(out, file+":"+c.line+": ") || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit %d, no %q on line %s in %s%s", name, code, c.says, c.line, out, errOut)
		}
		if code, _, errOut := runSettle(t, nil, nil, "kinds", "--kinds", file); code != exitUsage || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: settle kinds: exit %d, %s", name, code, errOut)
		}
	}
}
