package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// person is whom alerts are told to.
type person struct {
	mu    sync.Mutex
	heard []Alert
	fails int // times that the line is dead
}

func (p *person) notify(_ context.Context, a Alert) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails > 0 {
		p.fails--
		return errors.New("the line is dead")
	}
	p.heard = append(p.heard, a)
	return nil
}

func (p *person) causes() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.heard {
		out = append(out, a.Cause)
	}
	slices.Sort(out)
	return out
}

// calling gives the bench's engines somebody to call.
func (b *bench) calling() *person {
	p := &person{}
	b.conf.Notify = p.notify
	return p
}

// told waits until alerts with these causes, and no others, have been told, each once.
func (b *bench) told(p *person, want ...string) {
	b.t.Helper()
	slices.Sort(want)
	if !eventually(b.t, 20*time.Second, func() bool { return len(p.causes()) >= len(want) }) || !slices.Equal(p.causes(), want) {
		b.t.Errorf("told %q, want %q", p.causes(), want)
	}
}

// alertOf is the row of a cause.
func (b *bench) alertOf(cause string) idemstore.Alert {
	b.t.Helper()
	all, err := b.store.Alerts(context.WithoutCancel(b.t.Context()), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, a := range all {
		if a.Cause == cause {
			return a
		}
	}
	b.t.Errorf("no alert %q among %+v", cause, all)
	return idemstore.Alert{}
}

// termsBeforeCommit watches, and returns the messages that were ended while their row did not say needs_review.
func (b *bench) termsBeforeCommit() (early func() []uint64) {
	b.t.Helper()
	var mu sync.Mutex
	var list []uint64
	_, err := b.js.Conn().Subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."+jobStream+".*", func(m *nats.Msg) {
		var advisory struct {
			Sequence uint64 `json:"stream_seq"`
		}
		_ = json.Unmarshal(m.Data, &advisory)
		var parked bool
		err := b.pool.QueryRow(context.Background(), `select coalesce(bool_or(status = 'needs_review'), false)
			from settle.tasks where stream_sequence = $1`, advisory.Sequence).Scan(&parked)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || !parked {
			list = append(list, advisory.Sequence)
		}
	})
	if err == nil {
		err = b.js.Conn().Flush()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return func() []uint64 { mu.Lock(); defer mu.Unlock(); return slices.Clone(list) }
}

// Many tasks parked for one reason, in several workers and after a restart, are one alert. What is parked holds nothing
// else up.
func TestOneAlertPerCause(t *testing.T) {
	t.Parallel()
	const parked = 30
	b := newBench(t)
	p := b.calling()
	b.kind.Check = func(_ context.Context, _ DB, j payJob) (paid, bool, error) {
		if j.Note == "missing" {
			return paid{}, false, Conflict(errors.New("the customer does not exist"))
		}
		return paid{}, false, nil
	}
	stopFirst := b.run()
	b.run()
	for i := range parked {
		b.publish(fmt.Sprintf(`{"order":"%d","note":"missing"}`, i))
		b.publish(fmt.Sprintf(`{"order":"good_%d"}`, i))
	}
	for i := range parked {
		b.awaitStatus(fmt.Sprintf("pay_%d", i), idemstore.NeedsReview)
		b.awaitStatus(fmt.Sprintf("pay_good_%d", i), idemstore.Finished)
	}
	b.awaitSettled()
	const cause = "needs_review test.pay conflict"
	b.told(p, cause)
	stopFirst()
	b.run()
	b.publish(`{"order":"later","note":"missing"}`)
	b.awaitStatus("pay_later", idemstore.NeedsReview)
	if !eventually(t, 20*time.Second, func() bool { return b.alertOf(cause).Count == parked+1 }) {
		t.Errorf("the alert counts %d", b.alertOf(cause).Count)
	}
	b.told(p, cause)
	if a := p.heard[0]; a.Kind != "test.pay" || a.TaskID == 0 || a.Count < 1 || a.FirstAt.IsZero() ||
		!strings.Contains(a.Text, "a record that must exist does not") {
		t.Errorf("the alert says %+v", a)
	}
}

// Every stop rule gives a reason in plain words, a cause and one alert, and its message is ended after the commit.
func TestStopRules(t *testing.T) {
	t.Parallel()
	const tasks = 3
	quick := func(_ *payProvider, k *Kind[payJob, paid]) {
		k.Policy.BackoffMin, k.Policy.BackoffMax = 10*time.Millisecond, 20*time.Millisecond
	}
	everyPost := func(h http.HandlerFunc) func(*payProvider, *Kind[payJob, paid]) {
		return func(p *payProvider, _ *Kind[payJob, paid]) {
			p.front = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					h(w, r)
				}
				return r.Method == http.MethodPost
			}
		}
	}
	rules := []struct {
		name   string
		set    func(*payProvider, *Kind[payJob, paid])
		cause  idemstore.Cause
		reason string // begins the last audit line
		words  string // in the alert
	}{
		{"five unknowns", all(quick, everyPost(noAnswer)), idemstore.CauseBudget, "no outcome is known; parked: budget or age limit used up", "its failures are used up"},
		{"age", all(quick, everyPost(noAnswer), looks(status(500)), func(_ *payProvider, k *Kind[payJob, paid]) { k.Policy.MaxAge = time.Second }),
			idemstore.CauseAge, "", "not settled within its age limit"},
		{"contradictory data at the provider", all(quick, everyPost(noAnswer), looks(told(409, "pay_9"))), idemstore.CauseContradictory,
			"the provider was asked: it has other content, or two effects", "other content, or two effects"},
		{"a missing record", func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Check = func(context.Context, DB, payJob) (paid, bool, error) {
				return paid{}, false, Conflict(errors.New("no such customer"))
			}
		}, idemstore.CauseConflict, "contradictory data or a missing record", "a record that must exist does not"},
		{"nobody knows, and no permission", all(quick, everyPost(noAnswer), unkeyed(false), func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Provider.AbsentAfter = time.Millisecond
		}), idemstore.CauseAbsent, "the provider does not know it; resend or resolve?", "nothing permits to send it again"},
		{"no look-up", all(quick, everyPost(noAnswer), noLookup, unkeyed(false), func(_ *payProvider, k *Kind[payJob, paid]) {
			k.Provider.AbsentAfter = time.Millisecond
		}), idemstore.CauseNoLookup, "may have been applied; this kind has no look-up", "its kind cannot ask"},
	}
	b := newBench(t)
	b.conf.Breaker = -1 // they have one provider, to the engine
	p := b.calling()
	early := b.termsBeforeCommit()
	var kinds []Definition
	var causes []string
	for i, rule := range rules {
		pay := newPayProvider(t)
		k := pay.kind()
		k.Name, k.Provider.KeyPrefix = fmt.Sprintf("case.n%d", i), ""
		rule.set(pay, &k)
		kinds, causes = append(kinds, k), append(causes, fmt.Sprintf("needs_review %s %s", k.Name, rule.cause))
		for n := range tasks {
			if _, err := b.js.Publish(t.Context(), subject(k.Name), fmt.Appendf(nil, `{"order":"%d"}`, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.serve(kinds...)
	b.awaitSettled()
	b.told(p, causes...)
	for i, rule := range rules {
		name := fmt.Sprintf("case.n%d", i)
		for n := range tasks {
			task, err := b.store.Find(t.Context(), name, fmt.Sprintf("pay_%d", n))
			if err != nil || task.Status != idemstore.NeedsReview || task.Cause != rule.cause {
				t.Errorf("%s: task is %s by %q (%v)", rule.name, task.Status, task.Cause, err)
			}
			events, err := b.store.Events(t.Context(), task.TaskID)
			if err != nil || len(events) == 0 || !strings.HasPrefix(events[len(events)-1].Reason, rule.reason) {
				t.Errorf("%s: audit %+v (%v)", rule.name, events, err)
			}
		}
		a := b.alertOf(causes[i])
		if !eventually(t, 20*time.Second, func() bool { a = b.alertOf(causes[i]); return a.Count == tasks }) || !strings.Contains(a.Text, rule.words) {
			t.Errorf("%s: alert %+v", rule.name, a)
		}
	}
	if list := early(); len(list) != 0 {
		t.Errorf("ended before the commit: messages %v", list)
	}
}

// A dead line is tried again, also by another worker, and nothing else waits for it.
func TestAlertIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.calling()
	p.fails = 2
	b.pay.then(status(http.StatusConflict))
	b.run()
	b.run()
	b.publish(`{"order":"1"}`)
	b.awaitStatus("pay_1", idemstore.NeedsReview)
	b.publish(`{"order":"2"}`)
	b.awaitStatus("pay_2", idemstore.Finished)
	b.told(p, "needs_review test.pay conflict")
	if p.fails != 0 {
		t.Errorf("the line was not tried: %d", p.fails)
	}
}

// A notifier that never returns, or panics, holds up nothing: no job, no ack, no drain.
func TestNotifierThatHangs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	called, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	b.conf.Notify = func(context.Context, Alert) error {
		close(called)
		<-release
		panic("late")
	}
	b.pay.then(status(http.StatusConflict), status(http.StatusConflict))
	stop := b.run()
	b.publish(`{"order":"1"}`)
	await(t, called, "somebody is called")
	for i := range 10 {
		b.publish(fmt.Sprintf(`{"order":"more_%d"}`, i))
	}
	b.awaitSettled()
	stop()
	if a := b.alertOf("needs_review test.pay conflict"); a.Count != 2 || a.ToldAt != nil {
		t.Errorf("the alert is kept as %+v", a)
	}
}

// While one worker waits for the notifier the others tell the rest, and nothing is told twice.
func TestAlertsBehindASlowOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Lease, b.conf.AckWait = 6*time.Second, 6*time.Second // what is taken is taken for two leases
	p := &person{}
	rest := make(chan struct{})
	var calls atomic.Int32
	b.conf.Notify = func(ctx context.Context, a Alert) error {
		if calls.Add(1) == 1 {
			await(t, rest, "the rest is told")
		}
		return p.notify(ctx, a)
	}
	if err := b.store.Raise(t.Context(), time.Hour, idemstore.Raising{Cause: "one", Count: 1}, idemstore.Raising{Cause: "two", Count: 1},
		idemstore.Raising{Cause: "three", Count: 1}); err != nil {
		t.Fatal(err)
	}
	stops := []func(){b.run(), b.run()}
	if !eventually(t, 20*time.Second, func() bool { return len(p.causes()) >= 2 }) {
		t.Errorf("told %q", p.causes())
	}
	close(rest)
	for _, stop := range stops {
		stop()
	}
	b.told(p, "one", "two", "three")
}

// What happens while a worker drains is told before its end.
func TestLastWords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Policy.Deadline = 20 * time.Second
	p := b.calling()
	entered, release := b.pay.holdThen(status(http.StatusConflict))
	stop := b.run()
	b.publish(plainJob)
	await(t, entered, "the job is sent")
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	release()
	await(t, stopped, "the engine ends")
	if got := p.causes(); len(got) != 1 {
		t.Errorf("told %q", got)
	}
}

// Everything else that calls a person.
func TestAlertSources(t *testing.T) {
	t.Parallel()
	t.Run("other content under one key", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		p := b.calling()
		b.run()
		for _, note := range []string{"a", "b", "c"} {
			b.publish(fmt.Sprintf(`{"order":"1","note":%q}`, note))
		}
		b.awaitSettled()
		b.told(p, "conflict test.pay")
		// It is told when the first is counted; the other one may be a moment later.
		if !eventually(t, 20*time.Second, func() bool { a := b.alertOf("conflict test.pay"); return a.Count == 2 && a.TaskID != 0 }) {
			t.Errorf("alert %+v", b.alertOf("conflict test.pay"))
		}
	})
	t.Run("budget used up before the claim", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		p := b.calling()
		b.insert(b.kind, plainJob, map[string]string{"failures": "5"})
		b.run()
		b.publish(plainJob)
		b.awaitSettled()
		b.told(p, "needs_review test.pay budget")
	})
	t.Run("an unknown hash", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.conf.Policy.MisconfiguredWait = time.Hour
		p := b.calling()
		b.insert(b.kind, plainJob, map[string]string{"hash_algorithm": "'newer'", "payload": `{"order":"1","note":"x"}`})
		b.run()
		b.publish(plainJob)
		b.told(p, "incomparable test.pay")
	})
	t.Run("a provider that is down, for two workers", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.conf.Breaker = 3
		p := b.calling()
		o := b.failing(status(http.StatusServiceUnavailable))
		b.publishMany(40)
		first, _ := b.serve(b.kind)
		second, _ := b.serve(b.kind)
		b.breaker(first, true)
		b.breaker(second, true)
		o.answer(nil)
		b.awaitMany(40)
		b.told(p, "provider_down test")
	})
	t.Run("a provider that lets nobody in", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		p := b.calling()
		o := b.failing(status(http.StatusForbidden))
		b.publishMany(10)
		e, _ := b.serve(b.kind)
		b.breaker(e, true)
		o.answer(nil)
		b.awaitMany(10)
		b.told(p, "misconfigured test")
	})
	t.Run("what cannot be published", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		p := b.calling()
		b.emitted("nobody.listens")
		b.run()
		b.told(p, "unsendable")
		if a := b.alertOf("unsendable"); a.Count != 1 || a.TaskID == 0 || !strings.Contains(a.Text, "nobody.listens") {
			t.Errorf("alert %+v", a)
		}
	})
	t.Run("stuck tasks", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.conf.Lease, b.conf.AckWait = time.Second, time.Second
		p := b.calling()
		b.insert(b.kind, plainJob, map[string]string{"created_at": hoursAgo(1), "next_attempt_at": "clock_timestamp() + interval '1 hour'"})
		b.run()
		b.told(p, "stuck test.pay")
		if a := b.alertOf("stuck test.pay"); a.Count != 1 || a.TaskID == 0 || !strings.Contains(a.Text, "15m0s") {
			t.Errorf("alert %+v", a)
		}
	})
	t.Run("messages that nobody serves", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.conf.Lease, b.conf.AckWait, b.conf.RecoverAfter = time.Second, time.Second, time.Second
		p := b.calling()
		for range 3 {
			if _, err := b.js.Publish(t.Context(), "jobs.test.misspelt", []byte(plainJob)); err != nil {
				t.Fatal(err)
			}
		}
		b.run()
		b.told(p, "unrouted")
		if a := b.alertOf("unrouted"); a.Count != 3 || !strings.Contains(a.Text, "jobs.test.misspelt") || !strings.Contains(a.Text, "--unrouted") {
			t.Errorf("alert %+v", a)
		}
	})
	t.Run("parked by a worker that died before it could call", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.conf.Lease, b.conf.AckWait = time.Second, time.Second
		p := b.calling()
		b.insert(b.kind, plainJob, map[string]string{"status": "'needs_review'", "review_cause": "'absent'", "updated_at": hoursAgo(1)})
		b.run()
		b.told(p, "needs_review test.pay absent")
	})
}

// What waits to be counted is bounded; more is dropped, and the number of it is kept.
func TestAlarmIsBounded(t *testing.T) {
	t.Parallel()
	a := newAlarm()
	for i := range maxCauses + 5 {
		for range 2 {
			a.raise(idemstore.Raising{Cause: fmt.Sprint(i), Count: 1})
		}
	}
	raisings, dropped := a.take()
	if len(raisings) != maxCauses || dropped != 10 || raisings[0].Count != 2 {
		t.Errorf("%d causes of %d each, %d dropped", len(raisings), raisings[0].Count, dropped)
	}
	a.raise(idemstore.Raising{Cause: "1", Count: 1})
	a.raise(idemstore.Raising{Cause: "stuck", Count: 9, Absolute: true})
	a.putBack([]idemstore.Raising{{Cause: "1", Count: 2}, {Cause: "stuck", Count: 7, Absolute: true}, {Cause: "2", Count: 2}})
	raisings, dropped = a.take()
	counts := map[string]int{}
	for _, r := range raisings {
		counts[r.Cause] = r.Count
	}
	if len(counts) != 3 || counts["1"] != 3 || counts["stuck"] != 9 || counts["2"] != 2 || dropped != 0 {
		t.Errorf("put back: %v, %d dropped", counts, dropped)
	}
}

// Whatever parks a task has words for the person who is called.
func TestEveryCauseHasWords(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../idemstore/types.go")
	if err != nil {
		t.Fatal(err)
	}
	causes := regexp.MustCompile(`(?m)^\tCause\w+\s+Cause = "(\w+)"`).FindAllSubmatch(source, -1)
	if len(causes) < 10 {
		t.Fatalf("found %d causes", len(causes))
	}
	for _, c := range causes {
		if reviewWords[idemstore.Cause(c[1])] == "" {
			t.Errorf("no words for %s", c[1])
		}
	}
}
