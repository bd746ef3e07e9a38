package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

// request asks as the owner of a token, or as nobody.
func request(t *testing.T, url, token string) (status int, body string) {
	t.Helper()
	return exchange(t, http.MethodGet, url, token, "")
}

func TestAdminAnswersACustomer(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	execute(t, env["DATABASE_URL"], `update settle.tasks set payload = '{"order_id":"3","customer_id":"c_17","amount":1200,"currency":"EUR"}' where key = 'order_3'`)
	env["SETTLE_ADMIN_ADDR"], env["SETTLE_ADMIN_USERS"] = "127.0.0.1:0", filepath.Join(t.TempDir(), "users")
	_, token, errOut := runSettle(t, env, nil, "admin", "user", "add", "--token", "backoffice")
	if token = strings.TrimSpace(token); token == "" {
		t.Fatal(errOut)
	}
	s := start(t, env, "admin")
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(s.await("the support screen listens"))
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ready",
		"/find?q=order_3": "Charged once, 12.00 EUR, charge ch_3, on ", // one hit: its page
		"/kinds":          "one charge of the order&#39;s amount", "/lists/review": "order/5", "/lists/strays": "not connected to NATS",
		"/api/tasks/3": `"message":"Charged once, 12.00 EUR, charge ch_3`,
	} {
		if status, body := request(t, url+path, token); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, no %q in\n%s", path, status, want, body)
		}
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/tasks/3": http.StatusUnauthorized, "/api/tasks/3": http.StatusUnauthorized} {
		if status, body := request(t, url+path, ""); status != want || strings.Contains(body, "Charged") {
			t.Errorf("%s is answered to nobody with %d %s", path, status, body)
		}
	}
	s.signal(os.Interrupt)
	if code := s.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}

func TestAdminListensToThisHostAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"0.0.0.0:0", ":8088", "192.0.2.1:80", "[::]:0", "8088"} {
		env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x", "SETTLE_ADMIN_ADDR": addr, "SETTLE_ADMIN_USERS": path}
		code, _, errOut := runSettle(t, env, nil, "admin")
		if code != exitUsage || !strings.Contains(errOut, "SETTLE_ADMIN_ADDR") {
			t.Errorf("%s: exit %d, %s", addr, code, errOut)
		}
	}
}

func TestAmountsAreWrittenInMajorUnits(t *testing.T) {
	t.Parallel()
	for job, want := range map[string]string{
		`{"order_id":1,"amount":1200,"currency":"EUR"}`: "12.00 EUR", `{"order_id":1,"amount":5,"currency":"EUR"}`: "0.05 EUR",
		`{"order_id":1,"amount":0,"currency":"EUR"}`: "0.00 EUR", `{"order_id":1,"amount":1200,"currency":"JPY"}`: "1200 JPY",
		`{"order_id":1,"amount":1200,"currency":"KWD"}`: "1.200 KWD", `{"order_id":1,"amount":12.5,"currency":"EUR"}`: "12.5 EUR in minor units",
		`{"order_id":1,"amount":12345678901234567890,"currency":"EUR"}`: "123456789012345678.90 EUR",
		`{"order_id":1,"currency":"EUR"}`:                               "", `{}`: "", `x`: "", ``: "",
	} {
		if got := chargedAmount([]byte(job)); got != want {
			t.Errorf("%s is %q, want %q", job, got, want)
		}
	}
}

// The screen is ready while it reaches the database, and says so to whoever watches the process.
func TestHealthOfTheScreen(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	postgres := rig.NewPostgresProxy(t, env["DATABASE_URL"])
	env["DATABASE_URL"], env["SETTLE_HTTP_ADDR"] = postgres.URL(), "127.0.0.1:0"
	env["SETTLE_ADMIN_ADDR"], env["SETTLE_ADMIN_USERS"] = "127.0.0.1:0", filepath.Join(t.TempDir(), "users")
	if code, _, errOut := runSettle(t, env, nil, "admin", "user", "add", "--token", "anna"); code != exitDone {
		t.Fatal(errOut)
	}
	screen := start(t, env, "admin")
	addr := strings.TrimPrefix(urlIn(t, screen.await("HTTP listens")), "http://")
	screen.await("the support screen listens")
	health := func() int {
		code, _, _ := runSettle(t, nil, nil, "health", "--http-addr", addr)
		return code
	}
	if code := health(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	postgres.Refuse(true)
	postgres.Cut()
	if code := health(); code != exitFailed {
		t.Errorf("without a database: exit %d", code)
	}
}

// An operator acts from the screen as with the commands; without the provider's URL nobody does.
func TestOperatorsActFromTheScreen(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	env["SETTLE_ADMIN_ADDR"], env["SETTLE_ADMIN_USERS"] = "127.0.0.1:0", filepath.Join(t.TempDir(), "users")
	_, token, errOut := runSettle(t, env, nil, "admin", "user", "add", "--token", "--role", "operator", "backoffice")
	if token = strings.TrimSpace(token); token == "" {
		t.Fatal(errOut)
	}
	delete(env, "SETTLE_PROVIDER_URL")
	reads := start(t, env, "admin")
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(reads.await("the support screen listens"))
	if status, body := post(t, url+"/api/tasks/3/note", token, `{"reason":"seen"}`); status != http.StatusMethodNotAllowed {
		t.Errorf("without a provider: %d %s", status, body)
	}
	env["SETTLE_PROVIDER_URL"] = "http://127.0.0.1:1"
	s := start(t, env, "admin")
	url = regexp.MustCompile(`http://[0-9.:]+`).FindString(s.await("the support screen listens"))
	for path, want := range map[string]string{
		"/api/tasks/3/note":               `"outcome":"done"`,
		"/api/tasks/3/retry":              `"message":"It is done, and what is done stays; a new operation needs a new business key."`,
		"/api/kinds/payment.charge/pause": `"message":"The kind payment.charge is paused`,
		"/api/recover":                    `"outcome":"`,
		"/api/refusals/1/republish":       "not connected to NATS",
	} {
		if status, body := post(t, url+path, token, `{"reason":"the customer called"}`); status >= http.StatusInternalServerError || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	_, out, _ := runSettle(t, env, nil, "tasks", "show", "3")
	if !strings.Contains(out, "backoffice") || !strings.Contains(out, "note: the customer called") {
		t.Errorf("the history has no line of it:\n%s", out)
	}
	s.signal(os.Interrupt)
	if code := s.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}

// post sends an act as the owner of a token.
func post(t *testing.T, url, token, body string) (status int, answer string) {
	t.Helper()
	return exchange(t, http.MethodPost, url, token, body)
}

// exchange asks as the owner of a token; empty: as nobody.
func exchange(t *testing.T, method, url, token, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A scaler sees work where no worker runs.
func TestAdminShowsTheBacklog(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	broker, _ := devtest.JetStream(t)
	env["NATS_URL"], env["SETTLE_HTTP_ADDR"] = broker, "127.0.0.1:0"
	env["SETTLE_ADMIN_ADDR"], env["SETTLE_ADMIN_USERS"] = "127.0.0.1:0", filepath.Join(t.TempDir(), "users")
	_, token, errOut := runSettle(t, env, nil, "admin", "user", "add", "--token", "backoffice")
	if token = strings.TrimSpace(token); token == "" {
		t.Fatal(errOut)
	}
	if code, _, errOut := runSettle(t, env, strings.NewReader(`{"order_id":"9","customer_id":"c","amount":1,"currency":"EUR"}`), "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatal(errOut)
	}
	s := start(t, env, "admin")
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(s.await("HTTP listens"))
	want := `settle_backlog{kind="payment.charge",part="undelivered"} 1`
	rig.Eventually(t, 20*time.Second, want, func() bool {
		status, body := request(t, url+"/metrics", "")
		return status == http.StatusOK && strings.Contains(body, want) && strings.Contains(body, `settle_backlog{kind="payment.charge",part="unknown"} 1`)
	})
	screen := regexp.MustCompile(`http://[0-9.:]+`).FindString(s.await("the support screen listens"))
	if _, body := request(t, screen+"/api/overview", token); !strings.Contains(body, `"undelivered":[{"kind":"payment.charge","count":1}]`) {
		t.Errorf("the overview says\n%s", body)
	}
	s.signal(os.Interrupt)
	if code := s.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}
