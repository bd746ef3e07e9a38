package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/settlemq/settle/idemstore"
)

// What attackers put into the places that a screen shows (D-43).
const (
	evilKey    = `"><img src=x onerror=alert(1)>`
	evilMember = `</script><script>alert(1)</script>`
	evilID     = `javascript:alert(1)`
)

// allowed are the elements of our own templates, and those attributes of theirs that could load or run something.
var allowed = map[string][]string{
	"script": {"src=/static/fresh.js"}, "link": {"href=/static/style.css", "href=/static/icon.svg"}, "form": {"action=/find", "action=/sign-out"},
}

// live finds what a page could run or load that is not its own: elements, handlers, inline styles, addresses.
func live(t *testing.T, page string) (found []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if slices.Contains([]string{"img", "iframe", "object", "embed", "style", "base"}, n.Data) {
			found = append(found, "<"+n.Data+">")
		}
		if n.Data == "script" && (n.FirstChild != nil || len(n.Attr) == 0) {
			found = append(found, "inline script")
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || !harmless(n.Data, a) {
				found = append(found, fmt.Sprintf("<%s %s=%q>", n.Data, a.Key, a.Val))
			}
		}
	}
	return found
}

// harmless reports whether an attribute leads to our own pages, or to the place of a kind's effects.
func harmless(element string, a html.Attribute) bool {
	switch a.Key {
	case "src", "href", "action", "formaction", "xlink:href", "data", "srcdoc":
	default:
		return true
	}
	return slices.Contains(allowed[element], a.Key+"="+a.Val) || strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "//") ||
		strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "https://pay.example/charges/") && element == "a"
}

// textOf is what a person reads.
func textOf(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			text.WriteString(n.Data)
		}
	}
	return text.String()
}

// infested is a desk with hostile text in every place that comes from outside.
func infested(t *testing.T) desk {
	t.Helper()
	d := open(t)
	body := `{"` + evilMember + `":"` + evilMember + `","order_id":"1"}`
	for i, status := range []string{`'needs_review', review_cause = 'budget'`, `'unknown'`, `'failed', finished_at = clock_timestamp()`} {
		task := d.add(evilKey+fmt.Sprint(i), "")
		d.exec(`update settle.tasks set lease_until = null, sending = false, unsure = true, external_id = $2, evidence_id = $3, payload = $4, result = $5,
			answer = $3, last_error = $3, error_class = $3, provider = $3, provider_key = $3, event_id = $3, event_source = $2, stream = $3, stream_sequence = 7,
			origin_trace = '', status = `+status+` where id = $1`, task.TaskID, evilID, evilMember, []byte(body), body)
		d.exec(`insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, external_id, trace_id)
			values ($1, $2, 1, 'started', 'unknown', $3, $4, $3)`, task.TaskID, evilKey, evilMember, evilID)
		d.exec(`insert into settle.task_refs values ($3, $2, $1)`, task.TaskID, evilMember, evilMember)
		if err := d.store.Refuse(t.Context(), idemstore.Refusal{Kind: evilMember, Key: evilKey, Reason: idemstore.Conflict, Detail: evilMember, Subject: evilKey,
			Headers: map[string][]string{evilMember: {evilKey}}, Body: []byte(body + fmt.Sprint(i)), Origin: idemstore.Origin{Stream: evilKey, Sequence: 5}, TaskID: task.TaskID}); err != nil {
			t.Fatal(err)
		}
	}
	d.exec(`insert into settle.outbox (name, subject, key, payload, last_error) values ('1', $1, $2, '', $1)`, evilMember, evilKey)
	d.exec(`insert into settle.alerts (cause, kind, text, count) values ($1, $1, $1, 1)`, evilMember)
	d.exec(`insert into settle.controls (kind, mode, actor, reason) values ($1, 'paused', $2, $2), ('payment.charge', 'asking', $2, $2)`, evilMember, evilKey)
	d.exec(`insert into settle.task_refs values ('hostile', 'hostile', 1), ('hostile', 'hostile', 2)`)
	d.exec(`insert into settle.steps (task_id, idx, total, outcome, reason) values (1, 0, 1, 'set aside', $1)`, evilMember)
	return d
}

func TestWhatComesFromOutsideIsText(t *testing.T) {
	t.Parallel()
	d := infested(t)
	for path, texts := range map[string][]string{
		"/": {evilMember, evilKey}, "/kinds": {evilKey}, "/find?q=hostile": {evilKey, evilID},
		"/find?q=" + url.QueryEscape(evilMember):              {evilKey, evilMember},
		"/find?q=" + url.QueryEscape(evilKey+"nobody has it"): nil,
		"/tasks/1": {evilKey, evilMember, evilID, `"` + evilMember + `": "` + evilMember + `"`}, "/tasks/2": {evilKey}, "/tasks/3": {evilMember},
		"/lists/review": {evilKey, evilID}, "/lists/unknown": {evilKey}, "/lists/failed": {evilKey}, "/lists/long": nil,
		"/lists/refusals": {evilKey, evilMember}, "/lists/outbox": {evilKey, evilMember}, "/lists/strays": nil, "/refusals/1": {evilKey, evilMember},
		"/lists/review?kind=" + url.QueryEscape(evilKey) + "&within=1h": nil, "/parts/overview": {evilMember},
	} {
		_, header, body := d.get(path)
		if got := header.Get("Content-Type"); got != "text/html; charset=utf-8" {
			t.Errorf("%s: %q", path, got)
		}
		if found := live(t, body); len(found) > 0 {
			t.Errorf("%s is alive: %q", path, found)
		}
		read := textOf(t, body)
		for _, want := range texts {
			if !strings.Contains(read, want) {
				t.Errorf("%s does not show %q literally:\n%s", path, want, read)
			}
		}
	}
	page := d.page("/tasks/1")
	if !strings.Contains(page, `href="https://pay.example/charges/javascript%3Aalert%281%29"`) || strings.Contains(page, `href="javascript`) {
		t.Errorf("the external reference leads elsewhere:\n%s", page)
	}
}

// A test that finds nothing alive is worth something only if it would.
func TestLiveContentIsNoticed(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		"<p>" + evilMember, `<a title="` + evilKey + `">`, `<a href="` + evilID + `">x</a>`, `<p style="x">`, `<p onclick=x>`, `<a href="//elsewhere">`,
	} {
		if len(live(t, page)) == 0 {
			t.Errorf("%s passes", page)
		}
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	t.Parallel()
	d := infested(t)
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/nowhere": "text/html; charset=utf-8", "/tasks/x": "text/html; charset=utf-8",
		"/tasks/99": "text/html; charset=utf-8", "/lists/" + url.PathEscape(evilMember): "text/html; charset=utf-8",
		"/static/style.css": "text/css; charset=utf-8", "/static/fresh.js": "text/javascript; charset=utf-8", "/static/icon.svg": "image/svg+xml",
		"/api/tasks/1": "application/json; charset=utf-8", "/api/nowhere": "application/json; charset=utf-8", "/api/tasks/-1": "application/json; charset=utf-8",
		"/api/find?q=%ff": "application/json; charset=utf-8",
	} {
		_, header, body := d.get(path)
		if got := header.Get("Content-Type"); got != want || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %q, %q", path, got, header.Get("X-Content-Type-Options"))
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: policy %q", path, policy)
		}
		if !strings.HasPrefix(path, "/static") && header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be kept: %q", path, header.Get("Cache-Control"))
		}
		if strings.HasPrefix(want, "text/html") {
			if found := live(t, body); len(found) > 0 {
				t.Errorf("%s is alive: %q", path, found)
			}
		}
	}
	res, err := http.Post(d.url+"/tasks/1", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a post is answered with %d", res.StatusCode)
	}
}

func TestSecretsOfAJobAreNotShown(t *testing.T) {
	t.Parallel()
	d := open(t)
	task := d.add("order_1", "")
	d.exec(`update settle.tasks set payload = $2, answer = $3 where id = $1`, task.TaskID,
		[]byte(`{"email":"a\u0040example.com","note":"card 4111111111111111","api_token":"abc123","amount":12.50,"name":"Käthe \u003cb\u003e"}`), "mail b@example.com")
	page := textOf(t, d.page(fmt.Sprintf("/tasks/%d", task.TaskID)))
	for _, secret := range []string{"a@example", `\u0040`, "4111111111111111", "abc123", "b@example"} {
		if strings.Contains(page, secret) {
			t.Errorf("the page shows %q:\n%s", secret, page)
		}
	}
	for _, plain := range []string{`"email"`, `"amount": 12.50`, `Käthe <b>`} {
		if !strings.Contains(page, plain) {
			t.Errorf("the page does not show %q:\n%s", plain, page)
		}
	}
}
