package cases

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/kindfile"
	"github.com/settlemq/settle/internal/provider"
)

// report.create as a file stands against report.create in Go: whatever the provider does, both send the same, and come to
// the same.

const reportFile = "../../deploy/kinds/report.yaml"

// declaredKinds are the kinds of the file that ships.
func declaredKinds(_ *handlers.Client, s settings) []consumer.Definition {
	f, err := kindfile.Read(reportFile)
	if err != nil {
		panic(err)
	}
	var defs []consumer.Definition
	for _, k := range f.Kinds {
		def, err := k.Definition(kindfile.Options{URL: s.ProviderURL})
		if err != nil {
			panic(err)
		}
		def.Provider.KeyLifetime = s.Provider.KeyLifetime
		defs = append(defs, def)
	}
	return defs
}

// lies are what a provider does to the requests of one job. Where a status ends the job, it is what both kinds end with.
var lies = map[string]struct {
	faults []provider.Fault
	ends   idemstore.Status
}{
	"none":                        {nil, idemstore.Finished},
	"the answer is late":          {[]provider.Fault{{DelayAfter: 2500 * time.Millisecond, Count: 1}}, idemstore.Finished},
	"the request is late":         {[]provider.Fault{{DelayBefore: 2500 * time.Millisecond, Count: 1}}, idemstore.Finished},
	"closed before the effect":    {[]provider.Fault{{Close: provider.Before, Count: 1}}, idemstore.Finished},
	"closed after the effect":     {[]provider.Fault{{Close: provider.After, Count: 1}}, idemstore.Finished},
	"500 after the effect":        {[]provider.Fault{{Status: 500, StatusAt: provider.After, Count: 1}}, idemstore.Finished},
	"503 and Retry-After":         {[]provider.Fault{{Status: 503, RetryAfter: "1", Count: 1}}, idemstore.Finished},
	"429":                         {[]provider.Fault{{Status: 429, RetryAfter: "1", Count: 1}}, idemstore.Finished},
	"401":                         {[]provider.Fault{{Status: 401, Count: 1}}, idemstore.Finished},
	"403":                         {[]provider.Fault{{Status: 403, Count: 1}}, idemstore.Finished},
	"a redirect":                  {[]provider.Fault{{Redirect: "/charges", Count: 1}}, idemstore.Finished},
	"409 in progress":             {[]provider.Fault{{InProgress: true, Count: 1}}, idemstore.Finished},
	"409 conflict":                {[]provider.Fault{{Status: 409, Body: []byte(`{"error":"idempotency_conflict"}`), Count: 1}}, idemstore.NeedsReview},
	"409 that says nothing":       {[]provider.Fault{{Status: 409, Body: []byte(`{}`), Count: 1}}, idemstore.Finished},
	"422":                         {[]provider.Fault{{Status: 422, Body: []byte(`{"error":"bad_type"}`)}}, idemstore.Failed},
	"422 conflict":                {[]provider.Fault{{Status: 422, Body: []byte(`{"error":"idempotency_conflict"}`)}}, idemstore.NeedsReview},
	"402":                         {[]provider.Fault{{Status: 402, Body: []byte(`{"error":"no_credit"}`)}}, idemstore.Failed},
	"400 with a page":             {[]provider.Fault{{Status: 400, Body: []byte(`<html>`)}}, idemstore.Failed},
	"accepted":                    {[]provider.Fault{{Pending: time.Second}}, idemstore.Finished},
	"accepted, and fails":         {[]provider.Fault{{Pending: time.Second, PendingFails: true}}, idemstore.Failed},
	"200 that is no JSON":         {[]provider.Fault{{Body: []byte(`<html>`), Count: 1}}, idemstore.Finished},
	"200 without an id":           {[]provider.Fault{{Body: []byte(`{"status":"ready"}`), Count: 1}}, idemstore.Finished},
	"200 with an odd status":      {[]provider.Fault{{Body: []byte(`{"report_id":"r","status":"odd"}`), Count: 1}}, idemstore.Finished},
	"200 that is empty":           {[]provider.Fault{{Body: []byte{}, Count: 1}}, idemstore.Finished},
	"200 cut off":                 {[]provider.Fault{{Cut: provider.CutLength, Count: 1}}, idemstore.Finished},
	"keys ignored, answer lost":   {[]provider.Fault{{IgnoreKeys: true}, {Close: provider.After, Count: 1}}, idemstore.Finished},
	"a proxy's 404 to look-ups":   {[]provider.Fault{{Close: provider.After, Count: 1}, {Method: "GET", Status: 404, Body: []byte(`<html>`), Count: 2}}, idemstore.Finished},
	"look-up with other content":  {[]provider.Fault{{Close: provider.After, Count: 1}, {Method: "GET", Body: []byte(`{"report_id":"r","status":"ready","task_id":8}`)}}, idemstore.NeedsReview},
	"look-ups closed":             {[]provider.Fault{{Close: provider.After, Count: 1}, {Method: "GET", Close: provider.Before, Count: 2}}, idemstore.Finished},
	"look-up says not found, lie": {[]provider.Fault{{Close: provider.After, Count: 1}, {Method: "GET", Status: 404, Body: []byte(`{"error":"not_found"}`), Count: 1}}, idemstore.Finished},
}

func TestAKindOfAFileIsTheSameAsInGo(t *testing.T) {
	t.Parallel()
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inGo := comesTo(t, "worker", lie.faults)
			inFile := comesTo(t, "declared", lie.faults)
			if inGo.said != inFile.said {
				t.Errorf("in Go\n%s\nas a file\n%s", inGo.said, inFile.said)
			}
			if inGo.status != lie.ends || inFile.status != lie.ends {
				t.Errorf("%s in Go and %s as a file, want %s", inGo.status, inFile.status, lie.ends)
			}
		})
	}
}

// ending is what became of a job.
type ending struct {
	status idemstore.Status
	said   string // all that has to be the same
}

// inWords makes the two ways of saying the same equal: a file has rules where a kind in Go has words that it knows.
var inWords = strings.NewReplacer("answer has a status that is not known", "no rule fits this answer",
	"answer lacks what the result is made of: answer.report_id is absent", "answer has no usable id",
	"answer is empty: unexpected EOF", "answer is not the JSON that was expected",
	"answer is cut off: unexpected EOF", "answer is cut off or too large, and its meaning depends on what is in it")

// comesTo runs one job, against its provider's will, to its end.
func comesTo(t *testing.T, program string, faults []provider.Fault) ending {
	t.Helper()
	s, j := newCalmStage(t), report(42)
	s.name = program
	s.settings.Config.Policy.MisconfiguredWait = 100 * time.Millisecond
	s.settings.Config.Breaker = -1
	s.faults(faults...)
	rec := s.throughRecorder()
	w := s.startWorker()
	s.publish(j)
	task := s.await(j, "settled", func(t idemstore.Task) bool { return t.Status.Final() || t.Status == idemstore.NeedsReview })
	s.awaitSettled()
	drained(t, w)

	posts, _ := s.requests(j)
	ids := query[string](s, `select report_id from provider.reports where idempotency_key = $1`, j.key)
	result := string(task.Result)
	for _, id := range ids {
		result = strings.ReplaceAll(result, id, "ID")
	}
	known := "none"
	switch {
	case slices.Contains(ids, task.ExternalID):
		known = "the provider's"
	case task.ExternalID != "":
		known = "of no effect"
	}
	return ending{task.Status, fmt.Sprintf("status %s, key %s, provider key %s, id %s, E=%d W=%d, class %q\nresult %s\nerror %s\n%s",
		task.Status, task.Key, task.ProviderKey, known, len(ids), posts, task.ErrorClass, result, inWords.Replace(task.LastError), rec.shapes(ids))}
}

// shapes are the different requests that came, without what differs from one to the next.
func (r *recorder) shapes(ids []string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, x := range r.seen {
		header := x.header.Clone()
		for _, own := range []string{"Traceparent", "User-Agent"} {
			if header.Get(own) == "" {
				seen["without "+own] = true
			}
			header.Del(own)
		}
		uri := x.uri
		for _, id := range ids {
			uri = strings.ReplaceAll(uri, id, "ID")
		}
		if rest, ok := strings.CutPrefix(uri, "/reports/"); ok && rest != "" {
			uri = "/reports/ID"
		}
		seen[fmt.Sprintf("%s %s %v %s", x.method, uri, sortedHeader(header), x.body)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "\n")
}

func sortedHeader(h http.Header) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		out = append(out, name+": "+strings.Join(h[name], ", "))
	}
	return out
}

// A worker that serves the file dies at each point of a delivery, and another one goes on: one effect.
func TestCrashOfAKindOfAFile(t *testing.T) {
	t.Parallel()
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.name = "declared"
			s.settings.Config.Policy.Lease = consumer.Lenient
			j := report(1)
			c.killFirst(s, j)
			s.settings.Config.Lease = 5 * time.Second
			second := s.startWorker()
			s.awaitStatus(j, idemstore.Finished)
			s.awaitSettled()
			s.holdsFor(j)
			drained(t, second)
			if w, _ := s.requests(j); w != 1 {
				t.Errorf("W=%d, want 1", w)
			}
		})
	}
}
