package admin_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// Back offices read the document, so what it names is there.
func TestTheAPIIsAsItIsDocumented(t *testing.T) {
	t.Parallel()
	d := infested(t)
	d.exec(`update settle.tasks set origin_trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' where id = 1`)
	document := read(t, "../../docs/admin-api.md")
	section := func(title string) string {
		_, rest, _ := strings.Cut(document, "\n## "+title+"\n")
		text, _, _ := strings.Cut(rest, "\n## ")
		return text
	}
	var task map[string]any
	d.api("/tasks/1", &task)
	absent := map[string]bool{"trace_link": true, "next_attempt_at": false, "next": true, "waits": true} // next: see the acts
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section("Tasks"), -1) {
		for _, field := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			if _, ok := task[field[1]]; !ok && !absent[field[1]] {
				t.Errorf("a task has no %s: %v", field[1], task)
			}
		}
	}
	lists := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section("Lists"), -1) {
		var l map[string]any
		d.api("/lists/"+row[1], &l)
		if lists++; l["list"] != row[1] || l["counts"] == nil {
			t.Errorf("%v", l)
		}
	}
	if lists != 7 {
		t.Errorf("%d lists are documented", lists)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `/api/([^`]*)`").FindAllStringSubmatch(document, -1) {
		if strings.HasPrefix(row[1], "presses/") || strings.Contains(section("Acts"), "`/api/"+row[1]+"`") {
			continue // those of the acts
		}
		path := strings.NewReplacer("{id}", "1", "{name}", "review", "TEXT", "hostile").Replace(row[1])
		var answer map[string]any
		if d.api("/"+path, &answer); len(answer) == 0 {
			t.Errorf("%s: nothing", path)
		}
	}
}

func TestProblemsOfTheAPIAreJSON(t *testing.T) {
	t.Parallel()
	d := open(t)
	for path, want := range map[string]int{
		"/api/nowhere": http.StatusNotFound, "/api/tasks/99": http.StatusNotFound, "/api/tasks/x": http.StatusBadRequest,
		"/api/lists/nothing": http.StatusNotFound, "/api/refusals/1": http.StatusNotFound, "/api/find?q=%00": http.StatusBadRequest,
	} {
		status, _, body := d.get(path)
		var answer struct{ Error string }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != want || answer.Error == "" {
			t.Errorf("%s: %d %q (%v)", path, status, body, err)
		}
	}
}

func TestASearchOfTheAPIAnswersOneHitToo(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.add("order_1", done)
	var f struct {
		Exact bool
		Tasks []struct{ Key, Matched string }
	}
	if d.api("/find?q=order_1", &f); len(f.Tasks) != 1 || !f.Exact || f.Tasks[0].Matched != "key" {
		t.Errorf("%+v", f)
	}
	if d.api("/find?q=order_", &f); len(f.Tasks) != 1 || f.Exact {
		t.Errorf("%+v", f)
	}
}
