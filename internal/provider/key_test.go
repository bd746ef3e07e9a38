package provider

import (
	"net/http"
	"strings"
	"testing"
)

// L8 and L3: the first creates, the same again is a replay, other content is a conflict.
func TestKey(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	first := r.post("/reports", "report-task-42", monthly, "")
	r.expect(first, 201, "status", "ready", "replayed", false)
	id := first.field("report_id")

	r.expect(r.post("/reports", "report-task-42", monthly, ""), 200, "report_id", id, "status", "ready", "replayed", true)
	spaced := "  {\"report_type\":\"monthly\",\n\"task_id\" : 42 }\n"
	r.expect(r.post("/reports", "report-task-42", spaced, ""), 200, "report_id", id, "replayed", true)

	other := r.post("/reports", "report-task-42", `{"task_id": 42, "report_type": "weekly"}`, "")
	r.expect(other, 409)
	if other.text != `{"error":"idempotency_conflict"}` {
		t.Errorf("conflict: %s", other.text)
	}
	r.counts("report-task-42", 4, 1)
	r.expect(r.get("/reports?idempotency_key=report-task-42"), 200,
		"report_id", id, "status", "ready", "task_id", 42, "report_type", "monthly")
	r.expect(r.get("/reports/"+id), 200, "report_id", id, "task_id", 42)
}

// L2: without a key every request creates.
func TestNoKey(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	first, second := r.post("/reports", "", monthly, ""), r.post("/reports", "", monthly, "")
	r.expect(first, 201, "replayed", false)
	r.expect(second, 201, "replayed", false)
	if first.fields["report_id"] == second.fields["report_id"] {
		t.Error("two reports have one id")
	}
	r.counts("", 2, 2)
}

// Keys of the two resources do not meet, and other keys are other effects.
func TestKeysApart(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.expect(r.post("/reports", "k", monthly, ""), 201)
	r.expect(r.post("/charges", "k", order, ""), 201, "status", "succeeded", "replayed", false)
	r.expect(r.post("/charges", "K", order, ""), 201)
	r.counts("k", 2, 2)
	r.counts("K", 1, 1)
	r.counts("", 3, 3)
}

// A declined charge is an answer like any other: stored, replayed, found. It is not an effect.
func TestDeclined(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	body := strings.Replace(order, "c_17", "c_declined", 1)
	first := r.post("/charges", "order_1", body, "")
	r.expect(first, 402, "status", "declined", "code", "card_declined", "replayed", false)
	id := first.field("charge_id")
	r.expect(r.post("/charges", "order_1", body, ""), 402, "charge_id", id, "status", "declined", "replayed", true)
	r.expect(r.get("/charges?idempotency_key=order_1"), 200, "charge_id", id, "status", "declined")
	r.counts("order_1", 2, 0)

	r.expect(r.post("/charges", "order_2", order, "decline"), 402, "code", "card_declined")
	r.expect(r.post("/charges", "order_2", order, ""), 402, "replayed", true)
	r.counts("order_2", 2, 0)
	r.expect(r.post("/reports", "report-task-42", monthly, "decline"), 201)
}

// Digits come back as they went in, whatever a float would make of them.
func TestExactNumbers(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for _, amount := range []string{"0", "0.10", "1200.00", "9007199254740993", "1e2", "12345678901234567890123456789012"} {
		key := "amount-" + amount
		body := strings.Replace(order, "1200", amount, 1)
		r.expect(r.post("/charges", key, body, ""), 201)
		r.expect(r.get("/charges?idempotency_key="+key), 200, "amount", amount, "order_id", "18452", "currency", "EUR")
		if got := one[string](r, `select amount from provider.charges where idempotency_key = $1`, key); got != amount {
			t.Errorf("stored %s as %s", amount, got)
		}
	}
	r.expect(r.post("/charges", "amount-0.10", strings.Replace(order, "1200", "0.1", 1), ""), 409)

	big := `{"task_id": 9007199254740993, "report_type": "monthly"}`
	r.expect(r.post("/reports", "big", big, ""), 201)
	r.expect(r.get("/reports?idempotency_key=big"), 200, "task_id", "9007199254740993")
	r.expect(r.post("/reports", "big", strings.Replace(big, "993", "992", 1), ""), 409)
}

// An order id is the same as a string and as an integer.
func TestOrderIDSpelling(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.expect(r.post("/charges", "k", order, ""), 201)
	r.expect(r.post("/charges", "k", strings.Replace(order, `"18452"`, `18452`, 1), ""), 200, "replayed", true)
	r.expect(r.get("/charges?idempotency_key=k"), 200, "order_id", "18452")
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	charge := func(old, replacement string) string { return strings.Replace(order, old, replacement, 1) }
	long := strings.Repeat("k", 65)
	for name, c := range map[string]struct{ path, key, body, says string }{
		"key too long":        {"/charges", long, order, "1 to 64 printable ASCII"},
		"key not ASCII":       {"/charges", "café", order, "1 to 64 printable ASCII"},
		"key not UTF-8":       {"/charges", "caf\xe9", order, "1 to 64 printable ASCII"},
		"empty body":          {"/charges", "k", ``, "not a JSON object"},
		"a list":              {"/charges", "k", `[]`, "not a JSON object"},
		"object not ended":    {"/reports", "k", `{"task_id": 42`, "does not end"},
		"something behind":    {"/reports", "k", monthly + `{}`, "follows"},
		"member twice":        {"/reports", "k", `{"task_id": 1, "task_id": 2, "report_type": "m"}`, "twice"},
		"letter case":         {"/reports", "k", `{"Task_ID": 1, "report_type": "m"}`, "task_id is missing"},
		"unknown member":      {"/reports", "k", `{"task_id": 1, "report_type": "m", "x": 1}`, `"x" is unknown`},
		"not UTF-8":           {"/reports", "k", "{\"task_id\": 1, \"report_type\": \"\xff\"}", "not UTF-8"},
		"NUL":                 {"/reports", "k", `{"task_id": 1, "report_type": "\u0000"}`, "U+0000"},
		"task_id a string":    {"/reports", "k", `{"task_id": "42", "report_type": "m"}`, "task_id must be an integer"},
		"task_id a fraction":  {"/reports", "k", `{"task_id": 42.0, "report_type": "m"}`, "task_id must be an integer"},
		"task_id null":        {"/reports", "k", `{"task_id": null, "report_type": "m"}`, "task_id must be an integer"},
		"report_type empty":   {"/reports", "k", `{"task_id": 42, "report_type": ""}`, "report_type must be a string"},
		"order_id null":       {"/charges", "k", charge(`"18452"`, `null`), "order_id must be a string"},
		"order_id a fraction": {"/charges", "k", charge(`"18452"`, `1.5`), "order_id must be a string"},
		"no order_id":         {"/charges", "k", charge(`"order_id": "18452", `, ``), "order_id is missing"},
		"amount a string":     {"/charges", "k", charge(`1200`, `"1200"`), "amount must be a number"},
		"amount below 0":      {"/charges", "k", charge(`1200`, `-1`), "amount must be a number"},
		"amount too long":     {"/charges", "k", charge(`1200`, strings.Repeat("1", 33)), "amount must be a number"},
		"amount malformed":    {"/charges", "k", charge(`1200`, `012`), "malformed"},
		"customer a number":   {"/charges", "k", charge(`"c_17"`, `17`), "customer_id must be a string"},
		"body too large":      {"/charges", "k", charge("c_17", strings.Repeat("c", maxBody)), "larger than 262144 bytes"},
	} {
		got := r.post(c.path, c.key, c.body, "")
		if got.status != http.StatusBadRequest || !strings.Contains(got.text, strings.ReplaceAll(c.says, `"`, `\"`)) {
			t.Errorf("%s: %d %s, want 400 with %q", name, got.status, got.text, c.says)
		}
	}
	twice := r.send(t.Context(), http.MethodPost, "/reports", monthly, "Idempotency-Key", "a", "Idempotency-Key", "b")
	r.expect(twice, 400)
	if n := one[int](r, `select (select count(*) from provider.reports) + (select count(*) from provider.charges)`); n != 0 {
		t.Errorf("%d effects of malformed requests", n)
	}
}

// An empty key header is not the same as none: who sends it believes to be protected.
func TestEmptyKey(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/reports", strings.NewReader(monthly))
	request.Header["Idempotency-Key"] = []string{""}
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", response.StatusCode)
	}
}

func TestLookUp(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	for path, status := range map[string]int{
		"/reports?idempotency_key=unseen":                     404,
		"/charges?idempotency_key=unseen":                     404,
		"/reports/rep_none":                                   404,
		"/charges/%00%ff":                                     404,
		"/reports":                                            400,
		"/reports?idempotency_key=":                           400,
		"/reports?idempotency_key=%00":                        400,
		"/reports?idempotency_key=a&idempotency_key=b":        400,
		"/stats?idempotency_key=":                             400,
		"/charges?idempotency_key=" + strings.Repeat("k", 65): 400,
	} {
		got := r.get(path)
		if got.status != status || status == 404 && got.text != `{"error":"not_found"}` {
			t.Errorf("GET %s: %d %s, want %d", path, got.status, got.text, status)
		}
	}
	r.counts("unseen", 0, 0) // look-ups are not W
}

// Only a look-up may say not_found: a wrong address must not look like "the provider does not know it".
func TestAstray(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.expect(r.get("/nowhere?idempotency_key=k"), 404, "error", "no_such_path")
	r.expect(r.whole(r.send(t.Context(), http.MethodDelete, "/charges", "", "Idempotency-Key", "k")), 405)
	r.expect(r.post("/v2/charges", "k", order, ""), 404, "error", "no_such_path")
	if n := one[int](r, `select count(*) from provider.requests`); n != 3 {
		t.Errorf("%d requests recorded, want 3", n)
	}
}

// Each request leaves one row with what it was and what it got.
func TestRequestsTable(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	r.post("/reports", "k", monthly, "")
	r.post("/reports", "k", monthly, "")
	r.get("/reports?idempotency_key=k")
	r.send(t.Context(), http.MethodPost, "/reports", monthly, "Idempotency-Key", "k", "Settle-Fault", "close=after")
	r.post("/reports", "", monthly, "")
	r.get("/stats")
	got := one[[]string](r, `select array_agg(concat_ws(' ', coalesce(key, '-'), method, path, coalesce(status::text, '-')) order by id)
		from provider.requests where at <= clock_timestamp()`)
	want := []string{"k POST /reports 201", "k POST /reports 200", "k GET /reports 200", "k POST /reports -", "- POST /reports 201"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("requests:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
