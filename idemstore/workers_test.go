package idemstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// crew are workers of one provider, by ascending id. Each asks for its part of a rate of 7 and of 10 flights.
type crew struct {
	bench
	ids  []uuid.UUID
	have []idemstore.Grant // by their latest answer
	busy []int             // flights that a worker has in the air, though it was granted fewer
}

func newCrew(t *testing.T, n int) *crew {
	t.Helper()
	c := &crew{bench: newBench(t), have: make([]idemstore.Grant, n), busy: make([]int, n)}
	for i := range n {
		c.ids = append(c.ids, uuid.UUID{0: byte(i + 1), 15: 1})
	}
	return c
}

func (c *crew) checkIn(t *testing.T, i int) idemstore.Grant {
	t.Helper()
	g, err := c.CheckIn(t.Context(), idemstore.CheckIn{Provider: "p", Worker: c.ids[i], Rate: 7, Flights: 10, Lease: time.Hour,
		HoldsRate: c.have[i].Rate, HoldsFlights: max(c.have[i].Flights, c.busy[i])})
	if err != nil {
		t.Fatal(err)
	}
	c.have[i] = g
	return g
}

// expire lets the time of a worker's row run out.
func (c *crew) expire(t *testing.T, i int) {
	t.Helper()
	if _, err := c.pool.Exec(t.Context(), `update settle.workers set until = clock_timestamp() where id = $1`, c.ids[i]); err != nil {
		t.Fatal(err)
	}
	c.have[i] = idemstore.Grant{}
}

// A worker that joins gets its part once the others have let go of it; one that leaves gives its part to them.
func TestCheckIn(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 3)
	for i, step := range []struct {
		what          string
		worker        int
		rate, flights int
	}{
		{"alone", 1, 7, 10},
		{"a second one finds nothing", 0, 0, 0},
		{"the first one is told to use less", 1, 3, 5},
		{"and may still be using it", 0, 0, 0},
		{"now it has said that it does not", 1, 3, 5},
		{"the second one has its part, and the remainder by its id", 0, 4, 5},
		{"a third one finds nothing", 2, 0, 0},
		{"the second one is told", 0, 3, 4},
		{"the first one is told", 1, 2, 3},
		{"both have let go", 0, 3, 4},
		{"both have let go", 1, 2, 3},
		{"the third one has its part", 2, 2, 3},
		{"nothing changes", 1, 2, 3},
	} {
		if g := c.checkIn(t, step.worker); g.Rate != step.rate || g.Flights != step.flights {
			t.Errorf("step %d, %s: %+v", i, step.what, g)
		}
	}
	c.busy[0] = 4 // still in the air when its time runs out
	c.expire(t, 0)
	if g := c.checkIn(t, 1); g.Rate != 4 || g.Flights != 5 || g.Workers != 2 {
		t.Errorf("one has vanished: %+v", g)
	}
	if g := c.checkIn(t, 0); g.Rate != 1 || g.Flights != 2 {
		t.Errorf("it is back, and is given what the others left: %+v", g)
	}
	if n := query[int](t, c.pool, `select flights from settle.workers where id = $1`, c.ids[0]); n != 4 {
		t.Errorf("the row of one with 4 requests in the air says %d", n)
	}
	if err := c.CheckOut(t.Context(), c.ids[2]); err != nil {
		t.Fatal(err)
	}
	if rest := query[float64](t, c.pool, `select extract(epoch from until - clock_timestamp())::float8 from settle.workers where id = $1`, c.ids[2]); rest > 1 || rest < -30 {
		t.Errorf("one that has left keeps its part for %v s", rest)
	}
}

// Other providers, and kinds of cap that are not set, are nobody's concern.
func TestCheckInApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, provider := range []string{"a", "b"} {
		g, err := b.CheckIn(t.Context(), idemstore.CheckIn{Provider: provider, Worker: uuid.New(), Flights: 1, Lease: time.Hour})
		if err != nil || g.Flights != 1 || g.Rate != 0 || g.Workers != 1 {
			t.Errorf("%s: %+v, %v", provider, g, err)
		}
	}
}

// Whatever workers do, and all at once: what their rows hold never adds up to more than the cap, and when they go on
// checking in all of it is given out.
func TestCheckInNeverExceeds(t *testing.T) {
	t.Parallel()
	const workers = 4
	c := newCrew(t, workers)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			sums := query[string](t, c.pool, `select coalesce(sum(rate), 0) || ' ' || coalesce(sum(flights), 0) from settle.workers where until > clock_timestamp()`)
			var rate, flights int
			if _, err := fmt.Sscan(sums, &rate, &flights); err != nil || rate > 7 || flights > 10 {
				t.Errorf("the rows hold a rate of %d and %d flights (%v)", rate, flights, err)
				return
			}
		}
	})
	var walking sync.WaitGroup
	for i := range workers {
		walking.Go(func() {
			for range 25 {
				if rand.IntN(5) == 0 {
					c.expire(t, i)
				}
				c.checkIn(t, i)
			}
		})
	}
	walking.Wait()
	close(over)
	watching.Wait()
	for range 3 {
		for i := range workers {
			c.checkIn(t, i)
		}
	}
	rate, flights := 0, 0
	for _, g := range c.have {
		rate, flights = rate+g.Rate, flights+g.Flights
	}
	if rate != 7 || flights != 10 {
		t.Errorf("in the end they have a rate of %d and %d flights: %+v", rate, flights, c.have)
	}
}

// Check-ins for one provider come one after the other: what an earlier one is granted is not granted again.
func TestCheckInsTakeTurns(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 2)
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended('settle.workers ' || 'p', 0))`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `insert into settle.workers (provider, id, rate, flights, until)
		values ('p', $1, 7, 10, clock_timestamp() + interval '1 hour')`, c.ids[0]); err != nil {
		t.Fatal(err)
	}
	granted := make(chan idemstore.Grant)
	go func() {
		defer close(granted)
		for { // the wait for the lock is bounded
			g, err := c.CheckIn(t.Context(), idemstore.CheckIn{Provider: "p", Worker: c.ids[1], Rate: 7, Flights: 10, Lease: time.Hour})
			if err == nil {
				granted <- g
				return
			}
			if t.Context().Err() != nil {
				return
			}
		}
	}()
	c.awaitWaiting(t, 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := <-granted; g.Rate != 0 || g.Flights != 0 || g.Workers != 2 {
		t.Errorf("granted twice: %+v", g)
	}
}
