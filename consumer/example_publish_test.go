package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
)

// order publishes the charge of an order until it is known that the stream has it. Publishing again is safe: the key
// is the same, so there is still one charge.
func order(ctx context.Context, js jetstream.JetStream, api *Client, j Job) (consumer.Publication, error) {
	for {
		p, err := consumer.Publish(ctx, js, charge(api), j)
		var refused *consumer.InvalidJobError
		switch {
		case p.Outcome != consumer.PublishUnknown:
			return p, nil // stored, or a duplicate of one that is
		case errors.As(err, &refused):
			return p, err // no worker would take this job, now or later
		}
		select {
		case <-ctx.Done():
			return p, err // it may be stored
		case <-time.After(time.Second):
		}
	}
}

// A job is published with its key and message id made from the kind.
func ExamplePublish() {
	var (
		ctx = context.Background()
		js  jetstream.JetStream // as in the example of New
		api = &Client{BaseURL: "https://pay.example"}
	)
	p, err := order(ctx, js, api, Job{OrderID: "18452", Amount: 1250})
	fmt.Println(p.Outcome, p.Key, p.Sequence, err)
}
