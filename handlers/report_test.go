package handlers

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
)

func TestReportKey(t *testing.T) {
	for id, want := range map[string]string{ // "" is a refusal
		`42`: "report-task-42", `0`: "report-task-0", `-7`: "report-task--7", `9007199254740993`: "report-task-9007199254740993",
		`"42"`: "", `42.0`: "", `4.2e1`: "", `-0`: "", `null`: "", `""`: "", `{}`: "", `[]`: "", `[42]`: "", `false`: "",
	} {
		var j ReportJob
		if err := json.Unmarshal([]byte(`{"task_id":`+id+`,"report_type":"monthly"}`), &j); err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if key, err := j.key(); key != want || (err != nil) != (want == "") {
			t.Errorf("%s: key %q, error %v; want %q", id, key, err, want)
		}
	}
	for _, j := range []ReportJob{
		{ReportType: "monthly"},
		{TaskID: NewIntegerID("42")},
		{TaskID: NewIntegerID("42"), ReportType: "a\x00"},
		{TaskID: NewIntegerID("42"), ReportType: strings.Repeat("x", 256)},
	} {
		if key, err := j.key(); err == nil {
			t.Errorf("%+v: key %q", j, key)
		}
	}
}

func TestTaskIDAsJSON(t *testing.T) {
	for _, in := range []string{`42`, `9007199254740993`, `"42"`, `null`} {
		var id IntegerID
		if err := json.Unmarshal([]byte(in), &id); err != nil {
			t.Fatal(err)
		}
		if out, err := json.Marshal(id); err != nil || string(out) != in {
			t.Errorf("%s became %s, error %v", in, out, err)
		}
	}
	if out, err := json.Marshal(NewIntegerID("4 2")); err == nil {
		t.Errorf("written as %s", out)
	}
}

func TestReportAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
		result ReportResult
	}{
		{"201", says(201, `{"report_id":"rep_1","status":"ready","replayed":false}`), done, ReportResult{"rep_1", "ready", ""}},
		{"200", says(200, `{"report_id":"rep_1","status":"ready","replayed":true}`), done, ReportResult{"rep_1", "ready", ""}},
		{"202", says(202, `{"report_id":"rep_1","status":"pending"}`), accepted, ReportResult{"rep_1", "pending", ""}},
		{"202 ready", says(202, `{"report_id":"rep_1","status":"ready"}`), accepted, ReportResult{"rep_1", "pending", ""}},
		{"201 failed", says(201, `{"report_id":"rep_1","status":"failed","code":"no_data"}`), refused, ReportResult{"rep_1", "failed", "no_data"}},
		{"422", says(422, `{"error":"no_such_type"}`), refused, ReportResult{"", "failed", "no_such_type"}},
		{"409", says(409, `{"error":"idempotency_conflict"}`), conflict, ReportResult{}},
		{"500 with an id", says(500, `{"report_id":"rep_1"}`), unknown, ReportResult{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.URL.Path != "/reports" || string(body) != `{"task_id":42,"report_type":"monthly"}` ||
					r.Header.Get("Idempotency-Key") != "report-task-42" {
					t.Errorf("%s with %s, %v", r.URL, body, r.Header)
				}
				c.answer(w, r)
			})
			kind := Report(client(t, ClientOptions{URL: s.URL}), ReportOptions{})
			result, err := kind.Perform(t.Context(), reportAttempt())
			if class, _ := outcomeOf(err); class != c.want || result != c.result {
				t.Errorf("%s %+v, want %s %+v; error %v", class, result, c.want, c.result, err)
			}
			if kind.ExternalID(result) != c.result.ReportID {
				t.Errorf("external id %q", kind.ExternalID(result))
			}
		})
	}
}

func TestReportLookUpByKey(t *testing.T) {
	s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/reports?idempotency_key=report-task-42" {
			t.Errorf("asked %s", r.URL)
		}
		says(200, `{"report_id":"rep_1","status":"ready","task_id":42,"report_type":"monthly"}`)(w, r)
	})
	result, verdict, err := Report(client(t, ClientOptions{URL: s.URL}), ReportOptions{}).Lookup(t.Context(), reportAttempt())
	if verdict != consumer.Found || err != nil || result != (ReportResult{"rep_1", "ready", ""}) {
		t.Errorf("%v, %+v, error %v", verdict, result, err)
	}
}
