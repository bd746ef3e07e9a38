package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/telemetry"
)

const repository = "../../"

// What the README says of each metric is what the code says.
func TestTheReadmeHasEveryMetric(t *testing.T) {
	t.Parallel()
	var want []string
	for _, m := range consumer.Metrics() {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		want = append(want, "| `"+m.Name+"` | "+string(m.Type)+" | "+labels+" | "+m.Help+" |")
	}
	readme, err := os.ReadFile(repository + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, "| `settle_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("the README lacks\n%s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("the README has, and the code has not,\n%s", line)
		}
	}
}

// known are the labels of each series that a worker shows: of ours by the code, of the runtime's by what is shown.
func known(t *testing.T) map[string][]string {
	t.Helper()
	series := map[string][]string{}
	for _, m := range consumer.Metrics() {
		if m.Type != consumer.MetricHistogram {
			series[m.Name] = m.Labels
			continue
		}
		series[m.Name+"_bucket"] = append([]string{"le"}, m.Labels...)
		series[m.Name+"_sum"], series[m.Name+"_count"] = m.Labels, m.Labels
	}
	for name := range exposed(t) {
		series[name] = nil
	}
	return series
}

// exposed is what a process that does nothing shows.
func exposed(t *testing.T) map[string]bool {
	t.Helper()
	metrics, err := telemetry.SetupMetrics(t.Context(), "settle-worker", newLog(&cli.Command{}))
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Shutdown(t.Context())
	answer := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	names := map[string]bool{}
	for line := range strings.Lines(answer.Body.String()) {
		if name := regexp.MustCompile(`^[a-z_:]+[a-z0-9_:]*`).FindString(line); name != "" {
			names[name] = true
		}
	}
	return names
}

var (
	metricInQuery  = regexp.MustCompile(`\b(?:settle|go|process)_[a-z0-9_]+`)
	labelsInQuery  = regexp.MustCompile(`(?:settle|go|process)_[a-z0-9_]+\{([^}]*)\}`)
	matcherInQuery = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	groupInQuery   = regexp.MustCompile(`\bby \(([a-z_, ]*)\)`)
)

// fit checks that a query asks for what there is, by labels that it has.
func fit(t *testing.T, query string, series map[string][]string) {
	t.Helper()
	names := metricInQuery.FindAllString(query, -1)
	if len(names) == 0 {
		t.Errorf("no metric in %s", query)
	}
	common := []string{"instance", "job"}
	for _, name := range names {
		labels, there := series[name]
		if !there {
			t.Errorf("there is no %s, of %s", name, query)
		}
		common = append(common, labels...)
	}
	var used []string
	for _, m := range labelsInQuery.FindAllStringSubmatch(query, -1) {
		for _, l := range matcherInQuery.FindAllStringSubmatch(m[1], -1) {
			used = append(used, l[1])
		}
	}
	for _, m := range groupInQuery.FindAllStringSubmatch(query, -1) {
		used = append(used, strings.FieldsFunc(m[1], func(c rune) bool { return c == ',' || c == ' ' })...)
	}
	for _, l := range used {
		if !slices.Contains(common, l) {
			t.Errorf("no label %s, of %s", l, query)
		}
	}
}

func TestTheDashboardAsksForMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(repository + "deploy/grafana/settle.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	series, asked := known(t), map[string]bool{}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			fit(t, q.Expr, series)
			for _, name := range metricInQuery.FindAllString(q.Expr, -1) {
				asked[name] = true
			}
		}
	}
	for _, m := range consumer.Metrics() {
		if m.Type != consumer.MetricHistogram && !asked[m.Name] && m.Name != "settle_tasks" {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}

// rules are the values of a field in the alert rules.
func rules(t *testing.T, field string) (values []string) {
	t.Helper()
	raw, err := os.ReadFile(repository + "deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:- )?`+field+`: (.+)$`).FindAllStringSubmatch(string(raw), -1) {
		values = append(values, strings.Trim(m[1], `"`))
	}
	return values
}

func TestTheAlertsAskForMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	series := known(t)
	queries := rules(t, "expr")
	if alerts := rules(t, "alert"); len(queries) != len(alerts) || len(alerts) < 9 {
		t.Errorf("%d queries for %d alerts", len(queries), len(alerts))
	}
	for _, q := range queries {
		fit(t, q, series)
	}
}

// Who is called at night copies the line: each command in it exists, with those flags.
func TestTheRunbookOfEachAlertIsACommandThatExists(t *testing.T) {
	t.Parallel()
	runbooks := rules(t, "runbook")
	if len(runbooks) != len(rules(t, "alert")) {
		t.Errorf("%d runbooks for %d alerts", len(runbooks), len(rules(t, "alert")))
	}
	for _, r := range runbooks {
		command := regexp.MustCompile(`^settle [a-z]`).FindString(r)
		if command == "" {
			t.Errorf("no command at the beginning of %q", r)
		}
		line, _, _ := strings.Cut(strings.ReplaceAll(r, "{{ $labels.kind }}", "payment.charge"), ";")
		cmd, words := root(), strings.Fields(line)[1:]
		for len(words) > 0 && cmd.Command(words[0]) != nil {
			cmd, words = cmd.Command(words[0]), words[1:]
		}
		if cmd.Name == "settle" {
			t.Errorf("there is no command in %q", r)
		}
		for _, w := range words {
			if name, ok := strings.CutPrefix(w, "--"); ok && !hasFlag(cmd, name) {
				t.Errorf("%s has no %s, of %q", cmd.Name, w, r)
			}
		}
	}
}

func hasFlag(cmd *cli.Command, name string) bool {
	return slices.ContainsFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// The names are what Prometheus gets: nothing is added to them.
func TestNamesReachPrometheusAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(exposed(t))) {
		if strings.Contains(name, "otel") || strings.HasPrefix(name, "target_info") {
			t.Errorf("an idle process shows %s", name)
		}
	}
}
