package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

// The statements of payment.charge on the shop's tables. Amounts travel as text and become numeric in the
// database, so that no digit is lost on the way.
const (
	// insertOrder adds an order that the shop does not know. 0 rows: it knows it.
	insertOrder = `
insert into shop.orders (order_id, customer_id, amount, currency)
values ($1, $2, $3::text::numeric, $4)
on conflict (order_id) do nothing`

	// compareOrder reads an order beside what the job says about it.
	compareOrder = `
select status, coalesce(charge_id, ''), amount = $3::text::numeric, currency = $4, customer_id = $2
from shop.orders where order_id = $1`

	// markPaid books the charge on the order, also if the order was removed meanwhile. A paid order keeps its charge.
	markPaid = `
insert into shop.orders as o (order_id, customer_id, amount, currency, status, charge_id)
values ($1, $2, $3::text::numeric, $4, 'paid', nullif($5, ''))
on conflict (order_id) do update
set status = 'paid', charge_id = excluded.charge_id, updated_at = clock_timestamp()
where o.status <> 'paid'`

	// addPayment needs the order's row, so it comes after markPaid.
	addPayment = `
insert into shop.payments (charge_id, order_id, amount, currency, task_id)
values ($1, $2, $3::text::numeric, $4, $5)
on conflict (charge_id) do nothing`

	// markDeclined makes no order: one that the shop does not know was never declined.
	markDeclined = `
update shop.orders set status = 'declined', updated_at = clock_timestamp()
where order_id = $1 and status = 'pending'`
)

// check compares the job with the order before anything is sent. An order that is paid already is done.
func (c charge) check(ctx context.Context, db consumer.DB, j ChargeJob) (ChargeResult, bool, error) {
	if c.createOrders {
		tag, err := db.Exec(ctx, insertOrder, j.order(), j.CustomerID, string(j.Amount), j.Currency)
		if err != nil {
			return ChargeResult{}, false, fmt.Errorf("create order: %w", err)
		}
		if tag.RowsAffected() == 1 {
			return ChargeResult{}, false, nil
		}
	}
	var (
		status, chargeID           string
		amount, currency, customer bool // the same in both
	)
	err := db.QueryRow(ctx, compareOrder, j.order(), j.CustomerID, string(j.Amount), j.Currency).
		Scan(&status, &chargeID, &amount, &currency, &customer)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ChargeResult{}, false, consumer.Conflict(errors.New("order unknown"))
	case err != nil:
		return ChargeResult{}, false, fmt.Errorf("read order: %w", err)
	case !amount:
		return ChargeResult{}, false, consumer.Conflict(errors.New("amount differs from the order"))
	case !currency:
		return ChargeResult{}, false, consumer.Conflict(errors.New("currency differs from the order"))
	case !customer:
		return ChargeResult{}, false, consumer.Conflict(errors.New("customer differs from the order"))
	case status == "paid":
		return ChargeResult{ChargeID: chargeID, Status: charges.done}, true, nil
	}
	return ChargeResult{}, false, nil
}

// booking is the part of consumer.Writes that bookCharge needs.
type booking interface {
	Exec(sql string, args ...any)
	Emit(subject, key string, payload any)
}

// bookCharge books a final outcome. An order that was found paid is booked already, by whoever charged it.
func bookCharge(w booking, f consumer.Final[ChargeJob, ChargeResult]) {
	j, order := f.Job, f.Job.order()
	switch {
	case f.Refused != "":
		w.Exec(markDeclined, order)
	case f.Source != consumer.Checked:
		w.Exec(markPaid, order, j.CustomerID, string(j.Amount), j.Currency, f.ExternalID)
		if f.ExternalID != "" { // a person may know that it was paid, and not by which charge
			w.Exec(addPayment, f.ExternalID, order, string(j.Amount), j.Currency, f.TaskID)
		}
		w.Emit(eventCharged, f.Key, ChargeEvent{order, f.ExternalID, j.Amount, j.Currency})
	}
}
