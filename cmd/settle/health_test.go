package main

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// What a container's health check runs: it says what /readyz says, by its exit code too.
func TestHealthSaysWhetherAServiceIsReady(t *testing.T) {
	t.Parallel()
	env := servers(t)
	worker := start(t, env, "work", "--kind", "payment.charge")
	base := urlIn(t, worker.await("HTTP listens"))
	untilStatus(t, base+"/readyz", http.StatusOK)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]int{
		"127.0.0.1:" + port: exitDone, "0.0.0.0:" + port: exitDone, ":" + port: exitDone, "off": exitUsage, "nowhere": exitUsage,
		"127.0.0.1:1": exitFailed,
	} {
		code, out, errOut := runSettle(t, map[string]string{"SETTLE_HTTP_ADDR": addr}, nil, "health")
		if code != want || (out == "ready\n") != (want == exitDone) || (errOut == "") != (want == exitDone) {
			t.Errorf("%s: exit %d, want %d: %s%s", addr, code, want, out, errOut)
		}
	}
	worker.signal(os.Interrupt)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	if code, _, errOut := runSettle(t, nil, nil, "health", "--http-addr", "127.0.0.1:"+port); code != exitFailed || !strings.Contains(errOut, "not ready") {
		t.Errorf("after its end: exit %d, %s", code, errOut)
	}
}

// The reason is that of the service.
func TestHealthGivesTheReason(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["DATABASE_URL"] = "postgres://127.0.0.1:1/none"
	worker := start(t, env, "work", "--kind", "payment.charge")
	base := urlIn(t, worker.await("HTTP listens"))
	code, _, errOut := runSettle(t, nil, nil, "health", "--http-addr", strings.TrimPrefix(base, "http://"))
	if code != exitFailed || !strings.Contains(errOut, "not ready: starting") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
