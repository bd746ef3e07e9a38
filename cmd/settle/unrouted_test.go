package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

const jobStream = "JOBS"

// withStrays makes a stream with messages for a consumer, for a kind without one and for nobody at all.
func withStrays(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	url, js = devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []jetstream.ConsumerConfig{
		{Durable: "payment-charge", FilterSubject: "jobs.payment.charge"},
		{Durable: "others", FilterSubjects: []string{"jobs.legacy.>", "jobs.*.audit"}},
	} {
		c.AckPolicy = jetstream.AckExplicitPolicy
		if _, err := js.CreateConsumer(t.Context(), jobStream, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct{ subject, body string }{
		{"jobs.payment.charge", `{}`}, {"jobs.payment.refund", `{"a":1}`}, {"jobs.report.create", `{}`}, {"jobs.legacy.a.b", `{}`},
		{"jobs.payment.refund", ``}, {"jobs.nightly.audit", `{}`}, {"jobs.payment.refund", `{"private":true}`},
		{"jobs.x\x1b[31m", `{}`}, {"jobs.payment.charge", `{}`},
	} {
		if _, err := js.Publish(t.Context(), m.subject, []byte(m.body)); err != nil {
			t.Fatal(err)
		}
	}
	return url, js
}

func TestUnroutedMessagesAreCountedAndLeftAlone(t *testing.T) {
	t.Parallel()
	url, js := withStrays(t)
	env := map[string]string{"NATS_URL": url} // and no Postgres
	code, out, errOut := runSettle(t, env, nil, "tasks", "list", "--unrouted", "--json", "--limit", "3")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var got []unrouted
	for line := range strings.Lines(out) {
		var u unrouted
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		got = append(got, u)
	}
	want := []struct {
		subject   string
		count     uint64
		reason    string
		sequences []uint64
		size      int // of the first
	}{
		{"jobs.payment.refund", 3, "knows no such kind", []uint64{2, 5, 7}, 7},
		{"jobs.report.create", 1, "no consumer of this kind", nil, 0}, // beyond the limit, counted all the same
		{"jobs.x\x1b[31m", 1, "knows no such kind", nil, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("%d subjects in %s", len(got), out)
	}
	for i, w := range want {
		g := got[i]
		if g.Subject != w.subject || g.Count != w.count || !strings.Contains(g.Reason, w.reason) || len(g.Messages) != len(w.sequences) {
			t.Fatalf("got %+v, want %+v", g, w)
		}
		for n, m := range g.Messages {
			if m.Sequence != w.sequences[n] || n == 0 && m.Size != w.size || m.StoredAt.IsZero() {
				t.Errorf("%s: message %+v, want sequence %d", w.subject, m, w.sequences[n])
			}
		}
	}
	if n := len(stored(t, js)); n != 9 {
		t.Errorf("%d messages are left, want all 9", n)
	}
}

func TestUnroutedAsText(t *testing.T) {
	t.Parallel()
	url, js := withStrays(t)
	env := map[string]string{"NATS_URL": url}
	code, out, errOut := runSettle(t, env, nil, "tasks", "list", "--unrouted")
	if code != exitDone || strings.ContainsRune(out, '\x1b') || strings.Contains(out, "private") {
		t.Errorf("exit %d: %q, %s", code, out, errOut)
	}
	for _, s := range []string{"jobs.payment.refund  2 ", "jobs.payment.refund: 3 in all; this build knows no such kind",
		"jobs.report.create: 1 in all; there is no consumer of this kind"} {
		if !strings.Contains(out, s) {
			t.Errorf("%q is not in\n%s", s, out)
		}
	}
	for _, s := range []string{"charge", "legacy", "audit"} {
		if strings.Contains(out, s) {
			t.Errorf("%q has a consumer:\n%s", s, out)
		}
	}
	if _, err := js.CreateConsumer(t.Context(), jobStream, jetstream.ConsumerConfig{
		Durable: "refunds", FilterSubject: "jobs.payment.refund", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := runSettle(t, env, nil, "tasks", "list", "--unrouted"); strings.Contains(out, "refund") {
		t.Errorf("refunds have a consumer now:\n%s", out)
	}
}

func TestNothingIsUnrouted(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	env := map[string]string{"NATS_URL": url}
	if code, _, errOut := runSettle(t, env, nil, "tasks", "list", "--unrouted"); code != exitFailed || !strings.Contains(errOut, jobStream) {
		t.Errorf("without the stream: exit %d, %s", code, errOut)
	}
	if err := consumer.EnsureStreams(t.Context(), js, consumer.Config{}); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := runSettle(t, env, nil, "tasks", "list", "--unrouted"); code != exitDone || !strings.Contains(out, "Every message has a consumer") {
		t.Errorf("exit %d, %s, %s", code, out, errOut)
	}
	if code, out, errOut := runSettle(t, env, nil, "tasks", "list", "--unrouted", "--json"); code != exitDone || out != "" {
		t.Errorf("exit %d, %s, %s", code, out, errOut)
	}
}
