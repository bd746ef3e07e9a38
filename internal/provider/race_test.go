package provider

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// L5: two requests with one key at the same moment. The first stands still with its row written and not
// committed until Postgres says that the second waits for it.
func TestRaceForOneKey(t *testing.T) {
	t.Parallel()
	written, commit := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	r := start(t, Options{OnPoint: func(_ context.Context, at Point, _ Call) {
		if at == BeforeCommit && once.CompareAndSwap(false, true) {
			close(written)
			<-commit
		}
	}})
	first, second := make(chan reply, 1), make(chan reply, 1)
	send := func(to chan reply) {
		to <- r.send(t.Context(), http.MethodPost, "/reports", monthly, "Idempotency-Key", "report-task-42")
	}
	go send(first)
	<-written
	go send(second)
	r.untilOneWaits()
	close(commit)

	won, lost := <-first, <-second
	r.expect(won, 201, "replayed", false)
	r.expect(lost, 200, "replayed", true, "report_id", won.fields["report_id"])
	r.counts("report-task-42", 2, 1)
	r.expect(r.post("/reports", "report-task-42", `{"task_id": 42, "report_type": "weekly"}`, ""), 409)
}

// untilOneWaits asks until a session of the test's database waits for another one's transaction.
func (r *rig) untilOneWaits() {
	r.t.Helper()
	for one[int](r, `select count(*) from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock'`) == 0 {
	}
}

// The winner gives up: the request that waited for it creates instead.
func TestRaceWinnerRollsBack(t *testing.T) {
	t.Parallel()
	written := make(chan struct{})
	var once atomic.Bool
	r := start(t, Options{OnPoint: func(_ context.Context, at Point, _ Call) {
		if at == BeforeCommit && once.CompareAndSwap(false, true) {
			close(written)
			panic(http.ErrAbortHandler) // rolls back
		}
	}})
	first := make(chan reply, 1)
	go func() { first <- r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", "k") }()
	<-written
	r.expect(r.post("/charges", "k", order, ""), 201, "replayed", false)
	if got := <-first; got.err == nil {
		t.Errorf("the aborted request was answered: %d", got.status)
	}
	r.counts("k", 2, 1)
}

// Many at once, in no order: one creates, all know the same id.
func TestRaceOfMany(t *testing.T) {
	t.Parallel()
	r := start(t, Options{})
	const n = 30
	replies := make([]reply, n)
	var group sync.WaitGroup
	for i := range replies {
		group.Go(func() {
			replies[i] = r.send(t.Context(), http.MethodPost, "/charges", order, "Idempotency-Key", "order_18452")
		})
	}
	group.Wait()
	created, ids := 0, map[any]bool{}
	for _, got := range replies {
		if got.status == http.StatusCreated {
			created++
		} else if got.status != http.StatusOK {
			t.Errorf("status %d: %s, %v", got.status, got.text, got.err)
		}
		ids[got.fields["charge_id"]] = true
	}
	if created != 1 || len(ids) != 1 {
		t.Errorf("%d times 201 and %d ids, want 1 and 1", created, len(ids))
	}
	r.counts("order_18452", n, 1)
}

// Points come in their order, and each tells what is known by then.
func TestPoints(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var points []Point
	var calls []Call
	r := start(t, Options{OnPoint: func(_ context.Context, at Point, call Call) {
		mu.Lock()
		defer mu.Unlock()
		points, calls = append(points, at), append(calls, call)
	}})
	seen := func() ([]Point, []Call) {
		mu.Lock()
		defer mu.Unlock()
		p, c := points, calls
		points, calls = nil, nil
		return p, c
	}
	// The next request is served only after the points of the one before: Answered may come after its answer.
	r.client.Transport = &http.Transport{MaxConnsPerHost: 1}
	defer r.client.CloseIdleConnections()

	id := r.post("/charges", "order_18452", order, "").field("charge_id")
	r.get("/stats")
	p, c := seen()
	wantPoints(t, p, Received, BeforeCommit, AfterCommit, Answered)
	want := Call{Method: "POST", Path: "/charges", Key: "order_18452", OrderID: "18452",
		UserAgent: "Go-http-client/1.1"} // what net/http sends by itself
	if c[0] != want {
		t.Errorf("at Received %+v", c[0])
	}
	want.ExternalID = id
	if c[2] != want {
		t.Errorf("at AfterCommit %+v", c[2])
	}
	want.Status = 201
	if c[3] != want {
		t.Errorf("at Answered %+v", c[3])
	}

	r.post("/charges", "order_18452", order, "")
	r.get("/stats")
	p, c = seen()
	wantPoints(t, p, Received, BeforeCommit, AfterCommit, Answered)
	if !c[1].Replayed || c[1].ExternalID != id || c[3].Status != 200 {
		t.Errorf("a replay passes %+v", c)
	}

	r.post("/reports", "report-task-42", monthly, "status=503/before")
	r.get("/reports?idempotency_key=x")
	r.post("/reports", "", "{", "")
	r.get("/stats")
	p, c = seen()
	wantPoints(t, p, Received, Answered, Received, Answered, Answered)
	if c[0].TaskID != "42" || c[2].Key != "x" || c[4].Status != 400 {
		t.Errorf("calls are %+v", c)
	}
}

func wantPoints(t *testing.T, got []Point, want ...Point) {
	t.Helper()
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i] == want[i]
	}
	if !same {
		t.Fatalf("points %v, want %v", got, want)
	}
}

// L4: the provider commits, the client stops waiting, the retry with the same key finds the effect.
func TestClientGivesUpAfterCommit(t *testing.T) {
	t.Parallel()
	ctx, giveUp := context.WithCancel(t.Context())
	var once sync.Once
	r := start(t, Options{OnPoint: func(_ context.Context, at Point, _ Call) {
		if at == AfterCommit {
			once.Do(giveUp)
		}
	}})
	got := r.send(ctx, http.MethodPost, "/reports", monthly, "Idempotency-Key", "k", "Settle-Fault", "delay-after=1h")
	if !errors.Is(got.err, context.Canceled) {
		t.Fatalf("the client got %d, %v", got.status, got.err)
	}
	r.counts("k", 1, 1)
	found := r.get("/reports?idempotency_key=k")
	r.expect(r.post("/reports", "k", monthly, ""), 200, "replayed", true, "report_id", found.fields["report_id"])
	r.counts("k", 2, 1)
}

// D-28: the effect comes although the client is long gone.
func TestClientGivesUpBeforeEffect(t *testing.T) {
	t.Parallel()
	ctx, giveUp := context.WithCancel(t.Context())
	var once sync.Once
	gone, done, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := start(t, Options{OnPoint: func(work context.Context, at Point, _ Call) {
		switch at {
		case Received:
			giveUp()
			<-gone
		case AfterCommit:
			close(done)
			if work.Err() != nil {
				t.Error("the work ended with the client")
			}
		case Answered:
			once.Do(func() { close(over) })
		case BeforeCommit:
		}
	}})
	got := r.send(ctx, http.MethodPost, "/charges", order, "Idempotency-Key", "k", "Settle-Fault", "delay-before=100ms")
	if !errors.Is(got.err, context.Canceled) {
		t.Fatalf("the client got %d, %v", got.status, got.err)
	}
	r.counts("k", 1, 0)
	close(gone)
	select {
	case <-done:
	case <-over: // the work was dropped with the client; the counts say so
	}
	r.counts("k", 1, 1)
	r.expect(r.get("/charges?idempotency_key=k"), 200, "status", "succeeded")
}
