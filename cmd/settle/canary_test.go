package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// What must never be seen. Each comes in on every way there is.
const (
	canaryCard     = "4111111111111111"
	canaryEmail    = "canary@example.com"
	canaryToken    = "tok_canary_8f3a9c"
	canaryPassword = "hunter2canary"
)

var canaries = []string{canaryCard, canaryEmail, canaryToken, canaryPassword, url.QueryEscape(canaryEmail)}

// quoting is a text that has all of them, as providers write such things.
var quoting = `{"error":"bad_request","message":"card ` + canaryCard + ` of ` + canaryEmail + ` was refused","token":"` + canaryToken +
	`","debug":"Authorization: Bearer ` + canaryToken + `, postgres://settle:` + canaryPassword + `@db/x?password=` + canaryPassword + `"}`

// indiscreet is a provider that repeats what it was told, in each way that a worker reads.
func indiscreet(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		order := string(body) + r.URL.Query().Get("idempotency_key")
		w.Header().Set("X-Echo", quoting)
		switch {
		case strings.Contains(order, "refused"):
			w.WriteHeader(http.StatusBadRequest)
		case strings.Contains(order, "redirected"):
			w.Header().Set("Location", "https://login.example/?token="+canaryToken+"&mail="+url.QueryEscape(canaryEmail)+"&card="+canaryCard)
			w.WriteHeader(http.StatusFound)
		case strings.Contains(order, "broken"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.Contains(order, "cut"):
			w.Header().Set("Content-Length", "100000")
		}
		_, _ = io.WriteString(w, quoting)
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User, u.RawQuery = url.UserPassword("settle", canaryPassword), "api_key="+canaryToken
	return u.String()
}

// collector takes traces, and gives all bytes that came.
type collector struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return
		}
		body = unzipped
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.Copy(&c.all, body)
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// Nothing that is secret is in a log line, a span, a column for errors, or in what a command prints unasked.
func TestCanary(t *testing.T) {
	t.Parallel()
	broker, js := devtest.JetStream(t)
	var traces collector
	tracing := httptest.NewServer(&traces)
	t.Cleanup(tracing.Close)
	admin := devtest.Database(t)
	env := map[string]string{
		"DATABASE_URL": withPassword(t, admin, canaryPassword), "NATS_URL": broker, "SETTLE_HTTP_ADDR": "off", "SETTLE_CREATE_ORDERS": "true",
		"SETTLE_PROVIDER_URL": indiscreet(t), "OTEL_EXPORTER_OTLP_ENDPOINT": tracing.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"SETTLE_LOG_LEVEL": "debug", "SETTLE_MAX_AGE": "3s", "SETTLE_BACKOFF_MIN": "100ms", "SETTLE_BACKOFF_MAX": "200ms",
	}
	worker := start(t, env, "work")
	worker.await(`"msg":"serving"`)
	publish := func(kind, body string) {
		t.Helper()
		m := &nats.Msg{Subject: "jobs." + kind, Data: []byte(body), Header: nats.Header{"Authorization": {"Bearer " + canaryToken}, "X-Customer": {canaryEmail},
			"X-Card": {canaryCard}, "tracestate": {"mail=" + canaryEmail}}}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, order := range []string{"refused", "redirected", "broken", "cut", "unread"} {
		publish("payment.charge", fmt.Sprintf(`{"order_id":%q,"customer_id":"c_1","amount":1200,"currency":"EUR","card":%q,"email":%q,"token":%q}`,
			order, canaryCard, canaryEmail, canaryToken))
	}
	publish("payment.charge", `{"order_id":{"card":"`+canaryCard+`"},"email":"`+canaryEmail+`"}`)
	publish("payment.charge", `{"order_id":"x","amount":"`+canaryEmail+`"`)
	publish("payment.charge", `{"order_id":"refused","customer_id":"`+canaryEmail+`","amount":1,"currency":"EUR"}`)
	awaitTask(t, admin, "payment.charge", "order_refused", "failed")
	for _, order := range []string{"broken", "cut", "unread", "redirected"} {
		awaitTask(t, admin, "payment.charge", "order_"+order, "needs_review")
	}
	awaitRow(t, admin, `(select count(*) as n from settle.refusals) as r where n = 3`)
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}

	clean(t, "the log", strings.Join(worker.all, "\n"))
	if spans := traces.text(); !strings.Contains(spans, "order_broken") {
		t.Error("no spans came")
	} else {
		clean(t, "the spans", spans)
	}
	columns := query[string](t, admin, `select string_agg(concat_ws(' ', x), E'\n') from (
		select last_error, answer, error_class, review_cause, provider from settle.tasks
		union all select reason, actor, external_id, '', '' from settle.task_events
		union all select detail, key, kind, '', '' from settle.refusals
		union all select last_error, '', '', '', '' from settle.outbox) as x`)
	clean(t, "the columns", columns)
	for _, mark := range []string{"[card]", "[email]", "[secret]"} {
		if !strings.Contains(columns, mark) {
			t.Errorf("%s is not there: nothing was fed?\n%s", mark, columns)
		}
	}
	if kept := query[string](t, admin, `select convert_from(payload, 'utf8') from settle.tasks where key = 'order_broken'`); !strings.Contains(kept, canaryCard) {
		t.Errorf("the job itself was changed: %s", kept)
	}
	cleanCommands(t, env)
}

// cleanCommands runs the commands that people look with.
func cleanCommands(t *testing.T, env map[string]string) {
	t.Helper()
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = ""
	commands := [][]string{{"tasks", "list"}, {"refusals", "list"}, {"doctor"}, {"drift"}, {"kinds"}, {"tasks", "find", "order_broken"}, {"alerts"}}
	for _, order := range []string{"refused", "redirected", "broken", "cut", "unread"} {
		commands = append(commands, []string{"tasks", "show", "payment.charge/order_" + order})
	}
	for _, args := range commands {
		for _, more := range [][]string{nil, {"--json"}} {
			args := append(args[:len(args):len(args)], more...)
			code, out, errOut := runSettle(t, env, nil, args...)
			if code == exitUsage || out == "" && args[0] != "drift" {
				t.Errorf("%v: exit %d: %s%s", args, code, out, errOut)
			}
			clean(t, strings.Join(args, " "), out+errOut)
		}
	}
	env["DATABASE_URL"] = strings.Replace(env["DATABASE_URL"], canaryPassword, canaryPassword+"x", 1)
	for _, args := range [][]string{{"doctor"}, {"tasks", "list"}, {"work"}} {
		code, out, errOut := runSettle(t, env, nil, args...)
		if code == exitDone {
			t.Errorf("%v: exit %d with a wrong password", args, code)
		}
		clean(t, strings.Join(args, " "), out+errOut)
	}
}

// clean fails if a text has anything in it that must not be seen.
func clean(t *testing.T, what, text string) {
	t.Helper()
	for _, canary := range canaries {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("%s has %s: …%q…", what, canary, text[max(at-200, 0):min(at+100, len(text))])
		}
	}
}

// withPassword makes a role with this password, and gives the URL with which it logs in.
func withPassword(t *testing.T, address, password string) string {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	role := "canary_of_" + config.Database
	execute(t, address, fmt.Sprintf(`create role %[1]s login password '%[2]s'; grant usage on schema settle, shop to %[1]s;
		grant all on all tables in schema settle to %[1]s; grant all on all tables in schema shop to %[1]s`, role, password))
	t.Cleanup(func() { dropRole(t, address, role) })
	return fmt.Sprintf("postgres://%s:%s@%s:%d/%s?sslmode=disable", role, password, config.Host, config.Port, config.Database)
}
