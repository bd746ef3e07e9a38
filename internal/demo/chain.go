package demo

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// Chain is a charge and what follows from it: the event that tells others, and the receipt of the order. Each link was
// written in the transaction of the one before, and must be there once.
type Chain struct {
	Charges  int `json:"charges"`  // in the provider's table
	Events   int `json:"events"`   // in the stream of events
	Receipts int `json:"receipts"` // in shop.receipts, for the charge that the order was paid with
}

const (
	eventStream  = "EVENTS"
	chargedEvent = "events.payment.charged"
	eventPage    = 256
)

// receipts are the receipts of each order that are for its payment.
const receipts = `select r.order_id, count(*)::int from shop.receipts r join shop.payments p using (order_id, charge_id) group by 1`

// chains are the links of each order that has one.
func (s *stage) chains(ctx context.Context, done map[effectOf]int) (map[string]Chain, error) {
	all := map[string]Chain{}
	for of, n := range done {
		if of.kind == chargeKind {
			all[of.id] = Chain{Charges: n}
		}
	}
	rows, err := s.tasks.Query(ctx, receipts)
	if err != nil {
		return nil, err
	}
	var (
		order string
		n     int
	)
	if _, err := pgx.ForEachRow(rows, []any{&order, &n}, func() error {
		c := all[order]
		c.Receipts = n
		all[order] = c
		return nil
	}); err != nil {
		return nil, err
	}
	return all, s.eachEvent(ctx, func(order string) {
		c := all[order]
		c.Events++
		all[order] = c
	})
}

// eachEvent reads the orders of all events that tell of a charge.
func (s *stage) eachEvent(ctx context.Context, told func(order string)) error {
	stream, err := s.js.Stream(ctx, eventStream)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chargedEvent))
	if err != nil {
		return err
	}
	events, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{chargedEvent}})
	if err != nil {
		return err
	}
	for left := int(info.State.Subjects[chargedEvent]); left > 0; { //nolint:gosec // as many as charges
		page, err := events.Fetch(min(left, eventPage))
		if err != nil {
			return err
		}
		before := left
		for m := range page.Messages() {
			var event struct {
				Order string `json:"order_id"`
			}
			if err := json.Unmarshal(m.Data(), &event); err != nil {
				return fmt.Errorf("event %s: %w", chargedEvent, err)
			}
			told(event.Order)
			left--
		}
		if page.Error() != nil || left == before {
			return fmt.Errorf("%d events not read: %w", left, page.Error())
		}
	}
	return nil
}

// chainOf counts the links of all orders.
func chainOf(all map[string]Chain) (sum Chain) {
	for _, c := range all {
		sum.Charges, sum.Events, sum.Receipts = sum.Charges+c.Charges, sum.Events+c.Events, sum.Receipts+c.Receipts
	}
	return sum
}

// brokenChains are the orders of which a link is missing or is there twice. That there is one charge is proved elsewhere.
func brokenChains(all map[string]Chain) (faults []fault) {
	for order, c := range all {
		if c.Charges == 0 || c.Events != 1 || c.Receipts != 1 {
			faults = append(faults, fault{"order_" + order, fmt.Sprintf("has a broken chain: charges %d, events %d, receipts %d",
				c.Charges, c.Events, c.Receipts)})
		}
	}
	return faults
}
