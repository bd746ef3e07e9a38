package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// hostile are subjects that a worker must not publish to, or cannot.
var hostile = []string{
	"jobs.test.pay", "jobs.>", "events.payment.charged", "$JS.API.STREAM.DELETE.JOBS", "$JS.ACK.JOBS.test-pay.1.1.1.1.0",
	"$SYS.REQ.SERVER.PING", "settle.alerts", "_inbox.a", "INBOX.a", "_INBOX", "_INBOX.", "settle.reply", "settle.reply.", "x_INBOX.a",
	"_INBOX.>", "_INBOX.*", "_INBOX.a.*.b", "settle.reply.>", "_INBOX.a*", "_INBOX..a", "_INBOX.a.", "settle.reply.a..b",
	"_INBOX.a jobs.test.pay", "_INBOX.a\tjobs.test.pay", "_INBOX.a b c d", "_INBOX.a\x00b", "_INBOX.\xff\xfe", "_INBOX.caf\u00e9", "_INBOX.\u2028",
	"_INBOX." + strings.Repeat("a", 250), "settle.reply." + strings.Repeat("b.", 20000) + "c",
}

func TestUsableReply(t *testing.T) {
	t.Parallel()
	for _, s := range hostile {
		if usableReply(s) != "" {
			t.Errorf("%.60q is used", s)
		}
	}
	for _, s := range []string{"_INBOX.a", "_INBOX.x5yFQ2.7", "settle.reply.shop-7.order_18452", "settle.reply.a/b:c{d}", "_INBOX." + strings.Repeat("a", 249)} {
		if usableReply(s) != s {
			t.Errorf("%.60q is not used", s)
		}
	}
}

// Whoever can publish a job chooses where the answer goes, and can choose nothing that does harm: each job is done as if
// nobody had asked, and nothing appears anywhere that an answer could have caused.
func TestHostileReplySubjects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	observer, err := nats.Connect(b.js.Conn().ConnectedUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	all, err := observer.SubscribeSync(">")
	if err == nil {
		err = observer.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.run()
	for i, s := range hostile {
		b.ask(numbered(i), s)
	}
	h := b.hear()
	b.ask(numbered(1000), h.subject)
	h.next()
	for i := range hostile {
		b.awaitStatus(fmt.Sprint("pay_", i), idemstore.Finished)
	}
	b.awaitSettled()
	if n := b.js.Conn().Stats().Reconnects; n != 0 {
		t.Errorf("the server cut the worker's connection %d times", n)
	}
	if err := b.js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := observer.Flush(); err != nil {
		t.Fatal(err)
	}
	answers := 0
	for {
		m, err := all.NextMsg(time.Nanosecond)
		if err != nil {
			break
		}
		if m.Header.Get(headerStatus) == "" {
			continue
		}
		if answers++; m.Subject != h.subject {
			t.Errorf("an answer went to %.60q", m.Subject)
		}
	}
	if answers != 1 {
		t.Errorf("%d answers, want that of the honest caller", answers)
	}
	if n := b.count(`reply_subject <> ''`); n != 1 {
		t.Errorf("%d tasks keep a subject", n)
	}
}

// A publisher that enqueues by SQL hears it at once if its subject cannot be used, and a good one is answered.
func TestEnqueueWithReply(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	enqueue := func(order, reply string) error {
		_, err := b.pool.Exec(t.Context(), `select settle.enqueue($1, $2, reply => $3)`, b.kind.Name, `{"order":"`+order+`"}`, reply)
		return err
	}
	for _, s := range hostile {
		if err := enqueue("1", strings.ToValidUTF8(s, "\ufffd")); err == nil {
			t.Errorf("%.60q is enqueued", s)
		}
	}
	b.run()
	h := b.hear()
	if err := enqueue("2", h.subject); err != nil {
		t.Fatal(err)
	}
	if got, want := h.next(), `finished replayed=false {"id":"pay_1"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A job whose message is purged is settled by recovery, and so is its caller: once.
func TestRecoveryAnswersForAPurgedMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*bench)
		want string
	}{
		"found":        {func(*bench) {}, `finished replayed=false {"id":"pay_1"}`},
		"over its age": {func(b *bench) { b.exec(`update settle.tasks set give_up_at = clock_timestamp()`) }, `needs_review replayed=false null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			entered, release := b.pay.holdThen(b.pay.effectThen(noAnswer))
			stop := b.run()
			h := b.hear()
			b.ask(plainJob, h.subject)
			await(t, entered, "the charge is on its way")
			if err := b.stream().Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			release()
			b.awaitStatus("pay_1", idemstore.Unknown)
			stop()
			h.none("while the outcome is unknown")
			c.set(b)
			e := b.recovering().engine(b.kind)
			b.runEngine(e)
			if got := h.next(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			b.passes(e, 2)
			h.none("a second time")
		})
	}
}

// As long as the message is there it is answered, and not the row as well.
func TestRecoveryLeavesTheAnswerToTheMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.hear()
	b.ask(plainJob, h.subject)
	b.insert(b.kind, plainJob, and(released, "stream", `'JOBS'`, "stream_sequence", `1`, "reply_subject", "'"+h.subject+"'"))
	e := b.engine(b.kind)
	told := 0
	if err := e.Recover(t.Context(), byHand, func(r Recovered) { told++ }); err != nil || told != 1 {
		t.Fatalf("%d tasks recovered (%v)", told, err)
	}
	b.awaitStatus("pay_1", idemstore.Finished)
	h.none("by recovery")
	b.run()
	if got, want := h.next(), `finished replayed=true {"id":"pay_1"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.awaitSettled()
	h.none("a second time")
}

// Who was told that a person decides is not told a second thing by what the person then does.
func TestNoSecondAnswerAfterAnOperatorsRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pay.then(status(409))
	stop := b.run()
	h := b.hear()
	b.ask(plainJob, h.subject)
	if got, want := h.next(), `needs_review replayed=false null`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	stop()
	o, err := NewOperator(b.pool, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	acted, err := o.Retry(t.Context(), b.awaitStatus("pay_1", idemstore.NeedsReview), ActOptions{Actor: "anna", Reason: "ticket 7"})
	if err != nil || acted.Outcome != OutcomeDone {
		t.Fatalf("%+v (%v)", acted, err)
	}
	e := b.recovering().engine(b.kind)
	b.runEngine(e)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.passes(e, 2)
	h.none("after the retry")
}
