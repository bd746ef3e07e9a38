package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
)

// D-27: whatever the redirect, the second host sees no request, and so no key, body or password.
func TestD27NoRedirect(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			second, reached := provider(t, func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("the second host got %s with %v", r.Method, r.Header)
			})
			first, _ := provider(t, says(status, "", "Location", second.URL+"/login"))
			c := client(t, ClientOptions{URL: withPassword(first.URL)})
			_, err := performCharge(t.Context(), c)
			if class, _ := outcomeOf(err); class != misconfigured || reached.Load() != 0 {
				t.Errorf("%s, %d requests at the second host", class, reached.Load())
			}
			_, verdict, err := Charge(c, ChargeOptions{}).Lookup(t.Context(), chargeAttempt())
			if verdict != consumer.CannotTell || err == nil || reached.Load() != 0 {
				t.Errorf("look-up: %v, error %v, %d requests at the second host", verdict, err, reached.Load())
			}
		})
	}
}

func withPassword(url string) string { return strings.Replace(url, "://", "://shop:pa55word@", 1) }

func TestClientFailures(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request went through a bad certificate")
	}))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(secure.Close)
	plain, _ := provider(t, says(200, ""))
	for _, c := range []struct{ name, url, want, text string }{
		{"connection refused", "http://" + closed.Addr().String(), notSent, "connection refused"},
		{"no such host", "http://nowhere.invalid", notSent, "nowhere.invalid"},
		{"bad certificate", secure.URL, misconfigured, "certificate"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), misconfigured, "TLS handshake"},
		{"no URL", "", misconfigured, "no provider URL is set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := performCharge(t.Context(), client(t, ClientOptions{URL: c.url}))
			if class := classOfFailure(err); class != c.want {
				t.Errorf("%s, want %s: %v", class, c.want, err)
			}
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("error text %q, want %q in it", err, c.text)
			}
		})
	}
}

// classOfFailure looks below the name of the call.
func classOfFailure(err error) string {
	class, _ := outcomeOf(errors.Unwrap(err))
	return class
}

// What a broken answer looked like may hold anything, so it is not quoted.
func TestClientQuotesNoBrokenAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(conn, "this is no HTTP but "+secret+"\r\n\r\n")
	}()
	t.Cleanup(func() { listener.Close(); <-over })
	_, err = performCharge(t.Context(), client(t, ClientOptions{URL: "http://" + listener.Addr().String()}))
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "no usable answer") {
		t.Errorf("error %q", err)
	}
}

// D-28: a call that takes too long ends with an outcome that nobody knows, at the shorter of its two limits.
func TestD28Timeout(t *testing.T) {
	for _, c := range []struct {
		name              string
		timeout, deadline time.Duration
	}{
		{"the call's own limit", 50 * time.Millisecond, time.Hour},
		{"cut to the attempt's deadline", time.Hour, 50 * time.Millisecond},
	} {
		for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
			"no answer": func(http.ResponseWriter, *http.Request) {},
			"no end of the answer": func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"charge_id":"ch_1"`)
				_ = http.NewResponseController(w).Flush()
			},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				s, requests := provider(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client left
					answer(w, r)
					<-r.Context().Done()
				})
				a := chargeAttempt()
				a.Deadline = time.Now().Add(c.deadline)
				kind := Charge(client(t, ClientOptions{URL: s.URL, Timeout: c.timeout}), ChargeOptions{})
				_, err := kind.Perform(t.Context(), a)
				if class, _ := outcomeOf(err); class != unknown || !errors.Is(err, context.DeadlineExceeded) || requests.Load() != 1 {
					t.Errorf("%s, %d requests: %v", class, requests.Load(), err)
				}
			})
		}
	}
}

// An attempt that was cancelled keeps the cause, so that nobody reads "context canceled".
func TestClientKeepsTheCause(t *testing.T) {
	arrived := make(chan struct{})
	s, _ := provider(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(consumer.ErrLost)
	}()
	_, err := performCharge(ctx, client(t, ClientOptions{URL: s.URL}))
	if !errors.Is(err, consumer.ErrLost) || strings.Contains(err.Error(), "context canceled") {
		t.Errorf("error %v", err)
	}
}

func TestClientRequest(t *testing.T) {
	s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		user, password, _ := r.BasicAuth()
		for what, pair := range map[string][2]string{
			"address":      {r.Method + " " + r.URL.String(), "POST /v1/charges?tenant=t1"},
			"user":         {user + " " + password, "shop pa55word"},
			"key":          {r.Header.Get("Idempotency-Key"), "order_18452"},
			"content type": {r.Header.Get("Content-Type"), "application/json"},
			"body":         {string(body), `{"order_id":"18452","customer_id":"c_17","amount":1200,"currency":"EUR"}`},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
			}
		}
		says(201, `{"charge_id":"ch_1","status":"succeeded"}`)(w, r)
	})
	c := client(t, ClientOptions{URL: withPassword(s.URL) + "/v1/?tenant=t1"})
	if _, err := performCharge(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestClientHidesCredentials(t *testing.T) {
	const url = "https://shop:pa55word@Pay.example:8443/v1/?token=pa55word"
	c := client(t, ClientOptions{URL: url, Base: failingBase{}})
	_, err := performCharge(t.Context(), c)
	if err == nil {
		t.Fatal("no error")
	}
	for _, shown := range []string{
		c.String(), fmt.Sprintf("%v %+v %#v %s", c, c, c, c), c.Identity(), err.Error(), Charge(c, ChargeOptions{}).Provider.Identity,
	} {
		if strings.Contains(shown, "pa55word") || strings.Contains(shown, "shop") {
			t.Errorf("shown: %s", shown)
		}
	}
	if got, want := c.String(), "https://REDACTED:REDACTED@pay.example:8443/v1?token=REDACTED"; got != want {
		t.Errorf("String %s, want %s", got, want)
	}
	if got, want := c.Identity(), "https://pay.example:8443/v1"; got != want {
		t.Errorf("Identity %s, want %s", got, want)
	}
}

type failingBase struct{}

func (failingBase) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("request to %s failed", r.URL)
}

func TestNewClientRefuses(t *testing.T) {
	for name, o := range map[string]ClientOptions{
		"no scheme":            {URL: "shop:pa55word@pay.example"},
		"other scheme":         {URL: "ftp://shop:pa55word@pay.example"},
		"no host":              {URL: "http://shop:pa55word@/v1"},
		"slash in a password":  {URL: "http://shop:pa55/word@pay.example"},
		"bad escape":           {URL: "http://shop:pa55word%zz@pay.example"},
		"a negative time":      {URL: "http://pay.example", Timeout: -1},
		"white space in front": {URL: " http://shop:pa55word@pay.example"},
	} {
		if _, err := NewClient(o); err == nil || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A client without a URL is enough to describe kinds and to publish their jobs.
func TestKindsAreComplete(t *testing.T) {
	c := client(t, ClientOptions{})
	charge, err := consumer.Describe(consumer.Config{}, Charge(c, ChargeOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	if charge.Policy.Retention != DefaultChargeRetention || charge.Provider.KeyPrefix != "order_" || !charge.HasLookup {
		t.Errorf("charge: %+v", charge)
	}
	report, err := consumer.Describe(consumer.Config{}, Report(c, ReportOptions{Policy: consumer.Policy{MaxFailures: 9}}))
	if err != nil {
		t.Fatal(err)
	}
	if report.Policy.MaxFailures != 9 || report.Provider.KeyPrefix != "report-task-" || !report.HasLookup {
		t.Errorf("report: %+v", report)
	}
	for _, contract := range []consumer.Contract{charge.Contract, report.Contract} {
		for _, text := range []string{contract.Effect, contract.Rows, contract.Success, contract.SecondRun, contract.StopRule} {
			if text == "" {
				t.Errorf("a part of the contract is missing: %+v", contract)
			}
		}
	}
}

// The profile that the options give is the kind's, all but the key prefix.
func TestProviderProfile(t *testing.T) {
	c := client(t, ClientOptions{URL: "http://pay.example/"})
	given := consumer.Provider{Unkeyed: true, KeyLifetime: time.Hour, AbsentAfter: time.Minute, ResendUnkeyed: true}
	got := Charge(c, ChargeOptions{Provider: given}).Provider
	if !got.Unkeyed || got.KeyLifetime != time.Hour || got.AbsentAfter != time.Minute || !got.ResendUnkeyed {
		t.Errorf("%+v", got)
	}
	if got.Identity != "http://pay.example" || got.KeyPrefix != "order_" {
		t.Errorf("%+v", got)
	}
	given.Identity = "pay.example, account 7"
	if got := Report(c, ReportOptions{Provider: given}).Provider; got.Identity != given.Identity {
		t.Errorf("%+v", got)
	}
}
