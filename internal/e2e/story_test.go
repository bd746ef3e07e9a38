package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

const (
	chargeKind = "payment.charge"
	worker     = "settle-worker"
)

// job is a charge and its business key.
type job struct{ key, body string }

func charge(order string) job {
	return job{"order_" + order, fmt.Sprintf(`{"order_id":%q,"customer_id":"c_1","amount":1200,"currency":"EUR"}`, order)}
}

// What one attempt looks like from the moment the worker has its message.
const (
	timedOut = "deliver(claim check perform(HTTP POST(POST /charges)) save settle)"
	lookedUp = "deliver(claim lookup(HTTP GET(GET /charges)) save settle)"
)

// C4: a job goes through a crash, two others through a timeout; Jaeger finds all of each one's spans by task id, by key,
// by provider key and by external id, each alone, and the attempt narrows any of them.
func TestStoriesAreFoundInJaeger(t *testing.T) {
	crashed, late, untraced := charge("18452"), charge("18453"), charge("18454")
	s := newStage(t, crashed.key)

	doomed, _ := s.work()
	s.publish(crashed)
	rig.Await(t, s.killing, soon, "the charge is made and not answered")
	// What has ended by now has been sent within moments, and only that: see crashedTree.
	rig.Eventually(t, soon, "the first attempt's spans are in Jaeger", func() bool {
		found := s.jaeger.search(t, worker, tags{"settle.key": crashed.key, "settle.attempt": "1"})
		return len(found.named("settle.claim")) == 1 && len(found.named("settle.check")) == 1
	})
	s.kill(doomed)

	if err := s.provider.SetFaults([]provider.Fault{
		{Key: late.key, Count: 1, DelayAfter: 10 * callTimeout}, {Key: untraced.key, Count: 1, DelayAfter: 10 * callTimeout},
	}); err != nil {
		t.Fatal(err)
	}
	_, drain := s.work()
	s.publish(late)
	s.publishUntraced(untraced)
	rows := map[string]idemstore.Task{}
	for _, j := range []job{crashed, late, untraced} {
		rows[j.key] = s.finished(j)
		if n := rows[j.key].Attempt; n != 2 {
			t.Fatalf("%s took %d attempts, want 2", j.key, n)
		}
	}
	drain()

	t.Run("crash", func(t *testing.T) { crash(t, s.jaeger, rows[crashed.key]) })
	t.Run("timeout", func(t *testing.T) { timeout(t, s.jaeger, rows[late.key]) })
	t.Run("timeout without a publisher's trace", func(t *testing.T) { separate(t, s.jaeger, rows[untraced.key]) })
	t.Run("failures", func(t *testing.T) { failures(t, s.jaeger) })
}

// crashedTree: a killed process keeps for itself what had not ended, the delivery and the call that it was in. Their
// children stand alone: the claim and the check, which had ended, and the provider's side of the call.
const crashedTree = `POST /charges
check
claim
publish(` + lookedUp + `)`

func crash(t *testing.T, j *jaeger, task idemstore.Task) {
	all := foundByEach(t, j, task, crashedTree)
	first := all.where(tags{"settle.task.id": id(task), "settle.attempt": "1"})
	if len(first) != 2 || len(first.named("settle.claim")) != 1 || len(first.named("settle.check")) != 1 {
		t.Errorf("of the killed attempt there is\n%s", first.tree())
	}
	if made := all.named("POST /charges"); made[0].tag("settle.external_id") != task.ExternalID {
		t.Errorf("the provider's span says %q, the row %q", made[0].tag("settle.external_id"), task.ExternalID)
	}
	narrowed(t, j, task, "2", lookedUp, task.ExternalID)
	// The span that it links to was never sent. Its children name it as their parent.
	linked(t, j, all, all.named("settle.deliver")[0], all[0].TraceID, first[0].parent())
}

func timeout(t *testing.T, j *jaeger, task idemstore.Task) {
	all := foundByEach(t, j, task, "publish("+timedOut+" "+lookedUp+")")
	narrowed(t, j, task, "1", timedOut, "")
	narrowed(t, j, task, "2", lookedUp, task.ExternalID)
	first, second := delivery(t, all, "1"), delivery(t, all, "2")
	linked(t, j, all, first, "", "")
	linked(t, j, all, second, first.TraceID, first.SpanID)
}

// separate: without a publisher's trace each attempt has one of its own. The first never learnt the external id; the
// link of the second leads to it.
func separate(t *testing.T, j *jaeger, task idemstore.Task) {
	by := searches(task)
	delete(by, "external id")
	all := eachFinds(t, j, by, timedOut+"\n"+lookedUp)
	narrowed(t, j, task, "1", timedOut, "")
	narrowed(t, j, task, "2", lookedUp, task.ExternalID)
	learnt := eventually(t, j, tags{"settle.external_id": task.ExternalID}, lookedUp)
	first, second := delivery(t, all, "1"), delivery(t, learnt, "2")
	if first.TraceID == second.TraceID {
		t.Error("both attempts are in one trace")
	}
	linked(t, j, all, second, first.TraceID, first.SpanID)
}

// failures: Jaeger shows error=true on a failed span and does not find it by that, so there are attributes of our own.
func failures(t *testing.T, j *jaeger) {
	found := j.search(t, worker, tags{"error.type": "timeout"})
	if n := len(found.named("HTTP POST").where(tags{"error.type": "timeout", "error": "true"})); n != 2 {
		t.Errorf("%d calls that timed out, want 2", n)
	}
	if n := len(j.search(t, worker, tags{"settle.status": "unknown"}).named("settle.deliver").where(tags{"settle.status": "unknown"})); n != 2 {
		t.Errorf("%d deliveries without an outcome, want 2", n)
	}
	if found := j.search(t, worker, tags{"error": "true"}); len(found) != 0 {
		t.Errorf("Jaeger finds %d spans by error=true now; the documentation says that it cannot", len(found))
	}
}

// searches are the four ways to find a job, each alone.
func searches(task idemstore.Task) map[string]tags {
	return map[string]tags{
		"task id":      {"settle.task.id": id(task)},
		"key":          {"settle.key": task.Key},
		"provider key": {"settle.provider_key": task.ProviderKey},
		"external id":  {"settle.external_id": task.ExternalID},
	}
}

func foundByEach(t *testing.T, j *jaeger, task idemstore.Task, want string) spans {
	t.Helper()
	return eachFinds(t, j, searches(task), want)
}

// eachFinds checks that every search finds exactly the spans of want, and returns them.
func eachFinds(t *testing.T, j *jaeger, by map[string]tags, want string) (all spans) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(by)) {
		t.Log("search by", name)
		all = eventually(t, j, by[name], want)
	}
	return all
}

// eventually searches until all of want has arrived: processes send their spans at the latest when they end, the
// provider sends them a moment after.
func eventually(t *testing.T, j *jaeger, by tags, want string) (found spans) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the last search by %v found\n%s", by, found.tree())
		}
	}()
	rig.Eventually(t, soon, fmt.Sprintf("%v finds\n%s", by, want), func() bool {
		found = j.search(t, worker, by)
		return found.tree() == want
	})
	return found
}

// narrowed checks that each search together with the attempt finds exactly the spans that are of this attempt. An
// attempt that did not learn the external id is not found by it.
func narrowed(t *testing.T, j *jaeger, task idemstore.Task, attempt, want, externalID string) {
	t.Helper()
	for name, by := range searches(task) {
		by["settle.attempt"] = attempt
		found := j.search(t, worker, by)
		if name == "external id" && externalID == "" {
			if len(found) != 0 {
				t.Errorf("attempt %s is found by an id that it never learnt:\n%s", attempt, found.tree())
			}
			continue
		}
		delivery := delivery(t, found, attempt)
		ours := found.where(tags{"settle.task.id": id(task), "settle.attempt": attempt, "settle.key": task.Key, "settle.provider_key": task.ProviderKey})
		if got := found.below(delivery); got != want {
			t.Errorf("by %s and attempt %s: %s, want %s", name, attempt, got, want)
		}
		if inWorker := found.under(delivery).of(worker); len(ours) != len(inWorker) {
			t.Errorf("by %s and attempt %s: %d spans name the attempt, %d belong to it", name, attempt, len(ours), len(inWorker))
		}
		by["settle.attempt"] = "3"
		if found := j.search(t, worker, by); len(found) != 0 {
			t.Errorf("by %s and an attempt that never was: %d spans", name, len(found))
		}
	}
}

// delivery is the one delivery of an attempt.
func delivery(t *testing.T, all spans, attempt string) span {
	t.Helper()
	found := all.named("settle.deliver").where(tags{"settle.attempt": attempt})
	if len(found) != 1 {
		t.Fatalf("%d deliveries of attempt %s in\n%s", len(found), attempt, all.tree())
	}
	return found[0]
}

// linked checks that a delivery links to this span, or to none, and that no other span links anywhere.
func linked(t *testing.T, j *jaeger, all spans, from span, traceID, spanID string) {
	t.Helper()
	links := j.links(t, from.TraceID)
	for _, s := range all {
		if s.OperationName != "settle.deliver" && len(links[s.SpanID]) > 0 {
			t.Errorf("%s links somewhere", s.OperationName)
		}
	}
	got := links[from.SpanID]
	if spanID == "" {
		if len(got) != 0 {
			t.Errorf("the first attempt links to %+v", got)
		}
		return
	}
	if len(got) != 1 || got[0].TraceID != traceID || got[0].SpanID != spanID {
		t.Fatalf("links %+v, want one to span %s of trace %s", got, spanID, traceID)
	}
	if a := got[0].Attributes; len(a) != 1 || a[0].Key != "settle.link" || a[0].Value.StringValue != "previous attempt" {
		t.Errorf("the link says %+v", a)
	}
}

func id(task idemstore.Task) string { return strconv.FormatInt(task.TaskID, 10) }
