package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
)

// Each request asks for its own credentials, also a look-up, and they win over those of the URL.
func TestAuthorizeEachRequest(t *testing.T) {
	var seen []string
	server, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Idempotency-Key"))
		says(200, `{"charge_id":"ch_1","status":"succeeded"}`)(w, r)
	})
	var calls atomic.Int32
	c := client(t, ClientOptions{URL: withPassword(server.URL), Authorize: func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", fmt.Sprint("Bearer token-", calls.Add(1)))
		return nil
	}})
	for range 2 {
		if _, err := performCharge(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	if _, verdict, err := Charge(c, ChargeOptions{}).Lookup(t.Context(), chargeAttempt()); verdict != consumer.Found {
		t.Errorf("look-up: %v, %v", verdict, err)
	}
	want := "POST Bearer token-1 order_18452, POST Bearer token-2 order_18452, GET Bearer token-3 "
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("the provider saw\n%s\nwant\n%s", got, want)
	}
}

// Without credentials nothing leaves, and the handler says so.
func TestAuthorizeFails(t *testing.T) {
	server, requests := provider(t, says(200, ""))
	for _, c := range []struct {
		name string
		err  error
		text string
	}{
		{"its own words", errors.New("the vault is sealed"), "POST /charges: authorize: the vault is sealed"},
		{"a URL", &url.Error{Op: "Post", URL: "https://idp/token?client_secret=" + secret, Err: context.DeadlineExceeded},
			"POST /charges: authorize: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := client(t, ClientOptions{URL: server.URL, Authorize: func(context.Context, *http.Request) error { return c.err }})
			_, err := performCharge(t.Context(), api)
			if class := classOfFailure(err); class != notSent || err.Error() != c.text {
				t.Errorf("%s: %q, want %q", class, err, c.text)
			}
			if !errors.Is(err, c.err) {
				t.Error("the cause is lost")
			}
			_, verdict, err := Charge(api, ChargeOptions{}).Lookup(t.Context(), chargeAttempt())
			if verdict != consumer.CannotTell || err == nil {
				t.Errorf("look-up: %v, %v", verdict, err)
			}
		})
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests left without credentials", n)
	}
}

// A callback that blocks is bounded by the call, and gets the context of the attempt.
func TestAuthorizeIsBounded(t *testing.T) {
	server, requests := provider(t, says(200, ""))
	c := client(t, ClientOptions{URL: server.URL, Timeout: 50 * time.Millisecond, Authorize: func(ctx context.Context, _ *http.Request) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	_, err := performCharge(t.Context(), c)
	if class := classOfFailure(err); class != notSent || !errors.Is(err, context.DeadlineExceeded) || requests.Load() != 0 {
		t.Errorf("%s: %v, %d requests", class, err, requests.Load())
	}
}
