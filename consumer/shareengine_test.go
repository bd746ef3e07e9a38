package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// traffic is what a provider sees of its callers.
type traffic struct {
	mu   sync.Mutex
	now  int
	most int         // calls under way at once
	came []time.Time // calls
}

// watch puts a look at the traffic before the bench's provider. Each call takes a while.
func (b *bench) watch(takes time.Duration) *traffic {
	x := &traffic{}
	b.pay.mu.Lock()
	defer b.pay.mu.Unlock()
	b.pay.front = func(w http.ResponseWriter, r *http.Request) bool {
		x.enter()
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
		x.leave() // before the answer, which lets the next one come
		b.pay.next(r)(w, r)
		return true
	}
	return x
}

func (x *traffic) enter() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now++
	x.most = max(x.most, x.now)
	x.came = append(x.came, time.Now())
}

func (x *traffic) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now--
}

// seen gives the most calls at once, how many there were, and the time from the first to the last.
func (x *traffic) seen() (most, calls int, took time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.came) > 0 {
		took = slices.MaxFunc(x.came, time.Time.Compare).Sub(slices.MinFunc(x.came, time.Time.Compare))
	}
	return x.most, len(x.came), took
}

// counted is a bench's kind that also counts its jobs by the engine that performs them.
func (b *bench) counted(who string, mu *sync.Mutex, by map[string]int) Kind[payJob, paid] {
	k := b.kind
	usual := k.Check
	k.Check = func(ctx context.Context, db DB, j payJob) (paid, bool, error) {
		mu.Lock()
		by[who]++
		mu.Unlock()
		if usual != nil {
			return usual(ctx, db, j)
		}
		return paid{}, false, nil
	}
	return k
}

func (b *bench) publishMany(n int) {
	b.t.Helper()
	for i := range n {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
	}
}

func (b *bench) awaitMany(n int) {
	b.t.Helper()
	for i := range n {
		b.awaitStatus(fmt.Sprintf("pay_%d", i), idemstore.Finished)
	}
	b.awaitSettled()
	if _, e, _ := b.pay.counts(); e != n {
		b.t.Errorf("E=%d of %d", e, n)
	}
}

// However many workers there are, and whenever they come and go: never more calls at once than the cap.
func TestCapInFlight(t *testing.T) {
	t.Parallel()
	const limit, jobs = 4, 40
	b := newBench(t)
	b.conf.Slots = 8
	b.kind.Provider.MaxInFlight = limit
	x := b.watch(600 * time.Millisecond) // longer than it takes to check in
	var mu sync.Mutex
	by := map[string]int{}
	b.publishMany(jobs)
	_, stopFirst := b.serve(b.counted("first", &mu, by))
	if !eventually(t, 20*time.Second, func() bool { _, calls, _ := x.seen(); return calls >= limit }) {
		t.Fatal("the first worker has no share")
	}
	b.serve(b.counted("second", &mu, by))
	b.serve(b.counted("third", &mu, by))
	shared := eventually(t, 20*time.Second, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return by["second"] > 0 && by["third"] > 0
	})
	stopFirst()
	b.awaitMany(jobs)
	if most, _, _ := x.seen(); most != limit {
		t.Errorf("%d calls at once, with a cap of %d", most, limit)
	}
	if !shared {
		t.Errorf("the work was done by %v", by)
	}
}

// With more workers than calls in flight some have nothing to do, and the job is done by the others.
func TestCapSmallerThanTheCrew(t *testing.T) {
	t.Parallel()
	const jobs = 20
	b := newBench(t)
	b.kind.Provider.MaxInFlight = 1
	x := b.watch(5 * time.Millisecond)
	for range 3 {
		b.serve(b.kind)
	}
	b.publishMany(jobs)
	b.awaitMany(jobs)
	if most, _, _ := x.seen(); most != 1 {
		t.Errorf("%d calls at once", most)
	}
}

// The calls of all workers together keep to the rate, look-ups included.
func TestCapPerSecond(t *testing.T) {
	t.Parallel()
	const rate, jobs = 20, 40
	b := newBench(t)
	b.conf.Slots = 16
	b.kind.Provider.MaxPerSecond = rate
	b.pay.then(status(500), status(500), status(500), status(500)) // and four are asked about, and sent again
	x := b.watch(0)
	for range 3 {
		b.serve(b.kind)
	}
	b.publishMany(jobs)
	b.awaitMany(jobs)
	_, calls, took := x.seen()
	if calls != jobs+8 {
		t.Errorf("%d calls", calls)
	}
	if least := time.Duration(calls-1) * time.Second / rate; took < least*8/10 {
		t.Errorf("%d calls in %v, want at least %v", calls, took, least)
	}
}

// A worker that cannot check in stops by itself, before its share is given to others.
func TestShareRunsOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind.Provider.MaxInFlight = 2
	e, _ := b.serve(b.kind)
	b.publish(`{"order":"1"}`)
	b.awaitStatus("pay_1", idemstore.Finished)
	b.exec(`alter table settle.workers rename to workers_away`)
	if !eventually(t, 20*time.Second, func() bool { return !e.remotes[0].share.usable(now()) }) {
		t.Fatal("it goes on for ever")
	}
	b.publish(`{"order":"2"}`)
	b.exec(`alter table settle.workers_away rename to workers`)
	b.awaitStatus("pay_2", idemstore.Finished)
	b.awaitSettled()
}

// Each request of a handler that makes several counts.
func TestCapCountsEveryRequest(t *testing.T) {
	t.Parallel()
	const rate, jobs = 10, 6
	b := newBench(t)
	b.kind.Provider.MaxPerSecond = rate
	usual := b.kind.Perform
	b.kind.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		if _, _, err := b.pay.do(ctx, http.MethodGet, "?key=other", ""); err != nil && !errors.Is(err, io.EOF) {
			return paid{}, err
		}
		return usual(ctx, a)
	}
	x := b.watch(0)
	b.run()
	b.publishMany(jobs)
	b.awaitMany(jobs)
	_, calls, took := x.seen()
	if least := time.Duration(calls-1) * time.Second / rate; calls != 2*jobs || took < least*8/10 {
		t.Errorf("%d calls in %v, want at least %v", calls, took, least)
	}
}
