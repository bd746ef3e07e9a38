package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// What attackers put into the places that a screen shows.
const (
	evilKey    = `"><img src=x onerror=alert(1)>`
	evilMember = `</script><script>alert(1)</script>`
	evilID     = `javascript:alert(1)`
	evilHandle = `' onfocus=alert(1) autofocus x='`
)

// endless is an order that no page is wide enough for.
var endless = strings.Repeat("W", 400)

// evil is a charge with hostile text wherever its publisher may write some.
func evil(order, customer string) string {
	return fmt.Sprintf(`{"order_id":%q,"customer_id":%q,"amount":1200,"currency":"EUR",%q:%q}`, order, customer, evilMember, evilKey)
}

// infest brings hostile text in as attackers would: by messages and by the answers of a provider. It returns the tasks.
func infest(t *testing.T) (*stage, map[string]idemstore.Task) {
	t.Helper()
	s, tasks := newStage(t, ""), map[string]idemstore.Task{}
	worker := s.run("work", "--max-failures", "1")
	t.Cleanup(func() { s.drain(worker) })
	body := []byte(`{"error":"` + evilMember + `","message":"` + evilMember + `","detail":"` + evilHandle + `"}`)
	for _, c := range []struct {
		order  string
		fault  provider.Fault
		status idemstore.Status
	}{
		{evilKey, provider.Fault{Status: 402, Body: body}, idemstore.Failed},
		{evilMember, provider.Fault{Status: 500, StatusAt: provider.After, Body: body}, idemstore.NeedsReview},
		{endless, provider.Fault{Status: 402}, idemstore.Failed},
		{evilHandle, provider.Fault{Body: []byte(`{"charge_id":"` + evilID + `","status":"succeeded"}`)}, idemstore.Finished},
	} {
		s.faults(c.fault, provider.Fault{Method: "GET", Status: 500, Body: body})
		s.publish("jobs."+chargeKind, evil(c.order, evilMember), "traceparent", trace)
		tasks[c.order] = s.becomes("order_"+c.order, c.status)
	}
	s.publish("jobs."+chargeKind, evilMember, "X-Evil", evilKey)
	s.publish("jobs."+chargeKind, strings.Replace(evil(evilKey, evilMember), "1200", "1300", 1)) // another amount
	s.publish("jobs.parcel.<img/src=x/onerror=alert(1)>", evilMember)
	s.refused(2)
	s.does("pause", "report.create", "--reason", evilMember, "--actor", evilKey)
	s.exec(`insert into settle.outbox (name, subject, key, payload, last_error, next_at)
		values ('1', $1, $2, '', $1, clock_timestamp() + interval '1 hour')`, evilMember, evilKey)
	return s, tasks
}

// D-43: whatever came from outside is text on every page. Nothing of it runs, opens or leads anywhere.
func TestD43NothingHostileRuns(t *testing.T) {
	s, tasks := infest(t)
	olga := s.person("olga", "operator")
	p := open(t, startChromium(t), s.serve())
	p.signIn(olga)
	pages := map[string][]string{
		"/": {evilMember, evilKey}, "/kinds": {evilMember, evilKey},
		"/find?q=" + url.QueryEscape(evilMember):     {evilKey, evilMember, evilHandle, evilID},
		"/find?q=" + url.QueryEscape(evilKey+"none"): nil,
		"/find?q=" + url.QueryEscape(evilHandle):     {evilHandle},
		"/lists/review":                              {evilMember}, "/lists/failed": {evilKey, endless}, "/lists/long": nil, "/lists/unknown": nil,
		"/lists/refusals": {evilKey}, "/lists/strays": {"<img/src=x/onerror=alert(1)>"}, "/lists/outbox": {evilMember, evilKey},
		"/lists/review?kind=" + url.QueryEscape(evilKey): nil,
		"/refusals/1": {evilMember, evilKey}, "/refusals/2": {evilKey, evilMember}, "/" + url.PathEscape(evilMember): nil,
	}
	for _, task := range tasks {
		pages[fmt.Sprintf("/tasks/%d", task.TaskID)] = []string{task.Key, evilMember, evilKey}
		pages[fmt.Sprintf("/tasks/%d/note", task.TaskID)] = []string{task.Key}
	}
	for path, texts := range pages {
		p.to(path)
		p.shows(texts...)
		if live := eval[string](p, alive); live != "" {
			t.Errorf("%s has %s", path, live)
		}
		for _, width := range []int64{wide, narrow} {
			p.sized(width)
			if over := eval[string](p, tooWide); over != "" {
				t.Errorf("%s scrolls sideways at %d pixels because of %s", path, width, over)
			}
		}
		p.picture(fmt.Sprintf("hostile-%.25s", strings.Trim(strings.Map(letters, path), "-")))
	}
	p.to(fmt.Sprintf("/tasks/%d", tasks[evilHandle].TaskID))
	p.shows(evilID)
	p.quiet()
}

// letters makes the name of a file of an address.
func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// alive names what could run or lead where a person does not expect it; empty if nothing could.
const alive = `[
	...[...document.querySelectorAll("img, iframe, object, embed, style, base, script:not([src])")],
	...[...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => a.name.startsWith("on") || a.name === "style")),
	...[...document.querySelectorAll("a, form, button[formaction], script")].filter(e => {
		const to = new URL(e.href || e.action || e.formAction || e.src || "/", location.href);
		return to.protocol !== "http:" || to.host !== location.host && to.host !== "jaeger.example";
	}),
].map(e => e.outerHTML.slice(0, 200)).join("\n")`

// A walk that meets no trouble is worth something only if trouble would be noticed: what runs, what the policy of a page keeps
// from running, and what a page has that could.
func TestTroubleIsNoticed(t *testing.T) {
	chromium := startChromium(t)
	for name, c := range map[string]struct{ body, policy, want string }{
		"a dialog":        {evilKey, "", `a dialog says "1"`},
		"a script":        {"<p>" + evilMember, "", `a dialog says "1"`},
		"what is stopped": {"<p>" + evilMember, "script-src 'self'", "Content Security Policy"},
		"an error":        {"<script>nothing.there</script>", "", "exception"},
		"a message":       {"<script>console.log(1)</script>", "", "console.log"},
		"what is missing": {`<img src="/missing">`, "", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/html")
				w.Header().Set("Content-Security-Policy", c.policy)
				fmt.Fprint(w, `<!DOCTYPE html><link rel="icon" href="data:,">`+c.body)
			}))
			t.Cleanup(server.Close)
			p := open(t, chromium, server.URL)
			p.to("/")
			if found := strings.Join(p.troubles(), "\n"); !strings.Contains(found, c.want) {
				t.Errorf("noticed %q, not %q", found, c.want)
			}
			if live := eval[string](p, alive); live == "" {
				t.Error("nothing on the page is found alive")
			}
		})
	}
}
