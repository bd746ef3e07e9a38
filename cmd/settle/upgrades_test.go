package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/upgrades.md, in its order, over tasks that a copy of the database has left open: those that were
// sent are asked about, those that were not are sent, and drift has nothing for a person but what review has.
func TestTheCommandsOfUpgrades(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/upgrades.md")
	if err != nil {
		t.Fatal(err)
	}
	env := servers(t)
	env["SETTLE_KIND"] = "payment.charge"
	if code, out, errOut := runSettle(t, env, nil, "migrate", "--streams"); code != exitDone {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	stuckCharges(t, env)
	execute(t, env["DATABASE_URL"], `insert into shop.orders (order_id, customer_id, amount, currency) select n::text, 'c_1', 1200, 'EUR' from generate_series(1, 5) as n;
		delete from settle.tasks where key = 'order_4'`) // which somebody held
	lines := regexp.MustCompile(`(?m)^ +(settle .+)$`).FindAllStringSubmatch(string(text), -1)
	if len(lines) != 6 {
		t.Fatalf("%d commands, want 6: %q", len(lines), lines)
	}
	for _, line := range lines {
		code, out, errOut := runSettle(t, env, nil, strings.Fields(line[1])[1:]...)
		want := exitDone
		if strings.Contains(line[1], "--reason") {
			want = exitFailed // one task waits for a person, and goes on waiting
		}
		if code != want {
			t.Errorf("%s: exit %d, %s%s", line[1], code, out, errOut)
		}
		if strings.Contains(line[1], "--dry-run") && !strings.Contains(out, "would ask") {
			t.Errorf("%s: %s", line[1], out)
		}
	}
	if open := query[int](t, env["DATABASE_URL"], `select count(*) from settle.tasks where status in ('started', 'unknown')`); open != 0 {
		t.Errorf("%d tasks are still open", open)
	}
	if e := query[int](t, env["DATABASE_URL"], `select count(*) from provider.charges`); e == 0 {
		t.Error("nothing was sent")
	}
}
