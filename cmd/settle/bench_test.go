package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/bench"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// Everything is measured in a short run: each figure is there, and says something.
func TestBench(t *testing.T) {
	t.Parallel()
	plot := filepath.Join(t.TempDir(), "bench.svg")
	code, out, said := runSettle(t, nil, nil, "bench", "--json", "--jobs", "60", "--rounds", "1", "--rows", "50", "--stuck", "40",
		"--plot", plot)
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, said)
	}
	if r.Jobs != 60 || r.Rounds != 1 || r.CPUs < 1 || r.Postgres == "" {
		t.Errorf("the report does not say what was run: %+v", r)
	}
	for name, units := range map[string][]string{
		"loop": {"jobs/s"}, "external": {"jobs/s"}, "emitting": {"jobs/s"}, "local": {"jobs/s"}, "duplicates": {"jobs/s"},
		"latency": {"p50 ms", "p99 ms", "p50 ms", "p99 ms"}, "effect": {"jobs/s", "% of possible"},
		"growth": {"jobs/s", "jobs/s"}, "recovery": {"jobs/s", "rows/s", "jobs/s", "rows/s"},
	} {
		var got []string
		for _, f := range r.Of(name) {
			got = append(got, f.Unit)
			checkFigure(t, f)
		}
		if strings.Join(got, ",") != strings.Join(units, ",") {
			t.Errorf("%s has figures in %q, want %q", name, got, units)
		}
	}
	checkWaits(t, &r)
	checkPlot(t, plot, "duplicates of finished keys", "table with 50 finished rows")
	if strings.Contains(said, "\r") || strings.Count(said, "\n") != 13*2 {
		t.Errorf("standard error is not one line for each measurement:\n%s", said)
	}
}

// What is measured only where it is asked for.
func TestBenchOnRequest(t *testing.T) {
	t.Parallel()
	code, out, said := runSettle(t, nil, nil, "bench", "--json", "--only", "workers,archive,search,metrics", "--jobs", "200", "--rounds", "1", "--rows", "50")
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, said)
	}
	claims, finds := "jobs/s,claim p50 ms,claim p99 ms", "jobs/s,find p50 ms,find p99 ms"
	for name, units := range map[string]string{
		"workers": "jobs/s,jobs/s,jobs/s", "archive": claims + "," + claims + ",rows/s", "search": "jobs/s," + finds, "metrics": "jobs/s",
	} {
		var got []string
		for _, f := range r.Of(name) {
			got = append(got, f.Unit)
			checkFigure(t, f)
		}
		if strings.Join(got, ",") != units {
			t.Errorf("%s has figures in %q, want %q", name, got, units)
		}
	}
}

func checkFigure(t *testing.T, f bench.Figure) {
	t.Helper()
	beside := strings.Contains(f.Contestant, "beside") && f.Unit == "rows/s" // so few jobs are done before it begins
	if len(f.Rounds) != 1 || f.Min < 0 || f.Min > f.Median || f.Median > f.Max || !beside && (f.Min == 0 || f.Ratio == nil || f.Ratio.Mean <= 0) {
		t.Errorf("%s: %+v", f.Contestant, f)
	}
	if f.Unit == "% of possible" && f.Max > 100 {
		t.Errorf("%s: more than is possible: %v", f.Contestant, f.Rounds)
	}
}

// What a job waits for adds up, and has all parts that the job has.
func checkWaits(t *testing.T, r *bench.Report) {
	t.Helper()
	for _, name := range []string{"loop", "external", "local", "duplicates", "latency", "effect"} {
		w := r.Of(name)[0].Waits
		if w == nil || math.Abs(w.Claim+w.Perform+w.Save+w.Settle-1) > 1e-9 || w.Claim <= 0 || w.Settle <= 0 {
			t.Errorf("%s waits for %+v", name, w)
			continue
		}
		if (w.Save > 0) == (name == "duplicates") {
			t.Errorf("%s waits for saves: %+v", name, *w)
		}
	}
	if effect, none := r.Of("effect")[0].Waits, r.Of("external")[0].Waits; effect.Perform <= none.Perform {
		t.Errorf("an effect of 20 ms is %v of what a job waits for, one of nothing %v", effect.Perform, none.Perform)
	}
}

func checkPlot(t *testing.T, file string, texts ...string) {
	t.Helper()
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, text := range texts {
		if !strings.Contains(string(svg), text) {
			t.Errorf("the plot lacks %q", text)
		}
	}
}

// On somebody's servers nothing of the run is left, and what was there is untouched.
func TestBenchLeavesServersAsTheyWere(t *testing.T) {
	t.Parallel()
	postgres, err := devenv.StartPostgres(t.Context(), devenv.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = postgres.Stop() })
	address, js := devtest.JetStream(t)
	env := map[string]string{"DATABASE_URL": postgres.URL(), "NATS_URL": address}
	for _, there := range []bool{false, true} {
		if there {
			publishInto(t, js, "jobs.report.create", `{"task_id": 42, "report_type": "monthly"}`)
		}
		before := leftovers(t, postgres.URL(), js)
		code, out, said := runSettle(t, env, nil, "bench", "--json", "--jobs", "30", "--rounds", "2", "--rows", "20",
			"--only", "loop,emitting,local,growth")
		var r bench.Report
		if err := json.Unmarshal([]byte(out), &r); code != exitDone || err != nil || len(r.Figures) != 5 || len(r.Figures[2].Rounds) != 2 {
			t.Fatalf("exit %d, %v: %s%s", code, err, out, said)
		}
		if r.Figures[0].PerJob != nil {
			t.Errorf("it claims to know what somebody's server used: %s", out)
		}
		if after := leftovers(t, postgres.URL(), js); after != before || strings.Contains(after, "bench") {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	}
}

// publishInto makes the streams and stores a message in one of them.
func publishInto(t *testing.T, js jetstream.JetStream, subject, body string) {
	t.Helper()
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// leftovers are the databases, streams, consumers and messages of servers.
func leftovers(t *testing.T, databaseURL string, js jetstream.JetStream) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var all string
	if err := conn.QueryRow(t.Context(), `select string_agg(datname, ' ' order by datname) from pg_database`).Scan(&all); err != nil {
		t.Fatal(err)
	}
	streams := js.ListStreams(t.Context())
	for s := range streams.Info() {
		all += fmt.Sprintf("\n%s: %d messages, %d consumers", s.Config.Name, s.State.Msgs, s.State.Consumers)
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestBenchRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--jobs", "0"}, {"--rounds", "-1"}, {"--rows", "many"}, {"--only", "lop"}, {"--only", "loop,loop"},
		{"--only", "traced"}, {"--database-url", "nonsense"}, {"--plot", "/no/such/folder/x.svg"}, {"extra"}} {
		if code, out, said := runSettle(t, nil, nil, append([]string{"bench"}, args...)...); code != exitUsage || out != "" || said == "" {
			t.Errorf("%v: exit %d, %s%s", args, code, out, said)
		}
	}
}
