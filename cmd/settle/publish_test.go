package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func charge(order int) string {
	return fmt.Sprintf(`{"order_id": "%d", "customer_id": "c_1", "amount": 12.50, "currency": "EUR"}`, order)
}

func decodeAnswers(t *testing.T, out string) []answer {
	t.Helper()
	var answers []answer
	for text := range strings.Lines(out) {
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		answers = append(answers, a)
	}
	return answers
}

func stored(t *testing.T, js jetstream.JetStream) []*jetstream.RawStreamMsg {
	t.Helper()
	ctx := context.Background()
	stream, err := js.Stream(ctx, "JOBS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var messages []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

func TestPublishAnswersEachLineInOrder(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	lines := []struct{ text, outcome, reason string }{
		{`{"kind":"payment.charge","body":` + charge(1) + `}`, "stored", ""},
		{``, "", ""},
		{`{"kind":"payment.charge","body":` + charge(2) + `,"headers":{"X-Shop":"7"}}`, "stored", ""},
		{`not JSON`, "refused", "malformed"},
		{`{"kind":"payment.refund","body":{}}`, "refused", "unknown_kind"},
		{`{"kind":"payment.charge","body":{"order_id": null, "customer_id": "c", "amount": 1, "currency": "EUR"}}`, "refused", "bad_key"},
		{`{"kind":"payment.charge","body":{"a":1,"a":2}}`, "refused", "malformed"},
		{`{"kind":"payment.charge","body":{"x":"` + strings.Repeat("x", 300<<10) + `"}}`, "refused", "too_large"},
		{`{"kind":"payment.charge","body":{"x":"` + strings.Repeat("x", 2*maxLine) + `"}}`, "refused", "too_large"},
		{`{"kind":"report.create","body":{"task_id": 42, "report_type": "monthly"}}`, "stored", ""},
	}
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.text + "\n")
	}
	code, out, errOut := runSettle(t, map[string]string{"NATS_URL": url}, strings.NewReader(text.String()), "publish", "--json")
	if code != exitFailed {
		t.Errorf("exit %d with refusals, want %d: %s", code, exitFailed, errOut)
	}
	answers := decodeAnswers(t, out)
	for i, l := range lines {
		if l.outcome == "" {
			continue
		}
		if len(answers) == 0 {
			t.Fatalf("no answer for line %d", i+1)
		}
		a := answers[0]
		answers = answers[1:]
		if a.Line != i+1 || a.Outcome != l.outcome || a.Reason != l.reason || (a.Sequence > 0) != (l.outcome == "stored") {
			t.Errorf("line %d: %+v, want %s %s", i+1, a, l.outcome, l.reason)
		}
	}
	messages := stored(t, js)
	if len(messages) != 3 {
		t.Fatalf("%d messages in the stream, want 3", len(messages))
	}
	for _, m := range messages {
		if m.Subject == "jobs.payment.charge" && string(m.Data) != charge(1) && string(m.Data) != charge(2) {
			t.Errorf("the body is not what was given, byte for byte: %s", m.Data)
		}
		if string(m.Data) == charge(2) && m.Header["X-Shop"][0] != "7" {
			t.Errorf("headers = %v", m.Header)
		}
	}
}

func TestPublishingAgainIsADuplicate(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	file := filepath.Join(t.TempDir(), "jobs")
	if err := os.WriteFile(file, []byte(charge(7)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 stored, 0 duplicate", "0 stored, 1 duplicate"} {
		code, out, errOut := runSettle(t, map[string]string{"NATS_URL": url}, nil, "publish", "--kind", "payment.charge", file)
		if code != exitDone || !strings.Contains(out, want) {
			t.Errorf("exit %d, %s%s; want %s", code, out, errOut, want)
		}
	}
	if n := len(stored(t, js)); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestManyLinesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	const many = 2000
	var text bytes.Buffer
	for i := range many {
		fmt.Fprintln(&text, charge(i))
	}
	code, out, errOut := runSettle(t, map[string]string{"NATS_URL": url}, &text, "publish", "--kind", "payment.charge", "--json")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	answers := decodeAnswers(t, out)
	for i, a := range answers {
		if a.Line != i+1 {
			t.Fatalf("answer %d is for line %d", i+1, a.Line)
		}
	}
	if n := len(stored(t, js)); n != many || len(answers) != many {
		t.Errorf("%d stored, %d answers, want %d", n, len(answers), many)
	}
}

func TestInterruptedPublishReportsWhatItDid(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	cmd := command(t, map[string]string{"NATS_URL": url}, "publish", "--kind", "payment.charge", "--json")
	in, err := cmd.StdinPipe() // stays open: the program waits for more
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, charge(1))
	first := make([]byte, 64)
	n, err := out.Read(first) // the answer to the first line is there: the program is at work
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit %d, want %d: not everything was published", code, exitFailed)
	}
	answers := decodeAnswers(t, string(first[:n])+string(rest))
	if len(answers) != 1 || answers[0].Outcome != "stored" || len(stored(t, js)) != 1 {
		t.Errorf("answers %+v, %d stored", answers, len(stored(t, js)))
	}
}

func TestPublishSaysWhereNATSIsMissingWithoutThePassword(t *testing.T) {
	t.Parallel()
	code, _, errOut := runSettle(t, map[string]string{"NATS_URL": "nats://app:secret@127.0.0.1:1"}, nil, "publish")
	if code != exitFailed || !strings.Contains(errOut, "127.0.0.1:1") || strings.Contains(errOut, "secret") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// A batch above the limit is refused with what to do, and published where the limit is raised.
func TestPublishALargeBatch(t *testing.T) {
	t.Parallel()
	url, js := devtest.JetStream(t)
	line := `{"batch_id":"b_1","records":[{"source_id":"1","version":1,"name":"` + strings.Repeat("x", 300<<10) + `","email":""}]}`
	for limit, want := range map[string]struct {
		code int
		says string
	}{"": {exitFailed, "SETTLE_MAX_BODY"}, "400000": {exitDone, "1 stored"}} {
		env := map[string]string{"NATS_URL": url}
		if limit != "" {
			env["SETTLE_MAX_BODY"] = limit
		}
		code, out, errOut := runSettle(t, env, strings.NewReader(line+"\n"), "publish", "--kind", "contacts.import")
		if code != want.code || !strings.Contains(out, want.says) {
			t.Errorf("limit %q: exit %d, %s%s; want %d and %q", limit, code, out, errOut, want.code, want.says)
		}
	}
	if n := len(stored(t, js)); n != 1 {
		t.Errorf("%d messages are stored, want 1", n)
	}
}

// One server cannot keep three copies: nothing is stored with fewer than were asked for.
func TestPublishWithMoreReplicasThanServers(t *testing.T) {
	t.Parallel()
	broker, js := devtest.JetStream(t)
	env := map[string]string{"NATS_URL": broker, "SETTLE_REPLICAS": "3"}
	code, _, errOut := runSettle(t, env, strings.NewReader(charge(1)), "publish", "--kind", "payment.charge")
	if code != exitFailed || !strings.Contains(errOut, "create with 3 replicas") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if _, err := js.Stream(t.Context(), "JOBS"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a stream was made (%v)", err)
	}
}
