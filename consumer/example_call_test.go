package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
)

// Somebody waits for the charge of an order. What is not known in time is not lost: the job goes on, and the same call
// hears of it later.
func ExampleCall() {
	var (
		db  consumer.DB // the pool of the example of New; nil works, too
		js  jetstream.JetStream
		api = &Client{BaseURL: "https://pay.example"}
	)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	a, err := consumer.Call(ctx, db, js, charge(api), Job{OrderID: "18452", Amount: 1250})
	var refused *consumer.InvalidJobError
	switch {
	case errors.Is(err, consumer.ErrUnanswered):
		fmt.Println("still under way")
	case errors.Is(err, consumer.ErrFailed):
		fmt.Println("declined")
	case errors.Is(err, consumer.ErrNeedsReview):
		fmt.Println("a person decides")
	case errors.As(err, &refused):
		fmt.Println("no worker takes this job:", refused.Reason)
	case err != nil:
		fmt.Println("it may not be published; call again:", err)
	default:
		fmt.Println("charged:", a.Result.ID)
	}
}
