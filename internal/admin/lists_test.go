package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
)

// listed is what the API says of a list.
type listed struct {
	Tasks []struct {
		Task int64
		Key  string
	}
	Refusals []struct {
		ID     int64
		Reason string
	}
	Strays []struct {
		Subject string
		Count   int
	}
	Outbox []struct{ Subject string }
	Counts []struct {
		Name  string
		Count int
	}
	Next   int64
	NoNATS bool `json:"no_nats"`
}

func TestListsArePagedWithoutGapsWhileTasksComeAndGo(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.exec(`insert into settle.tasks (kind, key, status, unsure, token, sending, give_up_at, payload, payload_hash, hash_algorithm, review_cause, finished_at)
		select $1, s || n, s, s <> 'failed', gen_random_uuid(), false, clock_timestamp(), '', '', 'v1', case s when 'needs_review' then 'age' end,
			case s when 'failed' then clock_timestamp() end
		from generate_series(1, 120) n, unnest(array['needs_review', 'unknown', 'failed']) s`, charge)
	for name, column := range map[string]string{"review": "needs_review", "unknown": "unknown", "failed": "failed"} {
		var ids []int64
		for path := "/lists/" + name; path != ""; {
			var l listed
			d.api(path, &l)
			for _, task := range l.Tasks {
				ids = append(ids, task.Task)
			}
			if len(l.Counts) != 1 || l.Counts[0].Count < 119 {
				t.Errorf("%s counts %+v", name, l.Counts)
			}
			if path = ""; l.Next != 0 {
				path = fmt.Sprintf("/lists/%s?after=%d", name, l.Next)
				d.exec(`delete from settle.tasks where id = $1`, ids[0]) // before the next page: no offset may move
			}
		}
		sorted := slices.IsSorted(ids)
		if name == "failed" {
			sorted = slices.IsSortedFunc(ids, func(a, b int64) int { return int(b - a) })
		}
		all := len(ids)
		slices.Sort(ids)
		if all != 120 || len(slices.Compact(ids)) != 120 || !sorted {
			t.Errorf("%s (%s) lists %d of 120 tasks, in order: %v", name, column, all, sorted)
		}
	}
	page := d.page("/lists/review?kind=" + charge + "&within=24h")
	if !strings.Contains(page, `href="/lists/review?after=`) || !strings.Contains(page, "kind=payment.charge&amp;within=24h") {
		t.Errorf("the next page has another filter:\n%s", page)
	}
}

func TestListsAreFilteredByKindAndTime(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.add("new", parked+`'age'`)
	d.add("old", parked+`'age', created_at = clock_timestamp() - interval '3 hours'`)
	d.add("other", parked+`'age', kind = 'other.kind'`)
	d.add("long", `created_at = clock_timestamp() - interval '16 minutes'`)
	d.add("short", ``)
	for path, want := range map[string]string{
		"review": "new old other", "review?kind=other.kind": "other", "review?within=1h": "new other", "review?within=24h&kind=" + charge: "new old", "long": "long",
		"unknown": "", "failed": "",
	} {
		var l listed
		d.api("/lists/"+path, &l)
		var keys []string
		for _, task := range l.Tasks {
			keys = append(keys, task.Key)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s lists %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/lists/review?within=yesterday", "/lists/review?within=-1h", "/lists/review?after=x", "/lists/review?after=-1"} {
		if status, _, _ := d.get(path); status != http.StatusBadRequest {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestRefusalsStraysAndOutbox(t *testing.T) {
	t.Parallel()
	strays := []consumer.Unrouted{{Subject: "jobs.nobody", Count: 3, Messages: []consumer.UnroutedMessage{{StoredAt: time.Unix(0, 0)}}}}
	d := open(t, func(c *admin.Config) {
		c.Strays = func(context.Context, int) ([]consumer.Unrouted, error) { return strays, nil }
	})
	for i, reason := range []idemstore.Reason{idemstore.BadKey, idemstore.Malformed, idemstore.Malformed} {
		if err := d.store.Refuse(t.Context(), idemstore.Refusal{Kind: charge, Reason: reason, Body: []byte(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	d.exec(`insert into settle.outbox (name, subject, payload) values ('1', 'events.done', '')`)
	var refusals, stray, outbox listed
	d.api("/lists/refusals?within=24h", &refusals)
	d.api("/lists/strays", &stray)
	d.api("/lists/outbox", &outbox)
	if len(refusals.Refusals) != 3 || refusals.Refusals[0].ID != 3 || fmt.Sprint(refusals.Counts) != "[{bad_key 1} {malformed 2}]" {
		t.Errorf("refusals: %+v", refusals)
	}
	if len(stray.Strays) != 1 || stray.Strays[0].Count != 3 || len(outbox.Outbox) != 1 || fmt.Sprint(outbox.Counts) != "[{events 1}]" {
		t.Errorf("%+v, %+v", stray, outbox)
	}
	if page := d.page("/lists/strays"); !strings.Contains(page, "jobs.nobody") {
		t.Error(page)
	}
	if page := open(t).page("/lists/strays"); !strings.Contains(page, "not connected to NATS") {
		t.Error(page)
	}
}

func TestTheOverviewCountsAndDraws(t *testing.T) {
	t.Parallel()
	d := open(t)
	if page := d.page("/"); !strings.Contains(page, "Everything is over") {
		t.Error(page)
	}
	d.add("1", done)
	d.add("2", failed)
	d.add("3", unknown+`, created_at = clock_timestamp() - interval '90 minutes'`)
	d.add("4", parked+`'age', created_at = clock_timestamp() - interval '10 minutes'`)
	d.add("5", "")
	d.exec(`insert into settle.controls (kind, mode, actor, reason) values ($1, 'paused', 'ann', 'bank is down')`, charge)
	d.exec(`insert into settle.tallies (kind, minute, finished, failed, duplicates, seen_at, recovered_at, breaker_at) values
		($1, date_trunc('minute', clock_timestamp() - interval '5 minutes'), 5, 0, 3, clock_timestamp(), clock_timestamp(), clock_timestamp()),
		($1, date_trunc('minute', clock_timestamp() - interval '5 hours'), 11, 1, 4, clock_timestamp(), null, null),
		('report.create', date_trunc('minute', clock_timestamp() - interval '5 minutes'), 0, 1, 0, clock_timestamp() - interval '5 minutes', null, null)`, charge)
	d.exec(`insert into settle.alerts (cause, kind, text, task_id, count) values ('needs_review payment.charge absent', $1,
		'It needs a person. See settle tasks list --kind payment.charge --status needs_review', 7, 1)`, charge)
	var o struct {
		Kinds []struct {
			Kind                          string
			Held                          int
			Pending, Unknown, NeedsReview struct{ Count int }
			Failed                        struct {
				Count int
			}
		}
		Served []struct {
			Kind      string
			Breaker   bool `json:"breaker_open"`
			Hour, Day struct{ Finished, Duplicates int }
		}
		Hour, Day struct {
			Bars []struct{ Ago, Finished, Failed, Unknown int }
		}
		Paused []struct{ Kind, Actor string }
	}
	d.api("/overview", &o)
	if len(o.Kinds) != 1 || o.Kinds[0].Pending.Count != 1 || o.Kinds[0].Held != 1 || o.Kinds[0].Unknown.Count != 1 || o.Kinds[0].Failed.Count != 1 || len(o.Paused) != 1 {
		t.Errorf("%+v", o)
	}
	if len(o.Served) != 2 || o.Served[0].Hour.Finished != 5 || o.Served[0].Day.Finished != 16 || o.Served[0].Day.Duplicates != 7 || !o.Served[0].Breaker || o.Served[1].Breaker {
		t.Errorf("%+v", o.Served)
	}
	hour, day := 0, 0
	for _, b := range o.Hour.Bars {
		hour += b.Finished + b.Failed
	}
	for _, b := range o.Day.Bars {
		day += b.Finished + b.Failed
	}
	if hour != 6 || day != 18 {
		t.Errorf("of all kinds %d in an hour, %d in a day: %+v", hour, day, o)
	}
	for _, path := range []string{"/", "/parts/overview"} {
		for _, want := range []string{`href="/lists/review?kind=payment.charge"`, "<rect class=\"done\"", "bank is down",
			"keeps failing (breaker open)", `<bdi>It needs a person.</bdi> <a href="/tasks/7">Task 7</a> · <a href="/lists/review">Needs review</a>`, "<strong>no worker</strong>, the last one heard 5 min"} {
			if page := d.page(path); !strings.Contains(page, want) || strings.Contains(page, "<html") != (path == "/") {
				t.Errorf("%s has no %s:\n%s", path, want, page)
			}
		}
	}
}

func TestKindsAreShownAsTheyAreDeclared(t *testing.T) {
	t.Parallel()
	d := open(t)
	if page := d.page("/kinds"); !strings.Contains(page, "one charge") || !strings.Contains(page, "running") {
		t.Error(page)
	}
	var k struct{ Kinds []struct{ Kind string } }
	if d.api("/kinds", &k); len(k.Kinds) != 1 || k.Kinds[0].Kind != charge {
		t.Errorf("%+v", k)
	}
}

// Without its database a screen says so, and shows nothing of why.
func TestTroubleIsToldInPlainWords(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *admin.Config) {
		c.Strays = func(context.Context, int) ([]consumer.Unrouted, error) { return nil, errors.New("secret host") }
	})
	for _, path := range []string{"/lists/strays", "/api/lists/strays"} {
		status, _, body := d.get(path)
		if status != http.StatusServiceUnavailable || strings.Contains(body, "secret host") || !strings.Contains(body, "cannot be read right now") {
			t.Errorf("%s: %d\n%s", path, status, body)
		}
	}
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	store := new(idemstore.Store)
	for name, c := range map[string]admin.Config{
		"no store":        {},
		"script":          {Store: store, TraceURL: "javascript:{trace_id}"},
		"no place":        {Store: store, TraceURL: "https://traces.example/"},
		"in the host":     {Store: store, TraceURL: "https://{trace_id}.example/"},
		"in the userinfo": {Store: store, Kinds: []admin.Kind{{Link: "https://{id}@pay.example/x"}}},
		"twice":           {Store: store, Kinds: []admin.Kind{{Link: "https://pay.example/{id}/{id}"}}},
	} {
		if _, err := admin.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTheSignedInPersonIsNamed(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *admin.Config) { c.Actor = func(*http.Request) (string, bool) { return "ann <b>", false } })
	if page := d.page("/"); !strings.Contains(page, "ann &lt;b&gt;") {
		t.Error(page)
	}
}

func TestColoursHaveContrast(t *testing.T) {
	t.Parallel()
	css := read(t, "assets/style.css")
	light, dark, ok := strings.Cut(css, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("there is no dark theme")
	}
	pairs := []string{"text page", "quiet page", "link page", "text panel", "quiet panel", "link panel", "done-text done-back", "open-text open-back",
		"review-text review-back", "failed-text failed-back"}
	graphics := []string{"edge page", "edge panel", "done panel", "open panel", "review panel", "failed panel"}
	dark, _, _ = strings.Cut(dark, "\n}")
	for theme, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([\w-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(text, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		for i, pair := range append(slices.Clone(pairs), graphics...) {
			front, back, _ := strings.Cut(pair, " ")
			least := 4.5
			if i >= len(pairs) {
				least = 3
			}
			a, b := colours[front]+0.05, colours[back]+0.05
			if got := math.Max(a, b) / math.Min(a, b); got < least || len(colours) != 18 {
				t.Errorf("%s, %s: contrast %.2f, want %.1f; %d colours", theme, pair, got, least, len(colours))
			}
		}
	}
}

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// A name without a text would be noticed only by whoever opens that part of a page.
func TestEveryTextOfThePagesIsThere(t *testing.T) {
	t.Parallel()
	known := read(t, "texts.go")
	files, err := fs.Glob(os.DirFS("assets"), "*.html")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text := read(t, "assets/"+file)
		for _, m := range regexp.MustCompile(`\bt "(\w+)"`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(known, `"`+m[1]+`":`) {
				t.Errorf("%s: no text %q", file, m[1])
			}
		}
		if m := regexp.MustCompile(`(?i)\sstyle=|\son\w+=|<style`).FindString(text); m != "" {
			t.Errorf("%s has %q: the policy forbids it", file, m)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What waits in the stream is part of what waits; a stream that does not answer does not take the rest with it.
func TestTheOverviewCountsTheStream(t *testing.T) {
	t.Parallel()
	var found map[string]uint64
	var away error
	d := open(t, func(c *admin.Config) {
		c.Undelivered = func(context.Context) (map[string]uint64, error) { return found, away }
	})
	if page := d.page("/"); !strings.Contains(page, "Everything is over") {
		t.Error(page)
	}
	found = map[string]uint64{charge: 1234, "report.create": 0}
	if page := d.page("/"); strings.Contains(page, "Everything is over") || !strings.Contains(page, "payment.charge</bdi>: <strong>1,234</strong>") || strings.Contains(page, "report.create</bdi>") {
		t.Error(page)
	}
	found, away = nil, errors.New("secret host")
	page := d.page("/")
	if strings.Contains(page, "Everything is over") || !strings.Contains(page, "The stream does not answer") || strings.Contains(page, "secret") {
		t.Error(page)
	}
}
