package admin_test

import (
	"fmt"
	"strings"
	"testing"
)

// Whoever finds several tasks reads of each what became of it, the most direct match first, and opens none.
func TestEachHitAnswers(t *testing.T) {
	t.Parallel()
	d := open(t)
	paid := d.add("order_18452", done+`, provider = 'https://pay.example'`)
	receipt := d.add("receipt_18452", strings.Replace(done, "'ch_1'", "''", 1)+`, kind = 'receipt.send'`)
	stale := d.add("order_18453", strings.Replace(done, "'ch_1'", "''", 1))
	open := d.add("order_18454", unknown+`, external_id = 'ch_4'`)
	d.exec(`insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason) values ($1, 'worker', 1, 'started', 'finished', 'stale: a newer one')`, stale.TaskID)
	for _, task := range []int64{paid.TaskID, receipt.TaskID, stale.TaskID, open.TaskID} {
		d.exec(`insert into settle.task_refs (name, value, task_id) values ('order', '18452', $1)`, task)
	}
	want := []string{
		"Charged once, 12.00 EUR, charge ch_1, on 30 Nov 2026 at 10:00:00 UTC; 1 attempt, 0 duplicates stopped.", // the effect before what follows of it
		"Not known yet whether it was charged; the provider is asked again, not before 30 Nov 2026 at 11:00:00 UTC.",
		"Not sent, because a newer event had been applied, on 30 Nov 2026 at 10:00:00 UTC; 1 attempt, 0 duplicates stopped.",
		"Done once, on 30 Nov 2026 at 10:00:00 UTC; 1 attempt, 0 duplicates stopped.",
	}
	var found struct {
		Tasks []struct{ Message string }
	}
	d.api("/find?q=18452", &found)
	var got []string
	for _, task := range found.Tasks {
		got = append(got, task.Message)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	page := textOf(t, d.page("/find?q=18452"))
	for _, text := range append(want, "4 tasks have this, the most direct match first.", "Found by order 18452", "External reference ch_4") {
		if !strings.Contains(page, text) {
			t.Errorf("no %q in\n%s", text, page)
		}
	}
	if n := strings.Count(page, "ch_1"); n != 1 {
		t.Errorf("the page says ch_1 %d times", n)
	}
}

// What a list says of a task is what its own page says.
func TestAHitSaysWhatItsPageSays(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i, set := range []string{done, failed, unknown, parked + `'budget'`, ``, done + `, evidence_id = 'ch_9'`} {
		d.add(fmt.Sprint("order_", i), set)
	}
	var found struct {
		Tasks []struct {
			Task    int64
			Message string
		}
	}
	d.api("/find?q=c_17", &found)
	for _, task := range found.Tasks {
		var own struct{ Message string }
		if d.api(fmt.Sprintf("/tasks/%d", task.Task), &own); own.Message != task.Message || own.Message == "" {
			t.Errorf("task %d: %q in the list, %q on its page", task.Task, task.Message, own.Message)
		}
	}
	if len(found.Tasks) != 6 {
		t.Errorf("%d hits", len(found.Tasks))
	}
}
