package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// until asks a URL until its answer satisfies f, and returns it.
func until(t *testing.T, url, what string, f func(status int, body string) bool) string {
	t.Helper()
	ask := time.NewTicker(50 * time.Millisecond)
	defer ask.Stop()
	for range 1200 {
		status, body := get(t, url)
		if f(status, body) {
			return body
		}
		<-ask.C
	}
	_, body := get(t, url)
	t.Fatalf("%s: never %s; last:\n%s", url, what, body)
	return ""
}

func untilStatus(t *testing.T, url string, want int) {
	t.Helper()
	until(t, url, fmt.Sprint(want), func(status int, _ string) bool { return status == want })
}

func TestAWorkerShowsItsMetrics(t *testing.T) {
	t.Parallel()
	env := servers(t)
	worker := start(t, env, "work", "--kind", "payment.charge")
	base := urlIn(t, worker.await("HTTP listens"))
	jobs := strings.NewReader(charge(18452) + "\n" + charge(18452) + "\n" + charge(9) + "\n")
	if code, out, errOut := runSettle(t, env, jobs, "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatalf("publish: exit %d, %s%s", code, out, errOut)
	}
	body := until(t, base+"/metrics", "all counted", func(_ int, body string) bool {
		return strings.Contains(body, `settle_jobs_total{kind="payment.charge",outcome="finished"} 2`) &&
			strings.Contains(body, `settle_backlog{kind="payment.charge",part="undelivered"} 0`) &&
			strings.Contains(body, `settle_outbox_rows{stream="EVENTS"} 0`)
	})
	series := known(t)
	for line := range strings.Lines(body) {
		if name := metricInQuery.FindString(line); strings.HasPrefix(line, "settle_") {
			if _, there := series[name]; !there {
				t.Errorf("nobody declared %s", line)
			}
			fit(t, line, series)
		}
	}
	for _, text := range []string{"otel_scope", "target_info", "18452", "total_total", "seconds_seconds"} {
		if strings.Contains(body, text) {
			t.Errorf("%q is in\n%s", text, body)
		}
	}
	for _, text := range []string{"# TYPE settle_jobs_total counter", "# TYPE settle_oldest_seconds gauge", "settle_ready 1",
		"settle_perform_duration_seconds_bucket{", "settle_recovery_last_run_timestamp_seconds 1.", "go_goroutines "} {
		if !strings.Contains(body, text) {
			t.Errorf("%q is not in\n%s", text, body)
		}
	}
	if status, _ := get(t, base+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("profiles that nobody asked for: %d", status)
	}
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}

func TestProfilesOnRequest(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1",
		"SETTLE_HTTP_ADDR": "127.0.0.1:0", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1", "SETTLE_PPROF": "true"}
	worker := start(t, env, "work")
	base := urlIn(t, worker.await("HTTP listens"))
	if status, body := get(t, base+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %s", status, body)
	}
	worker.signal(syscall.SIGTERM)
	worker.exit()
}

func TestProfilesAreForThisHostOnly(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	addProfiles(mux)
	for from, want := range map[string]int{"10.1.2.3:4711": 403, "[2001:db8::1]:4711": 403, "[::ffff:10.1.2.3]:1": 403, "": 403,
		"127.0.0.1:4711": 200, "[::1]:4711": 200, "[::ffff:127.0.0.1]:1": 200} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil)
		r.RemoteAddr = from
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		if answer.Code != want {
			t.Errorf("from %q: %d, want %d", from, answer.Code, want)
		}
	}
}

// Worker and bridge say that they do not serve while the broker is away, and that they do once it is back.
func TestReadyFollowsTheBroker(t *testing.T) {
	t.Parallel()
	port := natsAt(t, 0)()
	stop := natsAt(t, port)
	env := map[string]string{
		"DATABASE_URL": devtest.Database(t), "NATS_URL": fmt.Sprintf("nats://127.0.0.1:%d", port),
		"SETTLE_HTTP_ADDR": "127.0.0.1:0", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1",
	}
	worker := start(t, env, "work", "--kind", "payment.charge")
	bridge := start(t, env, "cloudevents", "--stream", "ORDERS", "--map", "placed=payment.charge")
	bases := []string{urlIn(t, worker.await("HTTP listens")), urlIn(t, bridge.await("HTTP listens"))}
	addOrders(t, env)
	for _, base := range bases {
		untilStatus(t, base+"/readyz", http.StatusOK)
	}
	stop()
	for _, base := range bases {
		until(t, base+"/readyz", "why", func(status int, body string) bool {
			return status == http.StatusServiceUnavailable && strings.Contains(body, "no connection to the broker")
		})
		if status, _ := get(t, base+"/healthz"); status != http.StatusOK {
			t.Errorf("/healthz: %d without the broker", status)
		}
	}
	stop = natsAt(t, port)
	addOrders(t, env)
	for _, base := range bases {
		untilStatus(t, base+"/readyz", http.StatusOK)
	}
	until(t, bases[1]+"/metrics", "counting", func(_ int, body string) bool {
		return strings.Contains(body, `settle_bridge_events_total{outcome="published"} 0`)
	})
	for _, s := range []*service{worker, bridge} {
		s.signal(syscall.SIGTERM)
		if code := s.exit(); code != exitDone {
			t.Errorf("exit %d", code)
		}
	}
	stop()
}

// addOrders makes the stream of the bridge.
func addOrders(t *testing.T, env map[string]string) {
	t.Helper()
	if _, err := connect(t, env).CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
}
