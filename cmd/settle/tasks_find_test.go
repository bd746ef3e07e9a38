package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/telemetry"
)

func TestFindOneBox(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	execute(t, env["DATABASE_URL"], `
		insert into settle.task_refs (name, value, task_id) values ('customer', 'c_17', 2), ('customer', 'c_17', 3),
			('customer', 'c_18', 4), ('external_id', 'ch_3', 3), ('note', E'x\x1b[31m', 5);
		update settle.tasks set origin_trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' where id = 1`)
	for _, c := range []struct {
		name string
		args []string
		want string // tasks and what matched
	}{
		{"id", []string{"4"}, "4 task 4"},
		{"key", []string{"order_2"}, "2 key order_2"},
		{"KIND/KEY", []string{"payment.charge/order/5"}, "5 key order/5"},
		{"external id", []string{"ch_3"}, "3 external_id ch_3"},
		{"hash of a key, as spans and log lines show it", []string{telemetry.HashKey("order_2")}, "2 key order_2"},
		{"customer", []string{"c_17"}, "3 customer c_17, 2 customer c_17"},
		{"trace id", []string{"0af7651916cd43dd8448eb211c80319c"}, "1 trace_id 0af7651916cd43dd8448eb211c80319c"},
		{"beginning, because nothing equals it", []string{"c_1"}, "2 customer c_17, 3 customer c_17, 4 customer c_18"},
		{"beginning, asked for", []string{"--prefix", "c_17"}, "2 customer c_17, 3 customer c_17"},
		{"limit", []string{"c_1", "--limit", "1"}, "2 customer c_17"},
		{"kind", []string{"--kind", "payment.charge", "order_2"}, "2 key order_2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := runSettle(t, env, nil, append([]string{"tasks", "find", "--json"}, c.args...)...)
			if code != exitDone || errOut != "" {
				t.Errorf("exit %d: %s", code, errOut)
			}
			var found []string
			for line := range strings.Lines(out) {
				var o struct {
					Task                                int
					Matched, Kind, Status, Outcome, Job string
					Value                               string `json:"matched_value"`
				}
				if err := json.Unmarshal([]byte(line), &o); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				if o.Kind != "payment.charge" || o.Status == "" || o.Outcome != "shown" || o.Job != "" {
					t.Errorf("not a line of tasks list: %s", line)
				}
				found = append(found, strings.Join([]string{string(rune('0' + o.Task)), o.Matched, o.Value}, " "))
			}
			if got := strings.Join(found, ", "); got != c.want {
				t.Errorf("found %s, want %s", got, c.want)
			}
		})
	}
}

func TestFindAsText(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	execute(t, env["DATABASE_URL"], `insert into settle.task_refs (name, value, task_id) values ('customer', 'c_17', 2), ('note', E'x\x1b[31m', 5)`)
	code, out, errOut := runSettle(t, env, nil, "tasks", "find", "c_17")
	if code != exitDone || errOut != "" || !strings.Contains(out, "MATCHED\n") || !strings.Contains(out, "  pending – being checked with the provider  ") ||
		!strings.Contains(out, "  customer c_17\n") || strings.Contains(out, "private") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if code, out, _ := runSettle(t, env, nil, "tasks", "find", "x"); code != exitDone || strings.ContainsRune(out, '\x1b') {
		t.Errorf("exit %d: %q", code, out)
	}
	if code, _, errOut := runSettle(t, env, nil, "tasks", "find", "order_", "--limit", "2"); code != exitDone || !strings.Contains(errOut, "more than these 2") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

func TestFindNothing(t *testing.T) {
	t.Parallel()
	env := oneOfEach(t)
	for text, want := range map[string]int{
		"order_99": exitFailed, "%": exitFailed, "": exitUsage, "\xff": exitUsage, strings.Repeat("x", maxSearch+1): exitUsage,
		strings.Repeat("x", maxSearch): exitFailed,
	} {
		code, out, errOut := runSettle(t, env, nil, "tasks", "find", "--", text)
		if code != want || out != "" || errOut == "" {
			t.Errorf("%q: exit %d, want %d; stdout %q, stderr %q", text, code, want, out, errOut)
		}
	}
	if code, _, _ := runSettle(t, env, nil, "tasks", "find", "order_1", "--kind", "report.create"); code != exitFailed {
		t.Errorf("of another kind: exit %d", code)
	}
	if code, _, _ := runSettle(t, env, nil, "tasks", "find", "order_1", "--limit", "0"); code != exitUsage {
		t.Errorf("limit 0: exit %d", code)
	}
}
