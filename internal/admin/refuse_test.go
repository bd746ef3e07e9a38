package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// places are those at which something can be done.
var places = []string{"/tasks/1/ask", "/tasks/1/retry", "/tasks/1/send-again", "/tasks/1/resolve", "/tasks/1/supersede", "/tasks/1/cancel", "/tasks/1/note",
	"/refusals/1/republish", "/kinds/payment.charge/pause", "/kinds/payment.charge/keep-asking", "/kinds/payment.charge/resume", "/recover"}

// furnished is a counter where all places have something to act on, connected to NATS.
func furnished(t *testing.T) *counter {
	t.Helper()
	_, js := devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	var c *counter
	c = openCounter(t, func(a *admin.ActsConfig) {
		a.Republish = func(ctx context.Context, id int64, by consumer.ActOptions) (consumer.Republication, error) {
			return consumer.Republish(ctx, c.pool, js, id, by)
		}
	})
	c.job(1, isUnsent)
	c.job(2, isUnknown)
	if err := c.store.Refuse(t.Context(), idemstore.Refusal{Kind: charge, Key: "order_1", Reason: idemstore.Conflict, Subject: "events.test",
		Body: []byte(`{"order_id":"1","customer_id":"c","amount":1,"currency":"EUR"}`), Headers: nats.Header{}, TaskID: 1}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnlyOperatorsAct(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	before := c.everything()
	for _, path := range places {
		form := c.form("/tasks/1/note", "reason", "because", "as", "failed", "refusal", "1").Encode()
		for _, who := range [][2]string{{"", ""}, {"vera", "viewer"}, {"", "operator"}, {"olaf", "Operator"}} {
			for _, request := range [][3]string{
				{http.MethodPost, path, formType}, {http.MethodGet, path, ""}, {http.MethodPut, path, formType}, {http.MethodDelete, path, ""},
				{http.MethodPost, "/api" + path, "application/json"}, {http.MethodPost, path + "?_method=POST", "multipart/form-data"},
			} {
				body := form
				if request[2] == "application/json" {
					body = `{"reason":"because","as":"failed","refusal":1}`
				}
				r := c.as(who[0], who[1], request[0], request[1], request[2], body)
				if r.status != http.StatusForbidden {
					t.Errorf("%v, %v: %d", who, request, r.status)
				}
			}
		}
	}
	viewed := c.as("vera", "viewer", http.MethodGet, "/tasks/1", "", "").body + c.as("vera", "viewer", http.MethodGet, "/kinds", "", "").body +
		c.as("vera", "viewer", http.MethodGet, "/refusals/1", "", "").body
	if strings.Contains(viewed, `class="button"`) || strings.Contains(viewed, "/recover") || strings.Contains(viewed, "What can be done") {
		t.Error("a viewer sees buttons")
	}
	if c.everything() != before {
		t.Error("something was changed")
	}
}

func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	before := c.everything()
	for _, path := range places {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			query := "?id=0e5bb2ba-5a3e-4b3c-a53e-5a5fb0a3c9d1&reason=because&as=failed&refusal=1&status=needs_review&attempts=1&within=24h&older_than=0s&limit=1000"
			if r := c.as("ann", "operator", method, path+query, "", ""); r.status != http.StatusOK || strings.Contains(r.body, "because") {
				t.Errorf("%s %s: %d", method, path, r.status)
			}
		}
	}
	if c.everything() != before {
		t.Error("something was changed, or the provider was asked")
	}
}

func TestFormsThatAreNotRight(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	before := c.everything()
	for _, path := range places {
		if path == "/kinds/payment.charge/resume" || path == "/tasks/1/send-again" { // these have no form now
			continue
		}
		address := path
		if path == "/recover" {
			address += "?within=24h&older_than=0s&limit=100"
		}
		for what, bad := range map[string]struct {
			fill   []string
			status int
			says   string
		}{
			"no reason": {[]string{"reason", " \t"}, 400, "A reason is required"}, "a long one": {[]string{"reason", strings.Repeat("ä", 901)}, 400, "longer than 1,800 bytes"},
			"a reason with a line break": {[]string{"reason", "a\nb"}, 400, "cannot be seen"}, "a zero byte": {[]string{"reason", "a\x00b"}, 400, "cannot be seen"},
			"a turned text": {[]string{"reason", "a\u202eb"}, 400, "cannot be seen"}, "no id": {[]string{"id", ""}, 400, "not whole"},
			"an id that is none": {[]string{"id", "1; drop table"}, 400, "not whole"}, "oversized": {[]string{"reason", strings.Repeat("a", 65<<10)}, 413, "more than 64 KiB"},
			"bad UTF-8": {[]string{"reason", "\xff"}, 400, "cannot be seen"},
		} {
			form := c.form(address, "reason", "because", "as", "failed", "refusal", "1")
			for i := 0; i+1 < len(bad.fill); i += 2 {
				form.Set(bad.fill[i], bad.fill[i+1])
			}
			r := c.as("ann", "operator", http.MethodPost, path, formType, form.Encode())
			if r.status != bad.status || !strings.Contains(textOf(t, r.body), bad.says) {
				t.Errorf("%s, %s: %d %s", path, what, r.status, textOf(t, r.body))
			}
		}
		form := c.form(address, "reason", "because").Encode()
		for _, contentType := range []string{"", "text/plain", "application/json", "multipart/form-data; boundary=x"} {
			if r := c.as("ann", "operator", http.MethodPost, path, contentType, form); r.status != http.StatusUnsupportedMediaType {
				t.Errorf("%s as %q: %d", path, contentType, r.status)
			}
		}
	}
	for path, want := range map[string]int{"/tasks/99/note": 404, "/tasks/x/note": 400, "/tasks/1/explode": 404, "/tasks/1/pause": 404, "/tasks/1/recover": 404,
		"/refusals/99/republish": 404, "/kinds/no.such/pause": 404, "/kinds/payment.charge/note": 404} {
		if r := c.as("ann", "operator", http.MethodGet, path, "", ""); r.status != want {
			t.Errorf("%s: %d", path, r.status)
		}
	}
	if c.everything() != before {
		t.Error("something was changed")
	}
}

// What was typed is not lost, and the form that comes back can be sent.
func TestAFormComesBack(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	form := c.form("/tasks/1/resolve", "as", "finished", "external_id", "ch_<1>", "result", `{"charge_id":"x"`)
	r := c.as("ann", "operator", http.MethodPost, "/tasks/1/resolve", formType, form.Encode())
	again := fields(t, r.body)
	if again == nil || again.Get("external_id") != "ch_<1>" || !strings.Contains(textOf(t, r.body), `{"charge_id":"x"`) || again.Get("id") == form.Get("id") {
		t.Errorf("%v\n%s", again, r.body)
	}
	if found := live(t, r.body); len(found) > 0 {
		t.Errorf("alive: %q", found)
	}
	again.Set("reason", "the provider's mail of today")
	again.Set("as", "failed")
	again.Set("external_id", "")
	if says := c.send("/tasks/1/resolve", again); !strings.HasPrefix(says, "Done. It has failed, by decision") {
		t.Error(says)
	}
}

// A result is shown on its own page alone, and nobody makes one up with an address.
func TestResultsAreNotMadeUp(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	form := c.form("/tasks/1/note", "reason", "seen")
	if says := c.send("/tasks/1/note", form); !strings.HasPrefix(says, "Done. Its history gets a line.") {
		t.Fatal(says)
	}
	for _, path := range []string{"/tasks/2?act=" + form.Get("id"), "/?act=" + form.Get("id"), "/tasks/1?act=Done.", "/tasks/1?act=0e5bb2ba-5a3e-4b3c-a53e-5a5fb0a3c9d1",
		"/tasks/1?act=%00", "/tasks/1?act="} {
		if says := c.notice(path); says != "" {
			t.Errorf("%s says %q", path, says)
		}
	}
	if says := c.notice("/tasks/1?act=" + form.Get("id")); !strings.Contains(says, "by ann") || !strings.Contains(says, ": seen") {
		t.Error(says)
	}
}

func TestHostileTextInForms(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	task := c.add(evilKey, isParked)
	c.exec(`update settle.tasks set last_error = $2, external_id = $3, payload = $4 where id = $1`, task.TaskID, evilMember, evilID, []byte(`{"`+evilMember+`":1}`))
	if err := c.store.Refuse(t.Context(), idemstore.Refusal{Kind: charge, Key: evilKey, Reason: idemstore.Conflict, Detail: evilMember, Body: []byte(evilMember), TaskID: 1}); err != nil {
		t.Fatal(err)
	}
	c.exec(`insert into settle.controls (kind, mode, actor, reason) values ('payment.charge', 'paused', $1, $2)`, evilKey, evilMember)
	for _, path := range append(places, "/recover?within=24h&older_than=0s&limit=100") {
		if found := live(t, c.open(path)); len(found) > 0 {
			t.Errorf("%s is alive: %q", path, found)
		}
	}
	form := c.form("/tasks/1/note", "reason", evilMember)
	r := c.as(evilKey, "operator", http.MethodPost, "/tasks/1/note", formType, form.Encode())
	page := c.open(r.location)
	if found := live(t, page); len(found) > 0 || !strings.Contains(textOf(t, page), evilMember) || !strings.Contains(textOf(t, page), evilKey) {
		t.Errorf("alive: %q", found)
	}
}

func TestPublishingARefusalAgain(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	if page := c.open("/refusals/1"); !strings.Contains(page, `href="/refusals/1/republish"`) {
		t.Error("no button")
	}
	form := c.form("/refusals/1/republish", "reason", "fixed")
	other := c.form("/refusals/1/republish", "reason", "fixed")
	says := c.send("/refusals/1/republish", form)
	if !strings.HasPrefix(says, "Done. Published again, as message 1 of EVENTS.") || c.send("/refusals/1/republish", form) != says {
		t.Error(says)
	}
	if says := c.send("/refusals/1/republish", other); !strings.HasPrefix(says, "Not done. It was published again already, as message 1, by ann.") {
		t.Error(says)
	}
	if page := textOf(t, c.open("/refusals/1/republish")); !strings.Contains(page, "It was published again already") || strings.Contains(page, "Why, for the history") {
		t.Error(page)
	}
	alone := openCounter(t)
	if err := alone.store.Refuse(t.Context(), idemstore.Refusal{Kind: charge, Reason: idemstore.Malformed, Subject: "jobs.payment.charge", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if page := textOf(t, alone.open("/refusals/1/republish")); !strings.Contains(page, "not connected to NATS") {
		t.Error(page)
	}
	if status, _ := alone.post("/refusals/1/republish", map[string]any{"reason": "x"}); status != http.StatusConflict {
		t.Errorf("without NATS: %d", status)
	}
}

func TestPausingAKind(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	buttons := func(want ...string) {
		t.Helper()
		page := c.open("/kinds")
		for _, act := range []string{"pause", "keep-asking", "resume"} {
			if there := strings.Contains(page, `href="/kinds/payment.charge/`+act+`"`); there != strings.Contains(fmt.Sprint(want), act+" ") {
				t.Errorf("the button %s is there: %v", act, there)
			}
		}
	}
	buttons("pause ", "keep-asking ")
	old := c.form("/kinds/payment.charge/pause", "reason", "late")
	form := c.form("/kinds/payment.charge/keep-asking", "reason", "outage")
	says := c.send("/kinds/payment.charge/keep-asking", form)
	if !strings.HasPrefix(says, "Done. The kind payment.charge is paused; tasks whose outcome is unknown are still asked about now") || c.send("/kinds/payment.charge/keep-asking", form) != says {
		t.Error(says)
	}
	buttons("pause ", "resume ")
	if says := c.send("/kinds/payment.charge/pause", old); !strings.HasPrefix(says, "Not done.") || !strings.Contains(says, "it was running, and is paused; tasks") {
		t.Error(says)
	}
	c.send("/kinds/payment.charge/resume", c.form("/kinds/payment.charge/resume", "reason", "over"))
	if got := c.text(`select string_agg(concat_ws(' ', kind, mode, actor, reason), '; ' order by id) from settle.controls`); got != "payment.charge asking ann outage; payment.charge running ann over" {
		t.Error(got)
	}
}

func TestActingByTheAPI(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	expect := func(path, order string, status int, outcome string) map[string]any {
		t.Helper()
		got, answer := c.post(path, json.RawMessage(order))
		if got != status || outcome != "" && answer["outcome"] != outcome || outcome == "" && answer["error"] == nil {
			t.Errorf("%s %s: %d %v", path, order, got, answer)
		}
		return answer
	}
	before := c.everything()
	expect("/tasks/1/retry", `{"dry_run":true}`, 200, "dry_run")
	expect("/recover", `{"dry_run":true,"older_than":"0s"}`, 200, "dry_run")
	expect("/kinds/payment.charge/pause", `{"dry_run":true}`, 200, "dry_run")
	expect("/refusals/1/republish", `{"dry_run":true}`, 200, "dry_run")
	expect("/tasks/1/retry", `{}`, 400, "")
	expect("/tasks/1/retry", `{"reason":"x","rason":"y"}`, 400, "")
	expect("/tasks/1/retry", `[]`, 400, "")
	expect("/tasks/1/retry", `{"reason":"x","id":"1"}`, 400, "")
	expect("/tasks/1/resolve", `{"reason":"x"}`, 400, "")
	expect("/tasks/1/supersede", `{"reason":"x"}`, 400, "")
	expect("/tasks/1/explode", `{"reason":"x"}`, 404, "")
	expect("/recover", `{"reason":"x","within":"1h","older_than":"2h"}`, 400, "")
	expect("/recover", `{"reason":"x","limit":10001}`, 400, "")
	expect("/recover", `{"reason":"x","kind":"no.such"}`, 400, "")
	if c.everything() != before {
		t.Error("something was changed")
	}
	expect("/tasks/99/note", `{"reason":"x"}`, 409, "refused")
	expect("/tasks/1/retry", `{"reason":"x","attempts":7}`, 409, "changed")
	expect("/tasks/1/send-again", `{"reason":"x"}`, 409, "refused")
	const press = `{"reason":"x","id":"0e5bb2ba-5a3e-4b3c-a53e-5a5fb0a3c9d1","status":"needs_review","attempts":1}`
	first, again := expect("/tasks/1/retry", press, 200, "done"), expect("/tasks/1/retry", press, 200, "done")
	if fmt.Sprint(first) != fmt.Sprint(again) || first["actor"] != "ann" {
		t.Errorf("%v and %v", first, again)
	}
	expect("/tasks/1/cancel", press, 409, "")
	if r := c.as("ann", "operator", http.MethodGet, "/api/presses/0e5bb2ba-5a3e-4b3c-a53e-5a5fb0a3c9d1", "", ""); !strings.Contains(r.body, `"outcome":"done"`) {
		t.Error(r.body)
	}
	if r := c.as("ann", "operator", http.MethodGet, "/api/presses/nothing", "", ""); r.status != http.StatusNotFound {
		t.Error(r.status)
	}
}

// Back offices read the document about acts, too.
func TestActsAreAsTheyAreDocumented(t *testing.T) {
	t.Parallel()
	c := furnished(t)
	_, section, _ := strings.Cut(read(t, "../../docs/admin-api.md"), "\n## Acts\n")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `/api(/[^`]*)` \\| `[^`]+` \\| (.*)\\|$").FindAllStringSubmatch(section, -1) {
		path := strings.NewReplacer("{id}", "1", "{kind}", charge).Replace(row[1])
		documented[path] = true
		order := map[string]any{"dry_run": true, "reason": "because", "status": "", "attempts": 0, "id": "0e5bb2ba-5a3e-4b3c-a53e-5a5fb0a3c9d1"}
		for _, member := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			order[member[1]] = map[string]any{"as": "failed", "external_id": "", "force": false, "refusal": 1, "mode": "", "kind": charge, "older_than": "0s", "within": "1h", "limit": 9}[member[1]]
		}
		delete(order, "failed") // a value of as
		delete(order, "finished")
		delete(order, "result")
		if status, answer := c.post(path, order); status != http.StatusOK && status != http.StatusConflict || answer["outcome"] == nil {
			t.Errorf("%s %v: %d %v", path, order, status, answer)
		}
	}
	for _, path := range places {
		if !documented[path] {
			t.Errorf("%s is not documented", path)
		}
	}
	if len(documented) != len(places) {
		t.Errorf("documented are %v", documented)
	}
	for outcome, status := range admin.Outcomes() {
		if !strings.Contains(section, fmt.Sprint("| `", outcome, "` | ", status, " |")) {
			t.Errorf("the outcome %s with status %d is not documented", outcome, status)
		}
	}
	var task struct {
		Next []struct{ Act, Effect string }
	}
	r := c.as("ann", "operator", http.MethodGet, "/api/tasks/1", "", "")
	if err := json.Unmarshal([]byte(r.body), &task); err != nil || len(task.Next) != 6 || task.Next[0].Act != "ask" || task.Next[0].Effect == "" {
		t.Errorf("%+v, %v", task, err)
	}
}
