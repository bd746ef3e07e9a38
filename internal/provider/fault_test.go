package provider

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What each fault of a POST shows to the client, and what is there afterwards: W is 1 in all of them.
func TestFaultOfAnswer(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for _, c := range []struct {
		fault   string
		status  int    // 0: no answer
		text    string // part of the body
		effects int
	}{
		{"status=503", 503, `{"error":"fault","message":"Service Unavailable"}`, 0}, // D-30
		{"status=503/before", 503, `"fault"`, 0},
		{"status=500/after", 500, `"fault"`, 1},
		{"status=502/after", 502, `"fault"`, 1},
		{"status=408/before", 408, `"fault"`, 0},
		{"status=422/before", 422, `"fault"`, 0},
		{"status=409/after", 409, `"charge_id":"ch_`, 1}, // D-31: there already, with its id
		{"status=401", 401, `"fault"`, 0},
		{"status=204/after", 204, ``, 1},
		{"in-progress", 409, `{"error":"request_in_progress"}`, 0},
		{`status=200/after, body=`, 200, ``, 1}, // D-34
		{`status=502/after, body="<html>, \"bad\" \\o/</html>"`, 502, `<html>, "bad" \o/</html>`, 1},
		{"body-base64=AP8=", 201, "\x00\xff", 1},
		{"close=before", 0, ``, 0},
		{"close=after", 0, ``, 1},
		{"delay-before=1ms, delay-after=1ms", 201, `"succeeded"`, 1},
	} {
		key := "k" + strings.Map(keyRune, c.fault)
		got := r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", key, "Settle-Fault", c.fault)
		switch {
		case c.status == 0 && !errors.Is(got.err, io.EOF):
			t.Errorf("%s: answered %d, %v", c.fault, got.status, got.err)
		case c.status != 0 && (got.err != nil || got.status != c.status || !strings.Contains(got.text, c.text)):
			t.Errorf("%s: %d %q, %v", c.fault, got.status, got.text, got.err)
		case c.text == "" && got.text != "":
			t.Errorf("%s: body %q", c.fault, got.text)
		}
		r.counts(key, 1, c.effects)
		// The same key without the fault: the effect is found where there was one.
		status := http.StatusCreated
		if c.effects == 1 {
			status = http.StatusOK
		}
		r.expect(r.post("/charges", key, order, ""), status, "replayed", c.effects == 1)
		r.counts(key, 2, 1)
	}
}

func keyRune(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
		return c
	}
	return -1
}

// D-34: status 201, then less of the body than was promised, in both ways of promising.
func TestFaultCut(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for _, c := range []struct{ fault, framing string }{
		{"cut=length", "Content-Length"},
		{"cut=chunk", "chunked"},
		{`cut=length, status=200/after, body=`, "Content-Length"},
	} {
		key := "k" + strings.Map(keyRune, c.fault)
		got := r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", key, "Settle-Fault", c.fault)
		if got.status/100 != 2 || !errors.Is(got.err, io.ErrUnexpectedEOF) || got.text == "" || got.fields != nil {
			t.Errorf("%s: %d %q, %v", c.fault, got.status, got.text, got.err)
		}
		if chunked := got.header.Get("Content-Length") == ""; chunked != (c.framing == "chunked") {
			t.Errorf("%s: framed otherwise: %v", c.fault, got.header)
		}
		r.counts(key, 1, 1)
	}
}

// D-26: a connection that served before is closed without a byte, after the effect.
func TestFaultCloseOnUsedConnection(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := "POST /reports HTTP/1.1\r\nHost: p\r\nIdempotency-Key: k\r\nContent-Length: " + strconv.Itoa(len(monthly)) + "\r\n"
	for _, fault := range []string{"status=503", "close=after"} {
		if _, err := io.WriteString(conn, request+"Settle-Fault: "+fault+"\r\n\r\n"+monthly); err != nil {
			t.Fatal(err)
		}
		if fault == "status=503" {
			got := make([]byte, 12)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "HTTP/1.1 503" {
				t.Fatalf("first answer %q, %v", got, err)
			}
		}
	}
	rest, err := io.ReadAll(conn)
	if err != nil || strings.Contains(string(rest), "HTTP/1.1") {
		t.Errorf("the second request got %q, %v", rest, err)
	}
	r.counts("k", 2, 1)
}

// D-27: all five codes, and nothing is applied.
func TestFaultRedirect(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for fault, status := range map[string]int{
		"redirect=http://127.0.0.1:9/login":                         307,
		"redirect=http://127.0.0.1:9/login, status=301":             301,
		"redirect=http://127.0.0.1:9/login, status=302":             302,
		"redirect=http://127.0.0.1:9/login, status=303":             303,
		"redirect=http://127.0.0.1:9/login, status=308":             308,
		`redirect="http://127.0.0.1:9/login", body="<html></html>"`: 307,
	} {
		got := r.post("/charges", "k", order, fault)
		if got.status != status || got.header.Get("Location") != "http://127.0.0.1:9/login" {
			t.Errorf("%s: %d to %q", fault, got.status, got.header.Get("Location"))
		}
	}
	r.counts("k", 6, 0)
	r.expect(r.post("/charges", "k", order, "status=307/after, redirect=http://127.0.0.1:9/"), 307)
	r.counts("k", 7, 1)
}

// D-32: the text goes out as it is, however broken.
func TestFaultRetryAfter(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for _, text := range []string{"2", "0", "-5", "1.5", "9223372036854775807", "soon", "Sun, 06 Nov 1994 08:49:37 GMT"} {
		got := r.post("/charges", "k", order, `status=429, retry-after="`+text+`"`)
		if got.status != 429 || got.header.Get("Retry-After") != text {
			t.Errorf("%s: %d, Retry-After %q", text, got.status, got.header.Get("Retry-After"))
		}
	}
	if got := r.post("/charges", "k", order, "status=429"); len(got.header.Values("Retry-After")) != 0 {
		t.Errorf("Retry-After %q, want none", got.header.Values("Retry-After"))
	}
	r.counts("k", 8, 0)
}

// D-33: accepted, then ready or failed. Creating happens once.
func TestFaultPending(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	first := r.post("/reports", "a", monthly, "pending=1h")
	r.expect(first, 202, "status", "pending")
	id := first.field("report_id")
	r.expect(r.post("/reports", "a", monthly, ""), 202, "report_id", id, "status", "pending", "replayed", true)
	r.expect(r.get("/reports?idempotency_key=a"), 200, "report_id", id, "status", "pending", "task_id", 42)
	r.timePasses("reports", "ready_at")
	r.expect(r.get("/reports/"+id), 200, "status", "ready")
	r.expect(r.post("/reports", "a", monthly, ""), 200, "report_id", id, "status", "ready", "replayed", true)
	r.counts("a", 3, 1)

	id = r.post("/reports", "b", monthly, "pending=1h, pending-fails").field("report_id")
	r.timePasses("reports", "ready_at")
	r.expect(r.get("/reports/"+id), 200, "report_id", id, "status", "failed")
	r.counts("b", 1, 0)

	r.expect(r.post("/charges", "c", order, "pending=1h, pending-fails"), 202, "status", "pending")
	r.timePasses("charges", "ready_at")
	r.expect(r.get("/charges?idempotency_key=c"), 200, "status", "declined", "code", "card_declined")
}

// timePasses moves a time of the provider's rows one hour into the past.
func (r *rig) timePasses(table, column string) {
	r.t.Helper()
	sql := `update provider.` + table + ` set ` + column + ` = ` + column + ` - interval '1 hour'`
	if _, err := r.pool.Exec(r.t.Context(), sql); err != nil {
		r.t.Fatal(err)
	}
}

// D-40: a key older than its lifetime makes a new effect; a younger one does not. History stays.
func TestFaultForgetKeys(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.rules(`[{"forget-after": "1h"}]`)
	first := r.post("/charges", "k", order, "")
	r.expect(first, 201)
	r.expect(r.post("/charges", "k", order, ""), 200, "replayed", true)
	r.timePasses("charges", "created_at")
	r.expect(r.get("/charges?idempotency_key=k"), 200, "charge_id", first.fields["charge_id"])

	second := r.post("/charges", "k", strings.Replace(order, "1200", "1300", 1), "")
	r.expect(second, 201, "replayed", false)
	r.expect(r.get("/charges?idempotency_key=k"), 200, "charge_id", second.fields["charge_id"], "amount", 1300)
	r.counts("k", 3, 2)

	r.timePasses("charges", "created_at")
	r.expect(r.post("/reports", "k", monthly, "forget-after=1ns"), 201)
	r.expect(r.post("/reports", "k", monthly, "forget-after=1ns"), 201)
	r.counts("k", 5, 4)
}

// Keys ignored: each request creates, look-ups find the newest, no content is compared.
func TestFaultIgnoreKeys(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.rules(`[{"ignore-keys": true}]`)
	first := r.post("/reports", "report-task-42", monthly, "")
	second := r.post("/reports", "report-task-42", `{"task_id": 42, "report_type": "weekly"}`, "")
	r.expect(first, 201, "replayed", false)
	r.expect(second, 201, "replayed", false)
	r.expect(r.get("/reports?idempotency_key=report-task-42"), 200,
		"report_id", second.fields["report_id"], "report_type", "weekly")
	r.expect(r.get("/reports/"+first.field("report_id")), 200, "report_type", "monthly")
	r.counts("report-task-42", 2, 2)
}

// An error is stored under its key and all that the key gets from then on, whether or not its effect happened.
func TestFaultStored(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.rules(`[{"key": "k*", "count": 2, "status": "500", "stored": true}, {"key": "after", "status": "502/after", "stored": true}]`)
	for _, key := range []string{"k1", "k2"} {
		first := r.post("/charges", key, order, "")
		r.expect(first, 500, "error", "fault")
		if first.fields["replayed"] != nil || first.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("the first answer is marked: %q, %v", first.text, first.header)
		}
		for range 2 {
			again := r.post("/charges", key, order, "")
			r.expect(again, 500, "error", "fault", "replayed", true)
			if again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("no mark in %v", again.header)
			}
		}
		r.expect(r.get("/charges?idempotency_key="+key), 404, "error", "not_found")
		r.counts(key, 3, 0)
	}
	r.expect(r.post("/reports", "k1", monthly, ""), 201) // keys of reports are others
	r.expect(r.post("/charges", "after", order, ""), 502)
	r.expect(r.post("/charges", "after", order, ""), 502, "replayed", true)
	r.expect(r.get("/charges?idempotency_key=after"), 200, "status", "succeeded")
	r.counts("after", 2, 1)

	page := r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", "page", "Settle-Fault", `status=503, stored, body="<html>"`)
	again := r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", "page")
	if page.text != "<html>" || again.text != "<html>" || again.status != 503 || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%q, and then %d %q with %v", page.text, again.status, again.text, again.header)
	}
	r.expect(r.post("/charges", "", order, "status=500, stored"), 500)
	r.expect(r.post("/charges", "", order, ""), 201) // there is no key to store it under
}

// D-29: the effect is there and the look-up does not show it yet; the key and the id do.
func TestFaultHide(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for _, c := range []struct{ table, body, id string }{{"charges", order, "charge_id"}, {"reports", monthly, "report_id"}} {
		path, key := "/"+c.table, "k-"+c.table
		made := r.post(path, key, c.body, "hide=1h")
		r.expect(made, 201)
		r.expect(r.get(path+"?idempotency_key="+key), 404, "error", "not_found")
		r.expect(r.get(path+"/"+made.field(c.id)), 200, "status", made.field("status"))
		r.expect(r.post(path, key, c.body, ""), 200, "replayed", true)
		r.counts(key, 2, 1)
		r.timePasses(c.table, "visible_at")
		r.expect(r.get(path+"?idempotency_key="+key), 200, c.id, made.field(c.id))
	}
}

// A delay holds the answer back, and the effect as well where it comes before.
func TestFaultDelays(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for _, fault := range []string{"delay-before=60ms", "delay-after=60ms"} {
		began := time.Now()
		r.expect(r.post("/reports", "", monthly, fault), 201)
		if took := time.Since(began); took < 60*time.Millisecond {
			t.Errorf("%s: answered after %v", fault, took)
		}
	}
}
