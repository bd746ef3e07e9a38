package cases

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
)

// guarded puts a guard before the provider who lets in only requests with the token, and counts those he turns away.
func (s *stage) guarded(token string) (turnedAway *atomic.Int32) {
	s.t.Helper()
	behind, err := url.Parse(s.settings.ProviderURL)
	if err != nil {
		s.t.Fatal(err)
	}
	turnedAway = new(atomic.Int32)
	transport := &http.Transport{}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }, Transport: transport}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			turnedAway.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	s.t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	s.settings.ProviderURL = server.URL
	return turnedAway
}

// A token that rotates between attempts: no token, then one that is not valid any more, then the right one. None of
// it costs a failure, and the one request that is let in makes the one effect.
func TestTokenRotatesBetweenAttempts(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	s.settings.Config.Policy.MisconfiguredWait = 200 * time.Millisecond
	turnedAway := s.guarded("new")
	var asked atomic.Int32
	s.serve(func(_ *handlers.Client, x settings) []consumer.Definition {
		api, err := handlers.NewClient(handlers.ClientOptions{URL: x.ProviderURL, Authorize: func(_ context.Context, r *http.Request) error {
			switch asked.Add(1) {
			case 1:
				return errors.New("the vault does not answer")
			case 2:
				r.Header.Set("Authorization", "Bearer old")
			default:
				r.Header.Set("Authorization", "Bearer new")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.Close)
		return referenceKinds(api, x)
	})
	j := charge("rotates")
	s.publish(j)
	task := s.awaitStatus(j, idemstore.Finished)
	s.sent(j, 1, 3)
	if task.Failures != 0 || turnedAway.Load() != 1 {
		t.Errorf("%d failures, %d requests turned away", task.Failures, turnedAway.Load())
	}
	s.holds(j)
}
