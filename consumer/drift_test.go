package consumer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// drift compares, with everything counted that is older than a moment.
func (b *bench) drift() (out []Drift) {
	b.t.Helper()
	out, err := FindDrift(b.t.Context(), b.pool, b.js, b.conf, DriftCheck{Grace: time.Millisecond}, b.kind)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// inShort writes differences so that a test can compare them.
func inShort(found []Drift) string {
	var out []string
	for _, d := range found {
		person := ""
		if d.NeedsPerson {
			person = "!"
		}
		out = append(out, fmt.Sprintf("%s%s %s %d seq%v task%v", person, d.Sort, d.Kind, d.Count, d.Sequences, d.Tasks))
	}
	return strings.Join(out, "; ")
}

func TestNoDrift(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if got := inShort(b.drift()); got != "" {
		t.Errorf("of nothing: %s", got)
	}
	stop := b.run()
	b.publish(`{"order":"1"}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	b.pay.then(noAnswer)
	b.pay.onLookup = status(500)
	b.publish(`{"order":"2"}`)
	b.awaitStatus("pay_2", idemstore.Unknown) // its message is still there
	stop()
	b.publish(`{"order":"3"}`) // and this one was not delivered yet
	if got := inShort(b.drift()); got != "" {
		t.Errorf("found %s", got)
	}
}

func TestDriftOfGivenUpAndStrayMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.givesUp(1)
	for i := range 12 {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	b.use(c, 12)
	b.abandoned(c, 12)
	for _, s := range []string{"jobs.nobody.knows", "jobs.nobody.knows", "jobs.other.kind"} {
		if _, err := b.js.Publish(t.Context(), s, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	other, err := b.stream().CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "others", FilterSubject: "jobs.other.>",
		AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 1})
	if err != nil {
		t.Fatal(err)
	}
	b.use(other, 1)
	if !eventually(t, 20*time.Second, func() bool { // of a kind that this build does not know
		_, _ = other.FetchNoWait(1)
		return len(b.drift()) == 4
	}) {
		t.Fatalf("found %s", inShort(b.drift()))
	}
	found := b.drift()
	want := "!settings test.pay 1 seq[] task[]; !given_up test.pay 12 seq[1 2 3 4 5 6 7 8 9 10] task[]; " +
		"!given_up others 1 seq[15] task[]; !unrouted nobody.knows 2 seq[13 14] task[]"
	slices.SortFunc(found, func(x, y Drift) int { return strings.Compare(rank(x), rank(y)) })
	if got := inShort(found); got != want {
		t.Errorf("found %s\nwant  %s", got, want)
	}
	for _, d := range found {
		if d.What == "" || d.Do == "" || d.Sort != DriftSettings && d.Oldest <= 0 {
			t.Errorf("%+v does not say what to do", d)
		}
	}
	if n := b.messages(); n != 15 {
		t.Errorf("%d messages are left of 15", n)
	}
}

// rank orders what the server lists in any order.
func rank(d Drift) string {
	return fmt.Sprint(slices.Index([]DriftSort{DriftSettings, DriftGivenUp, DriftUnrouted}, d.Sort), d.Kind != "test.pay")
}

// A message that was delivered and is still there although its task is final comes again, if anybody asks for it.
func TestDriftOfSettledMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.givesUp(-1)
	b.publish(`{"order":"1"}`)
	b.publish(envelope(inEnvelope)) // the same in a CloudEvent
	b.publish(`{"order":"2"}`)
	if err := b.fetchAll(c, 3, func(m jetstream.Msg) error { return m.NakWithDelay(time.Hour) }); err != nil {
		t.Fatal(err)
	}
	b.publish(`{"order":"1"}`) // a repeat that was not delivered yet is none
	holder, err := b.store.Claim(t.Context(), b.claimOf(`{"order":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := inShort(b.drift()); got != "message_gone test.pay 1 seq[] task[1]" { // it is held, without a message of its own
		t.Errorf("while the task is open: %s", got)
	}
	if _, err := b.store.Save(t.Context(), idemstore.Save{Fence: holder[0].Task.Fence, Kind: b.kind.Name, Key: "pay_1", Status: idemstore.Finished,
		MayBeApplied: true, Result: []byte(`{}`), MaxFailures: 5, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b.exec(`update settle.tasks set finished_at = finished_at - interval '1 hour'`)
	if got := inShort(b.drift()); got != "!settled_message test.pay 2 seq[1 2] task[1]" {
		t.Errorf("with nobody at work: %s", got)
	}
	if _, err := b.store.Claim(t.Context(), b.claimOf(`{"order":"9"}`)); err != nil { // somebody works on the kind
		t.Fatal(err)
	}
	b.exec(`update settle.tasks set created_at = clock_timestamp() + interval '1 minute' where key = 'pay_9'`)
	if got := inShort(b.drift()); got != "settled_message test.pay 2 seq[1 2] task[1]" {
		t.Errorf("with somebody at work: %s", got)
	}
	// What came or has become final only now is settled in a moment.
	found, err := FindDrift(t.Context(), b.pool, b.js, b.conf, DriftCheck{Grace: time.Minute}, b.kind)
	if err != nil || len(found) != 0 {
		t.Errorf("with young messages: %s (%v)", inShort(found), err)
	}
	b.exec(`update settle.tasks set finished_at = clock_timestamp() + interval '1 minute' where finished_at is not null`)
	if got := inShort(b.drift()); got != "" {
		t.Errorf("with a task that became final a moment ago: %s", got)
	}
}

func TestDriftOfTasksWithoutMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pay.then(noAnswer, noAnswer)
	b.pay.onLookup = status(500)
	stop := b.run()
	b.publish(`{"order":"1"}`)
	b.publish(`{"order":"2"}`)
	gone := b.awaitStatus("pay_1", idemstore.Unknown).TaskID
	second := b.awaitStatus("pay_2", idemstore.Unknown)
	stop()
	if got := inShort(b.drift()); got != "" {
		t.Fatalf("with their messages: %s", got)
	}
	if err := b.stream().Purge(t.Context(), jetstream.WithPurgeSequence(second.Origin.Sequence), jetstream.WithPurgeSubject(subject(b.kind.Name))); err != nil {
		t.Fatal(err)
	}
	// Purged is what lies before the sequence.
	if second.Origin.Sequence == 1 {
		t.Fatal("the second message came first")
	}
	if got := inShort(b.drift()); got != fmt.Sprintf("message_gone test.pay 1 seq[] task[%d]", gone) {
		t.Errorf("with one message gone: %s", got)
	}
	b.exec(`update settle.tasks set next_attempt_at = clock_timestamp() - interval '16 minutes'`)
	if got := inShort(b.drift()); got != fmt.Sprintf("!message_gone test.pay 1 seq[] task[%d]", gone) {
		t.Errorf("with nobody who takes it up: %s", got)
	}
	if err := b.js.DeleteStream(t.Context(), jobStream); err != nil {
		t.Fatal(err)
	}
	found := b.drift()
	if len(found) != 2 || found[0].Sort != DriftSettings || !strings.Contains(found[0].What, "no stream") || found[1].Count != 2 {
		t.Errorf("without the stream: %s", inShort(found))
	}
}

func TestDriftOfSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.js.DeleteStream(t.Context(), jobStream); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: jobStream, Subjects: []string{"jobs.>"}, Storage: jetstream.MemoryStorage,
		MaxMsgs: 10, MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stream().CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "test-pay", FilterSubject: "jobs.test.pay",
		AckPolicy: jetstream.AckExplicitPolicy, BackOff: []time.Duration{time.Second}, MaxDeliver: 7}); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, d := range b.drift() {
		if d.Sort != DriftSettings {
			t.Errorf("%+v", d)
		}
		said = append(said, fmt.Sprint(d.NeedsPerson, " ", d.What))
	}
	for i, want := range []string{"true stream JOBS has Limits retention", "true stream JOBS is kept in memory", "true stream JOBS discards its oldest",
		"false stream JOBS drops messages at an age of 1h", "true consumer test-pay has BackOff", "true consumer test-pay gives messages up after 7"} {
		if i >= len(said) || !strings.HasPrefix(said[i], want) {
			t.Errorf("%q is not number %d of %q", want, i, said)
		}
	}
}
