package consumertest_test

import (
	"testing"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/consumer/consumertest"
)

// The whole test of a kind. The fake counts what happened by the order, whatever key it came with.
func ExampleBreak() {
	_ = func(t *testing.T) { // func TestBookParcel(t *testing.T)
		consumertest.Break(t, consumertest.Subject[parcel, label]{
			Kind: func(url string) consumer.Kind[parcel, label] { return bookParcel(newClient(url)) },
			Provider: func() consumertest.Provider[parcel] {
				fake := newCourier()
				return consumertest.Provider[parcel]{Handler: fake, Effects: fake.booked}
			},
			Jobs: []parcel{{Order: "1", Grams: 500}, {Order: "2", Grams: 700}},
		})
	}
}
