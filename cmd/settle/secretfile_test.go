package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// asFiles moves the values of variables into files, with a line end as echo leaves it.
func asFiles(t *testing.T, env map[string]string, names ...string) {
	t.Helper()
	for _, name := range names {
		env[name+"_FILE"] = secretIn(t, env[name]+"\n")
		delete(env, name)
	}
}

func secretIn(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mounted")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// All secrets come from files: a job is done with them, and nothing that a person looks at shows one.
func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	env := servers(t)
	admin := env["DATABASE_URL"]
	told := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case told <- r.Header.Get("X-Token"):
		default:
		}
	}))
	t.Cleanup(collector.Close)
	env["DATABASE_URL"] = withPassword(t, admin, canaryPassword)
	env["SETTLE_PROVIDER_URL"] = strings.Replace(env["SETTLE_PROVIDER_URL"], "://", "://settle:"+canaryPassword+"@", 1)
	env["SETTLE_ALERT_WEBHOOK"] = collector.URL + "/" + canaryToken
	env["OTEL_EXPORTER_OTLP_ENDPOINT"], env["OTEL_EXPORTER_OTLP_PROTOCOL"] = collector.URL, "http/protobuf"
	env["OTEL_EXPORTER_OTLP_HEADERS"] = "X-Token=" + canaryToken
	env["SETTLE_LOG_LEVEL"] = "debug"
	asFiles(t, env, "DATABASE_URL", "NATS_URL", "SETTLE_PROVIDER_URL", "SETTLE_ALERT_WEBHOOK", "OTEL_EXPORTER_OTLP_HEADERS")

	worker := start(t, env, "work")
	worker.await(`"msg":"serving"`)
	job := strings.NewReader(`{"task_id": 42, "report_type": "monthly"}` + "\n")
	if code, out, errOut := runSettle(t, env, job, "publish", "--kind", "report.create", "--wait=1m"); code != exitDone {
		t.Fatalf("publish: exit %d, %s%s", code, out, errOut)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("work: exit %d", code)
	}
	if got := <-told; got != canaryToken {
		t.Errorf("the collector was told %q", got)
	}
	clean(t, "the log", strings.Join(worker.all, "\n"))
	for _, args := range [][]string{{"work", "--help"}, {"doctor"}, {"kinds"}, {"kinds", "--json"}, {"drift"}, {"tasks", "show", "report.create/report-task-42"}} {
		code, out, errOut := runSettle(t, env, nil, args...)
		if code == exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
		clean(t, strings.Join(args, " "), out+errOut)
	}
}

// Help shows no variable's value either.
func TestHelpShowsNoSecret(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://x:" + canaryPassword + "@h", "NATS_URL": "nats://" + canaryToken + "@h",
		"SETTLE_PROVIDER_URL": "http://x:" + canaryPassword + "@h", "SETTLE_ALERT_WEBHOOK": "http://h/" + canaryToken}
	for _, args := range [][]string{{"work", "--help"}, {"work", "--slot", "5"}, {"migrate", "--help"}, {"publish", "-h"}} {
		_, out, errOut := runSettle(t, env, nil, args...)
		clean(t, strings.Join(args, " "), out+errOut)
	}
}

func TestASecretFileThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	sound := secretIn(t, "postgres://127.0.0.1:1/"+canaryToken)
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		says string
	}{
		"both":          {map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/" + canaryToken, "DATABASE_URL_FILE": sound}, []string{"migrate"}, "DATABASE_URL and DATABASE_URL_FILE are both set"},
		"not there":     {map[string]string{"DATABASE_URL_FILE": sound + "x"}, []string{"migrate"}, "DATABASE_URL_FILE names a file that cannot be used: no such file"},
		"the secret":    {map[string]string{"DATABASE_URL_FILE": "postgres://x:" + canaryPassword + "@h/db"}, []string{"migrate"}, "in case it is the secret itself"},
		"a folder":      {map[string]string{"NATS_URL_FILE": filepath.Dir(sound)}, []string{"publish"}, "NATS_URL_FILE names a file that cannot be used: is a directory"},
		"empty":         {map[string]string{"NATS_URL_FILE": secretIn(t, " \n")}, []string{"publish"}, "NATS_URL_FILE names a file that cannot be used: it is empty"},
		"too large":     {map[string]string{"SETTLE_ALERT_WEBHOOK_FILE": secretIn(t, strings.Repeat(canaryToken, 5000))}, []string{"work"}, "more than 65536 bytes"},
		"of a token":    {map[string]string{"OTEL_EXPORTER_OTLP_HEADERS_FILE": sound + "x"}, []string{"work"}, "OTEL_EXPORTER_OTLP_HEADERS_FILE names a file that cannot be used"},
		"a verb's":      {map[string]string{"SETTLE_PROVIDER_URL_FILE": sound + "x"}, []string{"tasks", "ask", "1"}, "SETTLE_PROVIDER_URL_FILE"},
		"not a URL":     {map[string]string{"DATABASE_URL_FILE": secretIn(t, "postgres://a:"+canaryPassword+"/x@h")}, []string{"migrate"}, "DATABASE_URL"},
		"no provider's": {map[string]string{"DATABASE_URL_FILE": sound, "NATS_URL": "nats://127.0.0.1:1", "SETTLE_PROVIDER_URL_FILE": secretIn(t, "ftp://x:"+canaryPassword+"@h")}, []string{"work"}, "SETTLE_PROVIDER_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := runSettle(t, c.env, nil, c.args...)
			if code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, c.says) {
				t.Errorf("exit %d, want %d, with %q: %s%s", code, exitUsage, c.says, out, errOut)
			}
			clean(t, "the error", errOut)
			if strings.Contains(errOut, sound) {
				t.Errorf("shows the name of the file: %s", errOut)
			}
		})
	}
}

// What a flag says goes before variables and files, whatever they are.
func TestAFlagGoesBeforeASecretFile(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL_FILE": "no-such-file"}
	if code, out, errOut := runSettle(t, env, nil, "migrate", "--database-url", devtest.Database(t)); code != exitDone {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
}
