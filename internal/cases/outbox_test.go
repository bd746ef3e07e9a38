package cases

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// The two links that follow a charge, in the order in which they are emitted.
const (
	chargedEvent = "events.payment.charged"
	receiptJob   = "jobs.receipt.send"
)

// newChain is a stage for charges with what follows them. A window other than 0 is the duplicates window of both streams.
func newChain(t *testing.T, window time.Duration) *stage {
	t.Helper()
	s := newStage(t)
	if window == 0 {
		return s
	}
	for _, name := range []string{"JOBS", "EVENTS"} {
		stream, err := s.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		c.Duplicates = window
		if _, err := s.js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// startChain starts a process that charges, and sends receipts.
func (s *stage) startChain() *rig.Worker {
	s.t.Helper()
	return s.start(rig.WorkerOptions{Name: "chain"})
}

// receipt is the follow-up of a charge.
func receipt(order string) job { return job{kind: "receipt.send", key: "receipt_" + order} }

// waiting are the subjects of what waits in the outbox, in its order.
func (s *stage) waiting() []string {
	s.t.Helper()
	return query[string](s, `select subject from settle.outbox order by id`)
}

// awaitOutbox waits until everything that was committed is published.
func (s *stage) awaitOutbox() {
	s.t.Helper()
	rig.Eventually(s.t, soon, "the outbox is empty", func() bool {
		state, err := s.store.OutboxState(s.t.Context())
		return err == nil && state.Rows == 0
	})
}

// event is a message of the stream EVENTS.
type event struct {
	id, key, subject, body string
	stored                 time.Time
}

// emitted reads all of the stream EVENTS, oldest first.
func (s *stage) emitted() (events []event) {
	s.t.Helper()
	left := rig.StreamMessages(s.t, s.js, "EVENTS")
	reader, err := s.js.OrderedConsumer(s.t.Context(), "EVENTS", jetstream.OrderedConsumerConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	for left > 0 {
		batch, err := reader.Fetch(min(left, 500), jetstream.FetchMaxWait(soon))
		if err != nil {
			s.t.Fatal(err)
		}
		for m := range batch.Messages() {
			at, err := m.Metadata()
			if err != nil {
				s.t.Fatal(err)
			}
			h := m.Headers()
			events = append(events, event{h.Get("Nats-Msg-Id"), h.Get("Settle-Key"), m.Subject(), string(m.Data()), at.Timestamp})
			left--
		}
		if batch.Error() != nil {
			s.t.Fatal(batch.Error())
		}
	}
	return events
}

// chained waits until the chains of these orders are at their end and nothing is under way any more, and checks them.
func (s *stage) chained(copies int, orders ...string) {
	s.t.Helper()
	for _, o := range orders {
		s.awaitStatus(charge(o), idemstore.Finished)
		s.awaitStatus(receipt(o), idemstore.Finished)
	}
	s.awaitOutbox()
	s.awaitSettled()
	s.onceEach(copies, orders...)
}

// onceEach checks that each link of the chains of these orders happened once, and that there are no others: one charge at
// the provider, its event, and one receipt for that charge. Copies are how often the event stands in its stream: all of
// them are one by their id.
func (s *stage) onceEach(copies int, orders ...string) {
	s.t.Helper()
	charges := s.pairs(`select idempotency_key, charge_id from provider.charges where status = 'succeeded'`)
	receipts := s.pairs(`select 'order_' || order_id, charge_id from shop.receipts`)
	events := map[string][]event{}
	for _, e := range s.emitted() {
		events[e.key] = append(events[e.key], e)
	}
	if len(charges) != len(orders) || len(receipts) != len(orders) || len(events) != len(orders) {
		s.t.Errorf("%d orders have charges, %d receipts, %d events; want %d of each", len(charges), len(receipts), len(events), len(orders))
	}
	for _, o := range orders {
		key := charge(o).key
		c := charges[key]
		if len(c) != 1 || !slices.Equal(receipts[key], c) {
			s.t.Errorf("%s: charges %q, receipts for %q; want one charge, and one receipt for it", key, c, receipts[key])
			continue
		}
		s.announced(key, c[0], copies, events[key])
	}
}

// announced checks the events of one charge.
func (s *stage) announced(key, chargeID string, copies int, events []event) {
	s.t.Helper()
	if len(events) != copies {
		s.t.Errorf("%s: %d events, want %d", key, len(events), copies)
	}
	for _, e := range events {
		var told struct {
			ChargeID string `json:"charge_id"`
		}
		if err := json.Unmarshal([]byte(e.body), &told); err != nil || told.ChargeID != chargeID || e.subject != chargedEvent {
			s.t.Errorf("%s: event %s %s (%v) of charge %s", key, e.subject, e.body, err, chargeID)
		}
		if e.id == "" || e.id != events[0].id {
			s.t.Errorf("%s: an event with the id %q, and one with %q", key, e.id, events[0].id)
		}
	}
}

// pairs collects the second column of a query by its first.
func (s *stage) pairs(sql string) map[string][]string {
	s.t.Helper()
	out := map[string][]string{}
	for _, pair := range query[[]string](s, `select array[a, b] from (`+sql+`) as x (a, b)`) {
		out[pair[0]] = append(out[pair[0]], pair[1])
	}
	return out
}

// inOrder checks that the event of an order was in its stream before the job of its receipt was.
func (s *stage) inOrder(order string) {
	s.t.Helper()
	task, _ := s.find(receipt(order))
	if events := s.emitted(); len(events) == 0 || !events[0].stored.Before(task.Origin.Stored) {
		s.t.Errorf("order %s: %d events; the job that follows them was stored at %s", order, len(events), task.Origin.Stored)
	}
}

// publishing is a publication to one subject.
func publishing(subject string) func(rig.Publication) bool {
	return func(p rig.Publication) bool { return p.Subject == subject }
}

// onPublish kills around a publication on the wire: right before it, or between it and the stream's confirmation.
func onPublish(subject string, arm func(*rig.NATSProxy, rig.PublicationCut) *rig.Shot) aim {
	return aim{shoot: func(f front, kill func()) <-chan struct{} {
		return arm(f.nats, rig.PublicationCut{Match: publishing(subject), Do: kill}).Fired()
	}}
}

// onDelete kills around the n-th COMMIT that takes published rows out of the outbox.
func onDelete(n int, arm func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot) aim {
	return aim{shoot: func(f front, kill func()) <-chan struct{} {
		return arm(f.postgres, rig.CommitCut{Containing: "settle:delete-outbox", Skip: n - 1, Do: kill}).Fired()
	}}
}
