package e2e

import (
	"testing"

	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// What an attempt without a message looks like, and what one looks like whose calls the provider did not trace.
const (
	takenUp         = "recover(claim lookup(HTTP GET(GET /charges)) save)"
	keptTimeout     = "deliver(claim check perform(HTTP POST) save settle)"
	keptLookup      = "deliver(claim lookup(HTTP GET) save settle)"
	previousAttempt = "previous attempt"
	origin          = "origin"
)

// A worker dies and the message with it: recovery goes on in the publisher's trace, and links to the attempt that died. Then
// nothing is sampled, attempts have traces of their own, and only what ends in trouble is kept.
func TestRecoveryAndTroubleAreFoundInJaeger(t *testing.T) {
	crashed, late, fine := charge("18455"), charge("18456"), charge("18457")
	s := newStage(t, crashed.key)

	doomed, _ := s.work()
	s.publish(crashed)
	rig.Await(t, s.killing, soon, "the charge is made and not answered")
	rig.Eventually(t, soon, "the first attempt's spans are in Jaeger", func() bool {
		found := s.jaeger.search(t, worker, tags{"settle.key": crashed.key, "settle.attempt": "1"})
		return len(found.named("settle.claim")) == 1 && len(found.named("settle.check")) == 1
	})
	s.kill(doomed)
	s.purge()
	s.settings = append(s.settings, "SETTLE_RECOVER_EVERY=100ms")
	_, drain := s.work()
	row := s.finished(crashed)
	drain()
	t.Run("recovery", func(t *testing.T) {
		all := eventually(t, s.jaeger, tags{"settle.task.id": id(row)}, "POST /charges\ncheck\nclaim\npublish("+takenUp+")")
		recovered := all.named("settle.recover")[0]
		first := all.where(tags{"settle.task.id": id(row), "settle.attempt": "1"})
		leads(t, s.jaeger, recovered, map[string]string{previousAttempt: first[0].parent()})
		if recovered.tag("settle.actor") != "recovery" || recovered.tag("settle.external_id") != row.ExternalID {
			t.Errorf("the recovery says %v", recovered.Tags)
		}
	})

	s.settings = append(s.settings, "SETTLE_TRACE=link", "SETTLE_TRACE_KEEP=trouble", "SETTLE_HASH_KEYS=true", "OTEL_TRACES_SAMPLER=always_off")
	if err := s.provider.SetFaults([]provider.Fault{{Key: late.key, Count: 1, DelayAfter: 10 * callTimeout}}); err != nil {
		t.Fatal(err)
	}
	_, drain = s.work()
	s.publish(fine)
	s.publish(late)
	s.finished(fine)
	row = s.finished(late)
	drain()
	t.Run("link and trouble", func(t *testing.T) {
		first := eventually(t, s.jaeger, tags{"settle.task.id": id(row), "settle.attempt": "1"}, keptTimeout)[0]
		second := eventually(t, s.jaeger, tags{"settle.task.id": id(row), "settle.attempt": "2"}, keptLookup)[0]
		leads(t, s.jaeger, first, map[string]string{origin: ""})
		leads(t, s.jaeger, second, map[string]string{origin: "", previousAttempt: first.SpanID})
		if first.TraceID == second.TraceID || first.parent() != "" || second.parent() != "" {
			t.Error("the attempts have no traces of their own")
		}
		if first.tag("settle.key") == late.key || len(s.jaeger.search(t, worker, tags{"settle.key": first.tag("settle.key")})) == 0 {
			t.Errorf("the key is shown, or not found by its hash: %s", first.tag("settle.key"))
		}
		if found := s.jaeger.search(t, worker, tags{"settle.task.id": id(s.finished(fine))}); len(found) != 0 {
			t.Errorf("what went well was kept:\n%s", found.tree())
		}
	})
}

// leads checks a span's links by what they say they are, and where they lead to unless that is empty.
func leads(t *testing.T, j *jaeger, from span, want map[string]string) {
	t.Helper()
	links := j.links(t, from.TraceID)[from.SpanID]
	if len(links) != len(want) {
		t.Errorf("%s has the links %+v, want %v", from.OperationName, links, want)
	}
	for _, l := range links {
		what := l.Attributes[0].Value.StringValue
		if to, asked := want[what]; !asked || to != "" && to != l.SpanID {
			t.Errorf("%s: the link %q leads to %s, want %v", from.OperationName, what, l.SpanID, want)
		}
	}
}
