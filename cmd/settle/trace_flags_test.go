package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/settlemq/settle/internal/telemetry"
)

// A collector that nobody runs changes no outcome. What was not sent is told in one line, and last: after the saves and acks.
// With --hash-keys no line has the key; its hash finds the task.
func TestADeadCollectorCostsSpansOnly(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["OTEL_EXPORTER_OTLP_ENDPOINT"], env["SETTLE_TRACE_KEEP"], env["SETTLE_HASH_KEYS"] = "http://127.0.0.1:1", "trouble", "true"
	env["SETTLE_LOG_LEVEL"] = "debug"
	worker := start(t, env, "work")
	worker.await(`"msg":"serving"`)
	publishOne(t, env, charge(18452))
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_18452", "finished")
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	log := strings.Join(worker.all, "\n")
	stopped, lost := strings.Index(log, `"msg":"stopped"`), strings.Index(log, `"msg":"spans did not reach the collector"`)
	if stopped < 0 || lost < stopped || strings.Count(log, "spans did not reach the collector") != 1 {
		t.Errorf("lost spans are not told once, at the very end:\n%s", log)
	}
	hash := telemetry.HashKey("order_18452")
	if strings.Contains(log, "order_18452") || !strings.Contains(log, `"key":"`+hash+`"`) {
		t.Errorf("the log has the key, or not its hash %s:\n%s", hash, log)
	}
	if code, out, errOut := runSettle(t, env, nil, "tasks", "find", hash); code != exitDone || !strings.Contains(out, "order_18452") {
		t.Errorf("find: exit %d: %s%s", code, out, errOut)
	}
}
