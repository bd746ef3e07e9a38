package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/rig"
)

// What make builds, and how make jaeger runs it.
const (
	jaegerBinary = "../../bin/jaeger"
	jaegerConfig = "../tools/jaeger/jaeger.yaml"
)

// jaeger is a running Jaeger with an empty memory.
type jaeger struct {
	query  string // base URL of the query API
	otlp   string // where spans are sent: OTLP over gRPC
	client *http.Client
}

// Where Jaeger says which ports it got. The query server's own "port" is of no use: there are two of them.
var (
	queryAddress = regexp.MustCompile(`"http_addr": "([^"]+)"`)
	otlpAddress  = regexp.MustCompile(`otlpreceiver.*Starting GRPC server.*"endpoint": "([^"]+)"`)
)

// startJaeger starts one on free ports of the loopback interface. It ends with the test.
func startJaeger(t *testing.T) *jaeger {
	t.Helper()
	if _, err := os.Stat(jaegerBinary); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("bin/jaeger is missing; run: make bin/jaeger")
	}
	process := rig.StartWorker(t, rig.WorkerOptions{Name: "jaeger", Binary: jaegerBinary, Args: []string{"--config", jaegerConfig},
		Env: []string{"JAEGER_LOG_LEVEL=info", "JAEGER_UI=",
			"JAEGER_QUERY_PORT=0", "JAEGER_QUERY_GRPC_PORT=0", "JAEGER_OTLP_PORT=0", "JAEGER_OTLP_HTTP_PORT=0"}})
	address := func(line *regexp.Regexp) string {
		if found := line.FindStringSubmatch(process.Output()); found != nil {
			return "http://" + found[1]
		}
		return ""
	}
	j := &jaeger{client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	rig.Eventually(t, soon, "Jaeger says where it listens", func() bool {
		j.query, j.otlp = address(queryAddress), address(otlpAddress)
		return j.query != "" && j.otlp != ""
	})
	rig.Eventually(t, soon, "Jaeger answers", func() bool {
		answer, err := j.client.Get(j.query + "/api/services")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	})
	return j
}

// get asks the query API.
func (j *jaeger) get(t *testing.T, path string, parameters url.Values, into any) {
	t.Helper()
	answer, err := j.client.Get(j.query + path + "?" + parameters.Encode())
	if err != nil {
		t.Fatalf("ask Jaeger: %v", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("ask Jaeger for %s: %s", path, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatalf("ask Jaeger for %s: %v", path, err)
	}
}

// tags are attributes that one span must have, all of them. Jaeger takes numbers as text too.
type tags map[string]string

// search finds the traces in which a span of the service has the tags, as a person does in the search form.
func (j *jaeger) search(t *testing.T, service string, by tags) (found spans) {
	t.Helper()
	text, err := json.Marshal(by)
	if err != nil {
		t.Fatal(err)
	}
	return j.find(t, url.Values{"service": {service}, "tags": {string(text)}, "limit": {"100"}})
}

// find is a search by the parameters of a URL.
func (j *jaeger) find(t *testing.T, parameters url.Values) (found spans) {
	t.Helper()
	var answer struct {
		Data []struct {
			Spans     spans
			Processes map[string]struct{ ServiceName string }
		}
	}
	j.get(t, "/api/traces", parameters, &answer)
	for _, trace := range answer.Data {
		for _, s := range trace.Spans {
			s.Service = trace.Processes[s.ProcessID].ServiceName
			if !s.followsUp() {
				found = append(found, s)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b span) int { return cmp.Compare(a.StartTime, b.StartTime) })
	return found
}

// link is a span link, as the OTLP form of a trace has it. The older form drops its attributes.
type link struct {
	TraceID, SpanID string
	Attributes      []struct {
		Key   string
		Value struct{ StringValue string }
	}
}

// links are the links of each span of a trace, by span id.
func (j *jaeger) links(t *testing.T, traceID string) map[string][]link {
	t.Helper()
	var answer struct {
		Result struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						SpanID string
						Links  []link
					}
				}
			}
		}
	}
	j.get(t, "/api/v3/traces/"+traceID, nil, &answer)
	out := map[string][]link{}
	for _, resource := range answer.Result.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				out[s.SpanID] = append(out[s.SpanID], s.Links...)
			}
		}
	}
	return out
}
