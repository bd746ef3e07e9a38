package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const charge = "payment.charge"

// desk is a screen that is served over a database of its own.
type desk struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *idemstore.Store
	url   string
}

func open(t *testing.T, change ...func(*admin.Config)) desk {
	t.Helper()
	return openOn(t, devtest.Pool(t), change...)
}

func openOn(t *testing.T, pool *pgxpool.Pool, change ...func(*admin.Config)) desk {
	t.Helper()
	d := desk{t: t, pool: pool, store: idemstore.New(pool, time.Minute)}
	c := admin.Config{Store: d.store, Kinds: []admin.Kind{{
		Name: charge, Link: "https://pay.example/charges/{id}", Facts: []admin.Fact{{Name: "effect", Value: "one charge"}},
		Words: admin.Words{Done: "Charged", NotDone: "Not charged", Whether: "whether it was charged", Reference: "charge",
			Detail: func(job []byte) string {
				if len(job) == 0 {
					return "" // nobody read it
				}
				return "12.00 EUR"
			}},
	}}}
	for _, f := range change {
		f(&c)
	}
	handler, err := admin.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

func (d desk) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

// add claims a key, as a worker would, and returns its task. set changes columns of it.
func (d desk) add(key string, set string) idemstore.Task {
	d.t.Helper()
	claims, err := d.store.Claim(d.t.Context(), idemstore.Claim{
		Kind: charge, Key: key, Token: uuid.New(), Payload: []byte(`{"order_id":"18452","amount":1200}`), Hash: []byte("h"), HashAlgorithm: "v1",
		ProviderKey: key, Refs: []idemstore.Ref{{Name: "customer", Value: "c_17"}}, OriginTrace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Lease: time.Minute, MaxAge: time.Hour, MaxFailures: 5,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	task := claims[0].Task
	if set != "" {
		d.exec(`update settle.tasks set `+set+` where id = $1`, task.TaskID)
	}
	return task
}

// Columns of tasks in other states.
const (
	done    = `status = 'finished', lease_until = null, sending = false, finished_at = '2026-11-30 10:00:00Z', external_id = 'ch_1', result = '{"charge_id":"ch_1"}'`
	failed  = `status = 'failed', lease_until = null, sending = false, finished_at = '2026-11-30 10:00:00Z', last_error = 'card_declined', error_class = 'refused'`
	unknown = `status = 'unknown', lease_until = null, sending = false, unsure = true, last_error = 'deadline', error_class = 'timeout', next_attempt_at = '2026-11-30 11:00:00Z'`
	parked  = `status = 'needs_review', lease_until = null, sending = false, unsure = true, review_cause = `
)

// get reads a page without following where it leads.
func (d desk) get(path string) (status int, header http.Header, body string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

// page is a page that has to be there.
func (d desk) page(path string) string {
	d.t.Helper()
	status, _, body := d.get(path)
	if status != http.StatusOK {
		d.t.Fatalf("%s: %d\n%s", path, status, body)
	}
	return body
}

// api reads an answer of the API.
func (d desk) api(path string, into any) {
	d.t.Helper()
	status, header, body := d.get("/api" + path)
	if status != http.StatusOK || header.Get("Content-Type") != "application/json; charset=utf-8" {
		d.t.Fatalf("%s: %d %s\n%s", path, status, header.Get("Content-Type"), body)
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		d.t.Fatalf("%s: %v\n%s", path, err, body)
	}
}

func TestOneHitLeadsToItsTask(t *testing.T) {
	t.Parallel()
	d := open(t)
	task := d.add("order_18452", done)
	if err := d.store.SaveExternalID(t.Context(), d.add("order_2", "").Fence, "ch_2", ""); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"order_18452", charge + "/order_18452", fmt.Sprint(task.TaskID)} {
		status, header, _ := d.get("/find?q=" + text)
		if status != http.StatusSeeOther || header.Get("Location") != fmt.Sprintf("/tasks/%d", task.TaskID) {
			t.Errorf("%s: %d to %q", text, status, header.Get("Location"))
		}
	}
	if status, header, _ := d.get("/find?q=ch_2"); status != http.StatusSeeOther || header.Get("Location") != "/tasks/2" {
		t.Errorf("an external reference: %d to %q", status, header.Get("Location"))
	}
	for text, want := range map[string]string{
		"c_17": "customer", "order_": "Nothing equals it", "order_184": "Nothing equals it", "0af7651916cd43dd8448eb211c80319c": "trace id", "order_9": "Nothing has, or begins with", "": "Type what the customer gave you",
	} {
		if body := d.page("/find?q=" + text); !strings.Contains(body, want) {
			t.Errorf("%q: no %q in\n%s", text, want, body)
		}
	}
	for _, text := range []string{"%00", "%ff", strings.Repeat("a", 578)} {
		if status, _, _ := d.get("/find?q=" + text); status != http.StatusBadRequest {
			t.Errorf("%.10q: %d", text, status)
		}
	}
}

func TestAnAnswerForTheCustomer(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i, c := range []struct{ set, want, not string }{
		{done + `, attempts = 3, duplicates = 2`, "Charged once, 12.00 EUR, charge ch_1, on 30 Nov 2026 at 10:00:00 UTC; 3 attempts, 2 duplicates stopped.", ""},
		{done + `, evidence_id = 'ch_9'`, "But there is proof of another effect, charge ch_9: look at it at the provider.", "once"},
		{failed, "Not charged, card_declined, on 30 Nov 2026 at 10:00:00 UTC; 1 attempt, 0 duplicates stopped.", ""},
		{strings.Replace(failed, `card_declined`, `POST /charges: 402 Payment Required (card_declined)`, 1), "Not charged, the provider refused it (card_declined), on 30 Nov", "POST"},
		{strings.Replace(failed, `card_declined`, `POST /charges: 422 Unprocessable Entity`, 1), "Not charged, the provider refused it, on 30 Nov", "POST"},
		{unknown, "Not known yet whether it was charged; the provider is asked again, not before 30 Nov 2026 at 11:00:00 UTC.", "Not charged"},
		{parked + `'budget'`, "Not known whether it was charged: its attempts are used up and nobody could tell whether it happened; a person decides", "Not charged"},
		{parked + `'not_booked', external_id = 'ch_1'`, "Charged, 12.00 EUR, charge ch_1; it is not in our own books yet", "once"},
		{parked + `'two_effects', external_id = 'ch_1', evidence_id = 'ch_2'`, "It may have happened more than once, charge ch_1, charge ch_2", "Charged once"},
		{`status = 'needs_review', lease_until = null, sending = false, first_sent_at = null, review_cause = 'conflict'`, "Not charged: its data contradict ours", "Not known"},
		{``, "Not known yet whether it was charged; attempt 1 is at work right now.", "Not charged"},
		{`lease_until = clock_timestamp() - interval '1 second'`, "attempt 1 has not come back", "Not charged"},
		{`lease_until = null, sending = false, first_sent_at = null`, "Not charged yet; nothing was sent", "Not known"},
	} {
		task := d.add(fmt.Sprint("order_", i), c.set)
		var told struct{ Message, Status string }
		d.api(fmt.Sprintf("/tasks/%d", task.TaskID), &told)
		if !strings.Contains(told.Message, c.want) || c.not != "" && strings.Contains(told.Message, c.not) {
			t.Errorf("%s:\n%q, want\n%q and no %q", c.set, told.Message, c.want, c.not)
		}
		if body := d.page(fmt.Sprintf("/tasks/%d", task.TaskID)); !strings.Contains(body, told.Message) {
			t.Errorf("the page of task %d does not say %q", task.TaskID, told.Message)
		}
	}
}

// A database that does not answer is said to the reader, who does not wait for ever.
func TestPagesSayThatTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *admin.Config) { c.ReadLimit = 300 * time.Millisecond })
	task := d.add("order_1", "")
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `lock table settle.tasks in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	page := fmt.Sprintf("/tasks/%d", task.TaskID)
	for _, path := range []string{"/find?q=order_1", page, "/lists/unknown", "/", "/parts/overview", "/api" + page} {
		if status, _, body := d.get(path); status != http.StatusServiceUnavailable || !strings.Contains(body, "No answer in time: the database may be down") {
			t.Errorf("%s: %d\n%s", path, status, body)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, _, body := d.get(page)
	for limit := time.Now().Add(20 * time.Second); status != http.StatusOK && time.Now().Before(limit); { // a busy machine needs more than the limit
		status, _, body = d.get(page)
	}
	if status != http.StatusOK {
		t.Errorf("afterwards: %d\n%s", status, body)
	}
}
