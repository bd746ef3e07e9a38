package consumer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// PublishTx puts one job into the outbox, in the caller's transaction: rolled back, nothing is published; committed, it
// is published even if the caller dies, by whichever worker looks first, usually within a second. It closes the gap of
// a publisher that commits its own rows and then crashes before it publishes.
//
// It blocks for one round trip, and keeps nothing beyond tx. The error is an *InvalidJobError for a job that no worker would
// accept; nothing was queued then, and the transaction can go on. Any other error is the database's.
//
// The same can be had from SQL: select settle.enqueue('payment.charge', '{"order_id": …}').
func PublishTx[J any](ctx context.Context, tx pgx.Tx, kind JobOf[J], job J) error {
	body, err := json.Marshal(job)
	if err != nil {
		return unencodable(err)
	}
	d, err := kind.define()
	if err != nil {
		return err
	}
	j, err := d.read(body, maxBody)
	if err != nil {
		return refused(err)
	}
	err = idemstore.Enqueue(ctx, tx, idemstore.Enqueued{Subject: subject(d.name), Key: j.key, Payload: body, Trace: traceparent(ctx)})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}
