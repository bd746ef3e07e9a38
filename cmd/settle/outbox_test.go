package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestOutboxSaysWhatWaits(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": devtest.Database(t)}
	if code, out, errOut := runSettle(t, env, nil, "outbox"); code != exitDone || !strings.Contains(out, "outbox is empty") {
		t.Errorf("empty: exit %d, %s%s", code, out, errOut)
	}
	execute(t, env["DATABASE_URL"], `select settle.enqueue('payment.charge', '{}')`)
	execute(t, env["DATABASE_URL"], `update settle.outbox set failures = 2, last_error = E'no \x1b[31mresponse', created_at = now() - interval '2 minutes'`)
	code, out, errOut := runSettle(t, env, nil, "outbox")
	if code != exitDone || !strings.Contains(out, "1 wait, the oldest for 2m0s; 1 were tried") || !strings.Contains(out, "jobs.payment.charge") ||
		strings.Contains(out, "\x1b") {
		t.Errorf("one row: exit %d, %s%s", code, out, errOut)
	}
	_, out, _ = runSettle(t, env, nil, "outbox", "--json")
	var row outboxObject
	if err := json.Unmarshal([]byte(out), &row); err != nil || row.Subject != "jobs.payment.charge" || row.Failures != 2 || row.Size != 2 {
		t.Errorf("--json: %s (%v)", out, err)
	}
	if code, _, errOut := runSettle(t, env, nil, "outbox", "--limit", "0"); code != exitUsage {
		t.Errorf("--limit 0: exit %d, %s", code, errOut)
	}
}
