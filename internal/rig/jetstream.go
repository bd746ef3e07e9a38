package rig

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// Standing is how a consumer stands, as the server tells it.
type Standing struct {
	Undelivered int // messages that were never delivered
	AckPending  int // delivered and not settled, delayed naks included
	Redelivered int // of these, delivered more than once
}

// ConsumerStanding asks the server about a consumer. It fails the test if there is none.
func ConsumerStanding(t testing.TB, js jetstream.JetStream, stream, consumer string) Standing {
	t.Helper()
	c, err := js.Consumer(t.Context(), stream, consumer)
	if err != nil {
		t.Fatalf("look at consumer %s: %v", consumer, err)
	}
	info := c.CachedInfo() // fetched by the call above
	return Standing{
		Undelivered: int(info.NumPending),
		AckPending:  info.NumAckPending,
		Redelivered: info.NumRedelivered,
	}
}

// StreamMessages is the number of messages that a stream holds. On a work queue that is what was never settled.
func StreamMessages(t testing.TB, js jetstream.JetStream, stream string) int {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatalf("look at stream %s: %v", stream, err)
	}
	return int(s.CachedInfo().State.Msgs)
}
