package provider

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Rules are for the requests that they name, as often as they say, in their order.
func TestRules(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.rules(`[
		{"key": "order_1*", "path": "/charges", "count": 1, "status": "503/after"},
		{"key": "order_1*", "path": "/charges", "count": 2, "status": 429, "retry-after": 7},
		{"method": "GET", "key": "order_12", "status": 500},
		{"method": "*", "path": "/reports*", "in-progress": true}
	]`)
	r.expect(r.post("/charges", "order_2", order, ""), 201) // another key
	r.expect(r.post("/charges", "", order, ""), 201)        // no key
	r.expect(r.post("/charges", "order_12", order, ""), 503)
	limited := r.post("/charges", "order_12", order, "")
	r.expect(limited, 429)
	if got := limited.header.Get("Retry-After"); got != "7" {
		t.Errorf("Retry-After %q", got)
	}
	r.expect(r.get("/charges?idempotency_key=order_12"), 500)
	r.expect(r.get("/charges?idempotency_key=order_2"), 200)

	if left := r.get("/faults").text; !strings.Contains(left, `"count":"1"`) || strings.Contains(left, "503") {
		t.Errorf("rules left: %s", left)
	}
	r.expect(r.post("/charges", "order_1", order, ""), 429)
	r.expect(r.post("/charges", "order_1", order, ""), 201)
	r.expect(r.post("/charges", "order_12", order, ""), 200, "replayed", true)

	r.expect(r.post("/reports", "report-task-42", monthly, ""), 409, "error", "request_in_progress")
	r.expect(r.get("/reports/rep_1"), 409)
	r.expect(r.whole(r.send(t.Context(), http.MethodDelete, "/faults", "")), 204)
	if got := r.get("/faults").text; got != "[]" {
		t.Errorf("rules after DELETE: %s", got)
	}
	r.expect(r.post("/reports", "report-task-42", monthly, ""), 201)
}

// What becomes of the effect adds up; what becomes of the answer comes from one, the header first.
func TestRulesCombine(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.rules(`[{"ignore-keys": true}, {"count": 1, "hide": "1h"}, {"count": 1, "status": "500/after"}, {"decline": true, "key": "d"}]`)
	r.expect(r.post("/charges", "k", order, "status=502/after"), 502) // uses hide, leaves the 500
	r.expect(r.get("/charges?idempotency_key=k"), 404)
	r.expect(r.post("/charges", "k", order, ""), 500)
	r.expect(r.post("/charges", "k", order, ""), 201)
	r.expect(r.post("/charges", "d", order, ""), 402)
	r.expect(r.post("/charges", "d", order, ""), 402, "replayed", false)
	r.counts("k", 3, 3)
	r.counts("d", 2, 0)
}

// A bad request does not use up a rule: it never came to the effect.
func TestRulesSurviveBadRequests(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	if err := r.server.SetFaults([]Fault{{Count: 1, Status: 503}}); err != nil {
		t.Fatal(err)
	}
	r.expect(r.post("/charges", "k", `{}`, ""), 400)
	r.expect(r.post("/charges", "k", order, "nonsense"), 400)
	r.expect(r.post("/charges", "k", order, ""), 503)
	r.expect(r.post("/charges", "k", order, ""), 201)
}

// A list with one bad rule changes nothing.
func TestSetFaultsRefuses(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	good := []Fault{{Status: 503}}
	if err := r.server.SetFaults(good); err != nil {
		t.Fatal(err)
	}
	for says, bad := range map[string]Fault{
		"nothing is to happen":   {Key: "k", Count: 1},
		"a duration is negative": {DelayAfter: -1},
		"count is negative":      {Count: -1, Decline: true},
		"use 200 to 599":         {Status: 100},
		"use 301 to 308":         {Redirect: "/", Status: 200},
		"use length or chunk":    {Cut: "half"},
		"close is":               {Close: "now"},
		"status is at":           {Status: 500, StatusAt: "now"},
		"close excludes":         {Close: After, Cut: CutLength},
		"in-progress excludes":   {InProgress: true, Status: 500},
		"needs pending":          {PendingFails: true},
		"control character":      {Status: 429, RetryAfter: "1\r\nX: y"},
	} {
		err := r.server.SetFaults([]Fault{{Decline: true}, bad})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "rule 2") {
			t.Errorf("%+v: %v, want rule 2 and %q", bad, err, says)
		}
	}
	if got := r.server.Faults(); !reflect.DeepEqual(got, good) {
		t.Errorf("rules are %+v", got)
	}
	for body, says := range map[string]string{
		`{}`:                           "JSON list of rules",
		`null`:                         "JSON list of rules",
		``:                             "JSON list of rules",
		`[{"decline": true}, null]`:    "rule 2: not a JSON object",
		`[{"decline": null}]`:          "use a string, a number or a boolean",
		`[{"decline": "perhaps"}]`:     "decline is neither true nor false",
		`[{"delay": "1s"}]`:            "the faults are key, method",
		`[{"delay-after": 5}]`:         "not a positive duration such as 900ms",
		`[{"count": 0, "status":500}]`: "count is not a positive integer",
		`[{"hide": "1s", "hide": 2}]`:  "twice",
	} {
		got := r.whole(r.send(t.Context(), http.MethodPut, "/faults", body))
		if got.status != 400 || !strings.Contains(got.field("message"), says) {
			t.Errorf("PUT /faults %s: %d %s, want %q", body, got.status, got.text, says)
		}
	}
	if got := r.server.Faults(); !reflect.DeepEqual(got, good) {
		t.Errorf("rules are %+v", got)
	}
}

func TestHeaderRefuses(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                           `"" is not a fault`,
		"nonsense":                   "the faults are",
		"delay-after":                "needs a value",
		"delay-after=0s":             "positive duration",
		"delay-after=-1s":            "positive duration",
		"status=503/now":             "use before or after",
		"stored":                     "stored needs status=N",
		"status=200/after, stored":   "stored needs status=N",
		"status=abc":                 "503/after",
		"status=99":                  "200 to 599",
		"status=503, status=504":     "twice",
		"key=k, decline":             "for PUT /faults",
		"count=1, decline":           "for PUT /faults",
		`retry-after="1`:             "quote is not closed",
		`retry-after="1"2`:           "quote ends",
		"body=a, body-base64=AA==":   "exclude each other",
		"body-base64=!":              "base64",
		"close=":                     "close is empty",
		"decline=true, decline=true": "twice",
	} {
		if _, err := parseFault(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// What a header says, JSON says with the same names; and GET /faults can be put back.
func TestFaultSpellings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Fault{
		"delay-after=900ms, status=503/before": {DelayAfter: 900 * time.Millisecond, Status: 503, StatusAt: Before},
		" ignore-keys ,decline=true":           {IgnoreKeys: true, Decline: true},
		"decline=false, in-progress":           {InProgress: true},
		"pending=30s, pending-fails, hide=10s": {Pending: 30 * time.Second, PendingFails: true, Hide: 10 * time.Second},
		`retry-after="a \"b\", c", status=429`: {RetryAfter: `a "b", c`, Status: 429, StatusAt: Before},
		"body=, forget-after=1m":               {Body: []byte{}, ForgetAfter: time.Minute},
		"body-base64=AP8=, cut=chunk":          {Body: []byte{0, 0xff}, Cut: CutChunk},
		"body=a=b, redirect=http://x/?y=z":     {Body: []byte("a=b"), Redirect: "http://x/?y=z"},
		"close=after, delay-before=1s":         {Close: After, DelayBefore: time.Second},
	} {
		got, err := parseFault(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back Fault
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%s is %+v, %v", text, back, err)
		}
	}
}

// The package comment has a line for every fault there is, and the names cover the struct.
func TestFaultNamesAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.Contains(string(doc), "//\t  "+n.text) {
			t.Errorf("doc.go has no line for %s", n.text)
		}
	}
	// StatusAt shares its name with Status, Body has two.
	if fields := reflect.TypeFor[Fault]().NumField(); fields != len(names) {
		t.Errorf("%d fields and %d names", fields, len(names))
	}
}

func FuzzParseFault(f *testing.F) {
	f.Add(`delay-after=900ms, status=503/before`)
	f.Add(`retry-after="a \"b\", c", status=429, body=`)
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := parseFault(text)
		if err != nil {
			return
		}
		encoded, err := json.Marshal(fault)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var back Fault
		if err := json.Unmarshal(encoded, &back); err != nil && isText(fault) {
			t.Fatalf("%q: %s: %v", text, encoded, err)
		}
	})
}

// isText says whether JSON can hold the fault's texts as they are.
func isText(f Fault) bool {
	return strings.ToValidUTF8(f.RetryAfter+f.Redirect, "") == f.RetryAfter+f.Redirect
}
