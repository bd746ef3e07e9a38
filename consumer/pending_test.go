package consumer

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

func TestPressure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pending, limit int
		before, after  bool // paused
	}{
		{0, 10, false, false}, {7, 10, false, false}, {8, 10, false, true}, {10, 10, false, true},
		{10, 10, true, true}, {7, 10, true, true}, {6, 10, true, false}, {0, 10, true, false},
		{15999, 20000, false, false}, {16000, 20000, false, true}, {14000, 20000, true, true}, {13999, 20000, true, false},
		{1, 1, false, true}, {0, 1, true, false},
		{1 << 40, -1, false, false}, {1 << 40, -1, true, false}, {1 << 40, 0, false, false}, // no limit
	} {
		p := pressure{paused: c.before, probe: 64}
		turned := p.read(c.pending, c.limit)
		if p.paused != c.after || turned != (c.before != c.after) {
			t.Errorf("%d of %d: paused from %v to %v, turned %v", c.pending, c.limit, c.before, p.paused, turned)
		}
		if turned && p.paused && p.allow(64) != 1 || !p.paused && p.allow(64) != 64 {
			t.Errorf("%d of %d: the next pull asks for something else", c.pending, c.limit)
		}
	}
}

// The number is read no more than once a second, however many messages go through, and soon enough where it may matter.
func TestPressureIsReadInTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		p    pressure
		want time.Duration // after the last look
	}{
		{"nothing going on", pressure{limit: 10}, lookSeldom},
		{"little going on", pressure{pending: 1, asked: 2, limit: 10}, lookSeldom},
		{"much pending", pressure{pending: 4, limit: 10}, lookOften},
		{"much asked for since", pressure{pending: 1, asked: 3, limit: 10}, lookOften},
		{"paused", pressure{paused: true, limit: 1000}, lookOften},
		{"no limit", pressure{pending: 1 << 30, asked: 1 << 30, limit: -1}, lookSeldom},
	} {
		c.p.looked = time.Unix(1_700_000_000, 0)
		if c.p.due(c.p.looked.Add(c.want-1)) || !c.p.due(c.p.looked.Add(c.want)) {
			t.Errorf("%s: not read %s after the last time", c.name, c.want)
		}
	}
	if fresh := (pressure{}); !fresh.due(time.Unix(1_700_000_000, 0)) {
		t.Error("not read at the start")
	}
}

// A paused intake takes what comes again as fast as it can, and of the rest next to nothing.
func TestPausedIntakeTakesWhatComesAgain(t *testing.T) {
	t.Parallel()
	p := pressure{}
	p.read(10, 10)
	for _, c := range []struct {
		brought pulled
		rest    bool
		next    int
	}{
		{pulled{known: 1}, false, 2}, {pulled{known: 2}, false, 4}, {pulled{known: 3}, false, 8},
		{pulled{known: 7, fresh: 1}, true, 1}, {pulled{fresh: 1}, true, 1},
		{pulled{known: 1}, false, 2}, {pulled{}, false, 1}, // a pull that nothing came for has waited
	} {
		if rest := p.after(c.brought); rest != c.rest || p.allow(100) != c.next {
			t.Errorf("after %+v: rest %v, and then %d", c.brought, rest, p.probe)
		}
	}
	for range 200 {
		p.after(pulled{known: 1})
	}
	if p.allow(100) != 100 {
		t.Errorf("in the end it may ask for %d", p.probe)
	}
}

// logged keeps the lines of a log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// with are the lines that hold a text.
func (l *logged) with(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// sick lets the provider turn every request away until it is healed.
func (b *bench) sick() (heal func()) {
	var well atomic.Bool
	b.pay.onPost = func(w http.ResponseWriter, r *http.Request) {
		if well.Load() {
			b.pay.honest(w, r)
			return
		}
		status(http.StatusTooManyRequests)(w, r)
	}
	return func() { well.Store(true) }
}

// newFullBench is a bench whose server counts a few messages and delivers no more, with a log to look at.
func newFullBench(t *testing.T, maxAckPending int) (*bench, *logged) {
	t.Helper()
	b, l := newBench(t), &logged{}
	b.conf.MaxAckPending = maxAckPending
	b.conf.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(testWriter{t}, l), nil))
	return b, l
}

const (
	pauses = "intake pauses"
	goesOn = "intake goes on"
)

// A provider that turns everything away fills the server's count. That is said once, nothing that comes again is left
// lying, and when the provider is well everything is done.
func TestIntakePausesAndGoesOn(t *testing.T) {
	t.Parallel()
	b, l := newFullBench(t, 10)
	heal := b.sick()
	e, _ := b.serve(b.kind)
	const jobs = 40
	for i := range jobs {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	if !eventually(t, 20*time.Second, func() bool { return len(l.with(pauses)) > 0 }) {
		t.Fatal("never said that it pauses")
	}
	turnedAway, _, _ := b.pay.counts()
	if !eventually(t, 20*time.Second, func() bool { w, _, _ := b.pay.counts(); return w > turnedAway+50 }) {
		t.Fatal("what comes again is not taken")
	}
	if err := e.Ready(); err != nil {
		t.Errorf("not ready while it pauses: %v", err)
	}
	if said := l.with(pauses); len(said) != 1 || !strings.Contains(said[0], "level=WARN") || !strings.Contains(said[0], "kind=test.pay") ||
		!strings.Contains(said[0], "ack_pending=") || !strings.Contains(said[0], "max_ack_pending=10") || len(l.with(goesOn)) != 0 {
		t.Errorf("said: %q, %q", said, l.with(goesOn))
	}
	heal()
	for i := range jobs {
		b.awaitStatus(fmt.Sprint("pay_", i), idemstore.Finished)
	}
	b.awaitSettled()
	if !eventually(t, 20*time.Second, func() bool { return len(l.with(goesOn)) == len(l.with(pauses)) }) {
		t.Errorf("said %d times that it pauses, and %d times that it goes on", len(l.with(pauses)), len(l.with(goesOn)))
	}
}

// What the pause rests on: at its limit the server still gives what comes again, and it gives that before anything new.
func TestServerGivesWhatComesAgainFirst(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]string{2: "1 2", 10: "1 2 3 4"} {
		b := newBench(t)
		cons, err := b.js.CreateConsumer(t.Context(), jobStream, jetstream.ConsumerConfig{Durable: "c", FilterSubject: subject(b.kind.Name),
			AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: limit})
		if err != nil {
			t.Fatal(err)
		}
		fetch := func(n int) (out []jetstream.Msg) {
			batch, err := cons.Fetch(n, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for msg := range batch.Messages() {
				out = append(out, msg)
			}
			return out
		}
		for range 4 {
			b.publish(plainJob)
		}
		for _, msg := range fetch(2) { // confirmed, so that the server has seen it before the next pull
			if _, err := b.js.Conn().Request(msg.Reply(), []byte("-NAK"), 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, msg := range fetch(4) {
			meta, err := msg.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(meta.Sequence.Stream))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("with %d pending at most the server gave %v, want %s", limit, got, want)
		}
	}
}

// While it pauses hardly anything new is begun.
func TestPausedIntakeTakesLittleThatIsNew(t *testing.T) {
	t.Parallel()
	const limit, filled, more = 100, 80, 20
	b, l := newFullBench(t, limit)
	b.conf.Slots = 1                                                                  // so that a pull brings one message
	b.conf.Policy.BackoffMin, b.conf.Policy.BackoffMax = 2*time.Second, 2*time.Second // so that between them nothing is due
	b.sick()
	b.serve(b.kind)
	for i := range filled {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
	if !eventually(t, 30*time.Second, func() bool { return len(l.with(pauses)) > 0 }) {
		t.Fatal("never said that it pauses")
	}
	since := time.Now()
	for i := range more {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, filled+i))
	}
	turnedAway, _, _ := b.pay.counts()
	if !eventually(t, 30*time.Second, func() bool { w, _, _ := b.pay.counts(); return w > turnedAway+50 }) {
		t.Fatal("what comes again is not taken")
	}
	var begun int
	if err := b.pool.QueryRow(t.Context(), `select count(*) from settle.tasks`).Scan(&begun); err != nil {
		t.Fatal(err)
	}
	if most := filled + 2 + int(time.Since(since)/lookOften); begun > most {
		t.Errorf("%d tasks were begun, want at most %d", begun, most)
	}
}
