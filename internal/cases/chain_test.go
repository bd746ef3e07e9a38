//go:build chain

package cases

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/rig"
)

// Ten thousand charges through a few processes that are killed again and again. In the end there is one charge, one
// event and one receipt of each order, and nothing is left anywhere.
const (
	chainCharges = 10_000
	chainWorkers = 3
	chainKills   = 40
)

// chainSeed chooses who is killed when. SETTLE_CHAIN_SEED repeats a choice; what the process is at by then, nobody can.
func chainSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SETTLE_CHAIN_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SETTLE_CHAIN_SEED: %v", err)
	}
	return seed
}

func TestTenThousandCharges(t *testing.T) {
	seed := chainSeed(t)
	t.Logf("SETTLE_CHAIN_SEED=%d", seed)
	s := newChain(t, 0)
	c := &s.settings.Config
	c.Slots, c.Lease, c.AckWait = 32, 2*time.Second, 2*time.Second
	c.Policy.MaxFailures = 1000 // nobody is parked for having been killed often
	c.NoRecovery, c.RecoverEvery = false, time.Second
	s.settings.Quiet = true
	var orders []string
	for i := range chainCharges {
		orders = append(orders, strconv.Itoa(i))
	}
	s.publishAll(orders)
	began := time.Now()
	crew, kills := s.slaughter(rand.New(rand.NewPCG(seed, 0)))
	s.awaitReceipts(chainCharges)
	s.awaitOutbox()
	s.awaitSettled()
	took := time.Since(began)
	s.onceEach(1, orders...)
	s.noneOpen()
	for _, w := range crew {
		w.Signal(syscall.SIGTERM)
		if e := w.Wait(soon); e != (rig.Exit{}) {
			t.Errorf("worker %d ended with %s", w.PID(), e)
		}
	}
	if kills < chainKills {
		t.Errorf("%d kills, want %d", kills, chainKills)
	}
	var repeated, asked int
	s.scan(`select count(*) filter (where attempts > 1), count(*) filter (where failures > 0) from settle.tasks`, nil, &repeated, &asked)
	if repeated == 0 {
		t.Error("no task had a second attempt: the kills missed the work")
	}
	t.Logf("%d tasks had a second attempt, %d of them after a request may have left", repeated, asked)
	t.Logf("%d charges, events and receipts in %s, with %d kills; SETTLE_CHAIN_SEED=%d", chainCharges, took.Round(time.Second), kills, seed)
}

// publishAll adds the charges of all orders to the stream.
func (s *stage) publishAll(orders []string) {
	s.t.Helper()
	var answers []jetstream.PubAckFuture
	for _, o := range orders {
		m := &nats.Msg{Subject: "jobs." + chargeKind, Data: []byte(charge(o).body)}
		answer, err := s.js.PublishMsgAsync(m, jetstream.WithMsgID(o), jetstream.WithStallWait(soon))
		if err != nil {
			s.t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	for _, a := range answers {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			s.t.Fatal(err)
		}
	}
}

// slaughter starts workers and kills one after the other, a new one in the place of each, at random moments of the whole
// run: by how much is done, so that a fast machine sees as many kills as a slow one. It returns those that live.
func (s *stage) slaughter(random *rand.Rand) (crew []*rig.Worker, kills int) {
	s.t.Helper()
	for range chainWorkers {
		crew = append(crew, s.startChain())
	}
	var moments []int
	for range chainKills {
		moments = append(moments, random.IntN(chainCharges*95/100))
	}
	slices.Sort(moments)
	for _, moment := range moments {
		s.awaitReceipts(moment)
		<-time.After(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		victim := random.IntN(len(crew))
		crew[victim].Signal(syscall.SIGKILL)
		if crew[victim].Wait(soon).Killed() {
			kills++
		}
		crew[victim] = s.startChain()
	}
	return crew, kills
}

// awaitReceipts waits until so many receipts are written.
func (s *stage) awaitReceipts(want int) {
	s.t.Helper()
	rig.Eventually(s.t, 2*time.Minute, strconv.Itoa(want)+" receipts", func() bool {
		return query[int](s, `select count(*)::int from shop.receipts`)[0] >= want
	})
}
