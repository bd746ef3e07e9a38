package e2e

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/rig"
)

// The demo's last words lead to a job whose worker was killed, with all that publisher, workers and provider did.
func TestDemoLeadsToItsTraces(t *testing.T) {
	j := startJaeger(t)
	demo := rig.StartWorker(t, rig.WorkerOptions{Name: "demo", Binary: buildSettle(t),
		Args: []string{"demo", "--json", "--seed", "3", "--otlp", j.otlp}})
	if e := demo.Wait(2 * soon); e.Code != 0 {
		t.Fatalf("the demo ended with %s", e)
	}
	page := searchPage(t, demo.Output())
	found := j.find(t, page.Query())
	for _, service := range []string{"settle-publisher", "settle-worker", "settle-provider"} {
		if len(found.of(service)) == 0 {
			t.Errorf("no span of %s in\n%s", service, found.tree())
		}
	}
	second := found.named("settle.deliver").where(tags{"settle.attempt": "2", "settle.status": "finished"})
	if len(second) == 0 || len(found.named("POST /charges"))+len(found.named("POST /reports")) != 1 {
		t.Errorf("%s leads to\n%s", page, found.tree())
	}
}

// searchPage is the address that a demo's report has. It assumes Jaeger's standard port, which is not the test's.
func searchPage(t *testing.T, output string) *url.URL {
	t.Helper()
	var report struct{ Traces string }
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &report); err != nil {
				t.Fatalf("read the report: %v", err)
			}
		}
	}
	page, err := url.Parse(report.Traces)
	if err != nil || page.Host != "127.0.0.1:16686" || page.Path != "/search" {
		t.Fatalf("the demo leads to %q: %v", report.Traces, err)
	}
	return page
}
