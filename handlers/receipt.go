package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

const (
	receiptKind   = "receipt.send"
	receiptPrefix = "receipt_"
)

// addReceipt gives an order its receipt. No row: it has one.
const addReceipt = `
insert into shop.receipts (order_id, charge_id, task_id) values ($1, $2, $3)
on conflict (order_id) do nothing returning charge_id`

// receiptOf reads the charge that an order's receipt is for.
const receiptOf = `select charge_id from shop.receipts where order_id = $1`

// ReceiptOptions are the settings of the kind receipt.send.
type ReceiptOptions struct {
	// Policy overrides Config.Policy; zero fields do not.
	Policy consumer.Policy
}

// ReceiptJob asks for the receipt of one charge. It is the follow-up that payment.charge emits with Receipts.
type ReceiptJob struct {
	OrderID  consumer.ID `json:"order_id"`  // string or integer
	ChargeID string      `json:"charge_id"` // required
}

// ReceiptResult is what is stored of a receipt, and replayed to every repeat.
type ReceiptResult struct {
	OrderID  string `json:"order_id"`
	ChargeID string `json:"charge_id"`
}

// Receipt declares receipt.send: an order gets one receipt, however often it is asked for. Its messages come from an
// outbox, at least once each: the key makes the repeats harmless.
func Receipt(o ReceiptOptions) consumer.LocalKind[ReceiptJob, ReceiptResult] {
	return consumer.LocalKind[ReceiptJob, ReceiptResult]{
		Name: receiptKind,
		Contract: consumer.Contract{
			Effect:    "none outside: the order's receipt is written",
			Rows:      "shop.receipts (one row per order), in the transaction of the result",
			Success:   "the order has a receipt for its charge",
			SecondRun: "returns the stored receipt",
			StopRule:  "a person decides about a receipt for another charge than the one that the order has a receipt for",
		},
		Policy:  o.Policy,
		Content: consumer.Content{IDs: []string{"order_id"}},
		Key:     ReceiptJob.key,
		Refs: func(j ReceiptJob) consumer.Refs {
			return consumer.Refs{"order": textOf(j.OrderID), "charge": j.ChargeID}
		},
		Apply: applyReceipt,
	}
}

func (j ReceiptJob) key() (string, error) {
	order, err := j.OrderID.Text()
	if err != nil {
		return "", fmt.Errorf("order_id: %w", err)
	}
	if !usableID(j.ChargeID) {
		return "", errors.New("charge_id: absent, blank, too long, or with control characters")
	}
	return receiptPrefix + order, nil
}

func applyReceipt(ctx context.Context, tx pgx.Tx, a *consumer.Attempt[ReceiptJob]) (ReceiptResult, error) {
	r := ReceiptResult{OrderID: textOf(a.Job.OrderID)}
	err := tx.QueryRow(ctx, addReceipt, r.OrderID, a.Job.ChargeID, a.TaskID).Scan(&r.ChargeID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = tx.QueryRow(ctx, receiptOf, r.OrderID).Scan(&r.ChargeID)
	}
	if err != nil {
		return r, fmt.Errorf("add receipt: %w", err)
	}
	if r.ChargeID != a.Job.ChargeID {
		return r, consumer.Conflict(errors.New("the order has a receipt for another charge"))
	}
	return r, nil
}
