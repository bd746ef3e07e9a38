package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/story"
)

// halfABatch is oneOfEach with a running import: 4,213 of 10,000 records, 25 of which were set aside.
func halfABatch(t *testing.T) (env map[string]string) {
	t.Helper()
	env = oneOfEach(t)
	execute(t, env["DATABASE_URL"], `
		insert into settle.tasks (kind, key, status, attempts, token, lease_until, sending, give_up_at, payload, payload_hash, hash_algorithm)
		values ('contacts.import', 'crm_batch_b_1', 'started', 1, gen_random_uuid(), clock_timestamp() + interval '1 hour', false,
			clock_timestamp() + interval '1 day', '{}', '\x00', 'test');
		insert into settle.steps (task_id, idx, total, outcome, reason, at)
		select t.id, i, 10000, case when i < 25 then 'set aside' else 'imported' end, case when i < 25 then E'no id \x1b[31m' || i end,
			clock_timestamp() - interval '125 seconds'
		from settle.tasks t, generate_series(0, 4212) i where t.kind = 'contacts.import'`)
	return env
}

func TestShowTellsTheProgressOfABatch(t *testing.T) {
	t.Parallel()
	env := halfABatch(t)
	for name, c := range map[string]struct {
		args     []string
		has, not string
		listed   int
	}{
		"bounded":  {nil, "and 5 more: --set-aside 0 lists all", "no id \x1b", 20},
		"asked":    {[]string{"--set-aside", "3"}, "and 22 more", "record 3 ", 3},
		"all":      {[]string{"--set-aside", "0"}, "record 24  no id", "more:", 25},
		"the line": {nil, "  record 4,213 of 10,000, 25 set aside, last progress 2 min ago\n", "\x1b", 20},
	} {
		code, out, errOut := runSettle(t, env, nil, append([]string{"tasks", "show", "contacts.import/crm_batch_b_1"}, c.args...)...)
		if code != exitDone || !strings.Contains(out, c.has) || strings.Contains(out, c.not) || strings.Count(out, "\nrecord ") != c.listed {
			t.Errorf("%s: exit %d %s; %q is missing, or %q is there, or not %d are listed:\n%s", name, code, errOut, c.has, c.not, c.listed, out)
		}
	}
	if code, out, errOut := runSettle(t, env, nil, "tasks", "show", "payment.charge/order_1"); code != exitDone ||
		strings.Contains(out, "progress") || strings.Contains(out, "Set aside") {
		t.Errorf("a task without records: exit %d %s: %s", code, errOut, out)
	}
	if code, _, _ := runSettle(t, env, nil, "tasks", "show", "1", "--set-aside", "-1"); code != exitUsage {
		t.Errorf("--set-aside -1: exit %d", code)
	}
}

func TestShowTheProgressAsJSON(t *testing.T) {
	t.Parallel()
	env := halfABatch(t)
	for _, c := range []struct {
		args   []string
		listed int
	}{{nil, 25}, {[]string{"--set-aside", "2"}, 2}} {
		args := append([]string{"tasks", "show", "--json", "contacts.import/crm_batch_b_1"}, c.args...)
		code, out, errOut := runSettle(t, env, nil, args...)
		var o struct{ Progress progressObject }
		if err := json.Unmarshal([]byte(out), &o); code != exitDone || err != nil {
			t.Fatalf("exit %d: %s%v", code, errOut, err)
		}
		p := o.Progress
		if p.Done != 4213 || p.Total != 10000 || p.SetAside != 25 || p.QuietSeconds < 120 || len(p.Aside) != c.listed {
			t.Errorf("%v: %+v", c.args, p)
		}
		if p.Aside[1].Index != 1 || p.Aside[1].Reason != "no id \x1b[31m1" {
			t.Errorf("second record set aside: %+v", p.Aside[1])
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s ago", 3900 * time.Millisecond: "3 s ago", 119 * time.Second: "1 min ago", 3 * time.Hour: "3 h ago", 49 * time.Hour: "2 d ago",
	} {
		if got := story.Ago(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := story.Grouped(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
