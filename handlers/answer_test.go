package handlers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
)

// A secret stands in every body: it must never be in an error's text.
const secret = "4111-1111"

// The default mapping of answers to a POST, each from a real socket.
func TestChargeAnswers(t *testing.T) {
	succeeded := ChargeResult{ChargeID: "ch_1", Status: "succeeded"}
	pending := ChargeResult{ChargeID: "ch_1", Status: "pending"}
	declined := ChargeResult{ChargeID: "ch_1", Status: "declined", Code: "card_declined"}
	none := ChargeResult{}
	body := func(status string) string {
		return `{"charge_id":"ch_1","status":"` + status + `","replayed":false,"note":"` + secret + `"}`
	}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
		wait   time.Duration
		result ChargeResult
		text   string // in the error
	}{
		{"201", says(201, body("succeeded")), done, 0, succeeded, ""},
		{"200", says(200, body("succeeded")), done, 0, succeeded, ""},
		{"200 without a status", says(200, `{"charge_id":"ch_1"}`), done, 0, succeeded, ""},
		{"200 with an odd character beside the id", says(200, `{"charge_id":"ch_1","note":"\u0000"}`), done, 0, succeeded, ""},
		{"200 pending", says(200, body("pending")), accepted, time.Second, pending, ""},
		{"202", says(202, body("pending")), accepted, time.Second, pending, ""},
		{"202 without an id", says(202, `{"status":"pending"}`), unknown, 0, none, "no usable id"},
		{"200 declined", says(200, `{"charge_id":"ch_1","status":"declined","code":"card_declined"}`), refused, 0, declined, "card_declined"},
		{"200 with an unknown status", says(200, body("odd")), unknown, 0, none, "status"},
		{"200 with a number for a status", says(200, `{"charge_id":"ch_1","status":7}`), unknown, 0, none, "status"},

		{"D-34 body cut", breaksOff(200, `{"charge_id"`, "Content-Length", "100"), unknown, 0, none, "cut off"},
		{"D-34 body cut behind whole JSON", breaksOff(200, body("succeeded"), "Content-Length", "1000"), unknown, 0, none, "cut off"},
		{"D-34 chunk cut", breaksOff(201, body("succeeded")), unknown, 0, none, "cut off"},
		{"D-34 empty body", says(200, ""), unknown, 0, none, "empty"},
		{"200 with no object", says(200, `["ch_1"]`), unknown, 0, none, "JSON"},
		{"200 with two documents", says(200, body("succeeded")+body("succeeded")), unknown, 0, none, "JSON"},
		{"200 with a login page", says(200, "<html>"+secret), unknown, 0, none, "JSON"},
		{"200 without an id", says(200, `{}`), unknown, 0, none, "no usable id"},
		{"200 with an empty id", says(200, `{"charge_id":""}`), unknown, 0, none, "no usable id"},
		{"200 with a blank id", says(200, `{"charge_id":" "}`), unknown, 0, none, "no usable id"},
		{"200 with a number for an id", says(200, `{"charge_id":1}`), unknown, 0, none, "no usable id"},
		{"200 with a NUL in the id", says(200, `{"charge_id":"ch\u0000"}`), unknown, 0, none, "no usable id"},
		{"200 with an id that leads elsewhere", says(200, `{"charge_id":".."}`), unknown, 0, none, "no usable id"},
		{"200 with an endless id", says(200, `{"charge_id":"`+strings.Repeat("x", 256)+`"}`), unknown, 0, none, "no usable id"},
		{"200 with an endless body", says(200, body("succeeded")+strings.Repeat(" ", 64<<10)), unknown, 0, none, "too large"},
		{"200 of the largest size", says(200, fmt.Sprintf("%-65536s", body("succeeded"))), done, 0, succeeded, ""},
		{"204", says(204, ""), unknown, 0, none, "204"},

		{"400", says(400, `{"error":"bad_request","note":"`+secret+`"}`), refused, 0, ChargeResult{Status: "declined", Code: "bad_request"}, "400 Bad Request (bad_request)"},
		{"400 with a NUL", says(400, "bad\x00"+secret), refused, 0, ChargeResult{Status: "declined"}, "400 Bad Request"},
		{"400 with a code that is none", says(400, `{"error":"card `+secret+`"}`), refused, 0, ChargeResult{Status: "declined"}, "400 Bad Request"},
		{"402", says(402, `{"charge_id":"ch_1","status":"declined","code":"card_declined","note":"`+secret+`"}`), refused, 0, declined, "402 Payment Required (card_declined)"},
		{"422", says(422, ""), refused, 0, ChargeResult{Status: "declined"}, "422"},

		{"422 of a key with other content", says(422, `{"error":"idempotency_conflict"}`), conflict, 0, none, "idempotency_conflict"},
		{"422 in progress", says(422, `{"error":"request_in_progress"}`), inProgress, 0, none, "request_in_progress"},

		{"401", says(401, secret), misconfigured, 0, none, "401"},
		{"403", says(403, secret), misconfigured, 0, none, "403"},
		{"404", says(404, `{"error":"not_found"}`), misconfigured, 0, none, "404 Not Found (not_found)"},
		{"405", says(405, secret), misconfigured, 0, none, "405"},
		{"302 without an address", says(302, ""), misconfigured, 0, none, "302"},
		{"304", says(304, ""), misconfigured, 0, none, "304"},

		{"409 conflict", says(409, `{"error":"idempotency_conflict"}`), conflict, 0, none, "idempotency_conflict"},
		{"409 in progress", says(409, `{"error":"request_in_progress"}`), inProgress, 0, none, "request_in_progress"},
		{"409 with an id", says(409, body("succeeded")), unknown, 0, none, "409"},
		{"409 empty", says(409, ""), unknown, 0, none, "409"},
		{"409 cut", breaksOff(409, `{"error":"idempotency_conf`, "Content-Length", "100"), unknown, 0, none, "409"},

		{"429", says(429, secret), notSent, 0, none, "429"},
		{"429 with a wish", says(429, "", "Retry-After", "2"), notSent, 2 * time.Second, none, "429"},
		{"408", says(408, secret), unknown, 0, none, "408"},
		{"418", says(418, secret), unknown, 0, none, "418"},
		{"500", says(500, body("succeeded")), unknown, 0, none, "500"},
		{"500 with a wish", says(500, "", "Retry-After", "7"), unknown, 0, none, "500"},
		{"502", says(502, "<html>"+secret), unknown, 0, none, "502"},
		{"503", says(503, ""), unknown, 0, none, "503"},
		{"503 with a wish", says(503, "", "Retry-After", "7"), unknown, 7 * time.Second, none, "503"},
		{"504", says(504, ""), unknown, 0, none, "504"},
		{"500, stored under the key", says(500, `{"error":"fault","replayed":true}`), replayedError, 0, none, "500"},
		{"502, stored under the key, by a header", says(502, "<html>", "Idempotent-Replayed", "True"), replayedError, 0, none, "502"},
		{"500, with a header that denies it", says(500, "", "Idempotent-Replayed", "false"), unknown, 0, none, "500"},
		{"no answer", hangsUp, unknown, 0, none, "POST /charges"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, requests := provider(t, c.answer)
			result, err := performCharge(t.Context(), client(t, ClientOptions{URL: s.URL}))
			if class, wait := outcomeOf(err); class != c.want || wait != c.wait {
				t.Errorf("%s after %v, want %s after %v; error %v", class, wait, c.want, c.wait, err)
			}
			if result != c.result {
				t.Errorf("result %+v, want %+v", result, c.result)
			}
			if err != nil && (!strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), secret)) {
				t.Errorf("error text %q, want %q in it", err, c.text)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestChargeLookUps(t *testing.T) {
	told := func(status, order, amount, currency string) http.HandlerFunc {
		return says(200, fmt.Sprintf(`{"charge_id":"ch_1","status":%q,"order_id":%s,"amount":%s,"currency":%q,"code":"card_declined"}`,
			status, order, amount, currency))
	}
	found := ChargeResult{ChargeID: "ch_1", Status: "succeeded"}
	none := ChargeResult{}
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   consumer.Verdict
		result ChargeResult
	}{
		{"succeeded", told("succeeded", `"18452"`, "1200", "EUR"), consumer.Found, found},
		{"the order as an integer", told("succeeded", `18452`, "1200", "EUR"), consumer.Found, found},
		{"the amount in other digits", told("succeeded", `"18452"`, "1200.00", "EUR"), consumer.Found, found},
		{"no more than the id", says(200, `{"charge_id":"ch_1","status":"succeeded"}`), consumer.Found, found},
		{"declined", told("declined", `"18452"`, "1200", "EUR"), consumer.FoundRefused, ChargeResult{"ch_1", "declined", "card_declined"}},
		{"pending", told("pending", `"18452"`, "1200", "EUR"), consumer.Running, ChargeResult{ChargeID: "ch_1", Status: "pending"}},
		{"another order", told("succeeded", `"18453"`, "1200", "EUR"), consumer.Contradictory, found},
		{"another amount", told("succeeded", `"18452"`, "1200.01", "EUR"), consumer.Contradictory, found},
		{"another currency", told("succeeded", `"18452"`, "1200", "USD"), consumer.Contradictory, found},
		{"declined, another amount", told("declined", `"18452"`, "1", "EUR"), consumer.Contradictory, ChargeResult{"ch_1", "declined", "card_declined"}},
		{"an unknown status", told("odd", `"18452"`, "1200", "EUR"), consumer.CannotTell, none},
		{"no status", says(200, `{"charge_id":"ch_1"}`), consumer.CannotTell, none},
		{"an amount that is none", told("succeeded", `"18452"`, `"1200"`, "EUR"), consumer.CannotTell, none},
		{"an empty id", says(200, `{"charge_id":"","status":"succeeded"}`), consumer.CannotTell, none},
		{"body cut", breaksOff(200, `{"charge_id":"ch_1","status":"succeeded"}`, "Content-Length", "100"), consumer.CannotTell, none},
		{"empty body", says(200, ""), consumer.CannotTell, none},
		{"not JSON", says(200, "<html>"), consumer.CannotTell, none},
		{"201", says(201, `{"charge_id":"ch_1","status":"succeeded"}`), consumer.CannotTell, none},

		{"404 not_found", says(404, `{"error":"not_found"}`), consumer.Absent, none},
		{"404 of something else", says(404, `{"error":"no_such_route"}`), consumer.CannotTell, none},
		{"404 of a proxy", says(404, "404 page not found"), consumer.CannotTell, none},
		{"404 cut", breaksOff(404, `{"error":"not_fou`, "Content-Length", "100"), consumer.CannotTell, none},
		{"410 not_found", says(410, `{"error":"not_found"}`), consumer.CannotTell, none},
		{"302", says(302, "", "Location", "/login"), consumer.CannotTell, none},
		{"401", says(401, ""), consumer.CannotTell, none},
		{"429", says(429, "", "Retry-After", "2"), consumer.CannotTell, none},
		{"500", says(500, ""), consumer.CannotTell, none},
		{"503", says(503, "", "Retry-After", "7"), consumer.CannotTell, none},
		{"no answer", hangsUp, consumer.CannotTell, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.String() != "/charges?idempotency_key=order_18452" || r.Header.Get("Idempotency-Key") != "" {
					t.Errorf("asked %s %s with %v", r.Method, r.URL, r.Header)
				}
				c.answer(w, r)
			})
			kind := Charge(client(t, ClientOptions{URL: s.URL}), ChargeOptions{})
			result, verdict, err := kind.Lookup(t.Context(), chargeAttempt())
			if verdict != c.want || result != c.result || (err != nil) != (c.want == consumer.CannotTell) {
				t.Errorf("%v, %+v, error %v; want %v, %+v", verdict, result, err, c.want, c.result)
			}
		})
	}
}

// The engine hears a wish of the provider also where it only asks.
func TestLookUpCarriesRetryAfter(t *testing.T) {
	for _, status := range []int{429, 503} {
		s, _ := provider(t, says(status, "", "Retry-After", "7"))
		_, _, err := Charge(client(t, ClientOptions{URL: s.URL}), ChargeOptions{}).Lookup(t.Context(), chargeAttempt())
		if class, wait := outcomeOf(err); class != unknown || wait != 7*time.Second {
			t.Errorf("%d: %s after %v", status, class, wait)
		}
	}
}

// A provider may serve look-ups by key alone. That it forgot the key of an id that it gave says nothing.
func TestLookUpWhereIDsAreNotServed(t *testing.T) {
	for name, c := range map[string]struct {
		byKey http.HandlerFunc
		want  consumer.Verdict
	}{
		"found":        {says(200, `{"report_id":"rep_1","status":"ready","task_id":42,"report_type":"monthly"}`), consumer.Found},
		"another id":   {says(200, `{"report_id":"rep_2","status":"ready"}`), consumer.Contradictory},
		"key is gone":  {says(404, `{"error":"not_found"}`), consumer.CannotTell},
		"not served":   {says(404, `page not found`), consumer.CannotTell},
		"server error": {says(500, `{}`), consumer.CannotTell},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("idempotency_key") == "" {
					says(404, `page not found`)(w, r)
					return
				}
				c.byKey(w, r)
			})
			a := reportAttempt()
			a.ExternalID = "rep_1"
			if _, verdict, _ := Report(client(t, ClientOptions{URL: s.URL}), ReportOptions{}).Lookup(t.Context(), a); verdict != c.want {
				t.Errorf("%v, want %v", verdict, c.want)
			}
		})
	}
}

// D-33: a known id is polled, and nothing else answers for it.
func TestLookUpByExternalID(t *testing.T) {
	for _, c := range []struct {
		name, id, path string
		answer         http.HandlerFunc
		want           consumer.Verdict
	}{
		{"ready", "rep_1", "/reports/rep_1", says(200, `{"report_id":"rep_1","status":"ready","task_id":42,"report_type":"monthly"}`), consumer.Found},
		{"pending", "rep_1", "/reports/rep_1", says(200, `{"report_id":"rep_1","status":"pending"}`), consumer.Running},
		{"failed", "rep_1", "/reports/rep_1", says(200, `{"report_id":"rep_1","status":"failed"}`), consumer.FoundRefused},
		{"gone", "rep_1", "/reports/rep_1", says(404, `{"error":"not_found"}`), consumer.Absent},
		{"another id", "rep_1", "/reports/rep_1", says(200, `{"report_id":"rep_2","status":"ready"}`), consumer.Contradictory},
		{"another task", "rep_1", "/reports/rep_1", says(200, `{"report_id":"rep_1","status":"ready","task_id":43}`), consumer.Contradictory},
		{"another type", "rep_1", "/reports/rep_1", says(200, `{"report_id":"rep_1","status":"ready","report_type":"daily"}`), consumer.Contradictory},
		{"an id that looks like a path", "../a?b/c", "/reports/..%2Fa%3Fb%2Fc", says(200, `{"report_id":"../a?b/c","status":"ready"}`), consumer.Found},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.EscapedPath(); got != c.path || r.URL.RawQuery != "" {
					t.Errorf("asked %s?%s, want %s", got, r.URL.RawQuery, c.path)
				}
				c.answer(w, r)
			})
			a := reportAttempt()
			a.ExternalID = c.id
			_, verdict, err := Report(client(t, ClientOptions{URL: s.URL}), ReportOptions{}).Lookup(t.Context(), a)
			if verdict != c.want || err != nil {
				t.Errorf("%v, error %v; want %v", verdict, err, c.want)
			}
		})
	}
}
