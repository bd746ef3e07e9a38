package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
)

// Sabotage is a rule that a run breaks on purpose.
type Sabotage string

// The sabotages.
const (
	AckFirst      Sabotage = "ack-first"           // messages are acked when they arrive, not after the commit; no recovery
	NewKey        Sabotage = "new-key-per-attempt" // the provider key is made of the attempt
	NoFence       Sabotage = "no-fence"            // neither the save's fence nor the send gate
	RetryTimeouts Sabotage = "retry-on-timeout"    // a timeout counts as "not done" and is sent again at once
)

// Sabotages are all of them.
func Sabotages() []Sabotage { return []Sabotage{AckFirst, NewKey, NoFence, RetryTimeouts} }

// providerIgnoresKeys: a provider that keeps keys would hide these two.
func (s Sabotage) providerIgnoresKeys() bool { return s == NoFence || s == RetryTimeouts }

// What the demo tells its workers, by environment.
const (
	breakVariable  = "SETTLE_DEMO_SABOTAGE"
	freezeVariable = "SETTLE_DEMO_FREEZE"
)

// Kind prepares a kind for a worker of the demo: it freezes the process before the first send of one key, and
// breaks the rule of the run's sabotage. All of it happens around the handler; the engine has no switch for it.
func Kind[J, R any](k consumer.Kind[J, R]) consumer.Kind[J, R] {
	rule, frozen := Sabotage(os.Getenv(breakVariable)), os.Getenv(freezeVariable)
	perform, lookup := k.Perform, k.Lookup
	k.Perform = func(ctx context.Context, a *consumer.Attempt[J]) (R, error) {
		if a.Key == frozen && a.Number == 1 {
			freeze()
		}
		return misbehave(ctx, rule, attemptKey(rule, a), perform)
	}
	k.Lookup = func(ctx context.Context, a *consumer.Attempt[J]) (R, consumer.Verdict, error) {
		return lookup(ctx, attemptKey(rule, a))
	}
	return k
}

func attemptKey[J any](rule Sabotage, a *consumer.Attempt[J]) *consumer.Attempt[J] {
	if rule == NewKey {
		a.ProviderKey = fmt.Sprintf("%s-attempt-%d", a.ProviderKey, a.Number)
	}
	return a
}

func misbehave[J, R any](ctx context.Context, rule Sabotage, a *consumer.Attempt[J],
	perform func(context.Context, *consumer.Attempt[J]) (R, error)) (R, error) {
	switch rule {
	case NoFence:
		ctx = withoutGate(ctx)
	case RetryTimeouts:
		out, err := perform(ctx, a)
		if err == nil || !isTimeout(err) {
			return out, err
		}
	case AckFirst, NewKey:
	}
	return perform(ctx, a)
}

// withoutGate drops the engine's context with all it carries: the gate, the deadline, the cancellation.
func withoutGate(context.Context) context.Context { return context.Background() }

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// JetStream prepares the worker's connection: under ack-first it acks each message on arrival.
func JetStream(js jetstream.JetStream) jetstream.JetStream {
	if Sabotage(os.Getenv(breakVariable)) == AckFirst {
		return ackFirst{js}
	}
	return js
}

type ackFirst struct{ jetstream.JetStream }

func (j ackFirst) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	c, err := j.JetStream.Consumer(ctx, stream, name)
	return ackFirstConsumer{c}, err
}

func (j ackFirst) CreateConsumer(ctx context.Context, stream string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	made, err := j.JetStream.CreateConsumer(ctx, stream, c)
	return ackFirstConsumer{made}, err
}

type ackFirstConsumer struct{ jetstream.Consumer }

func (c ackFirstConsumer) Fetch(n int, o ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	batch, err := c.Consumer.Fetch(n, o...)
	if err != nil {
		return nil, err
	}
	return ackFirstBatch{batch}, nil
}

type ackFirstBatch struct{ jetstream.MessageBatch }

func (b ackFirstBatch) Messages() <-chan jetstream.Msg {
	out := make(chan jetstream.Msg)
	go func() {
		defer close(out)
		for m := range b.MessageBatch.Messages() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = m.DoubleAck(ctx) // the rule that is broken
			cancel()
			out <- m
		}
	}()
	return out
}

// Config prepares the worker's engine: under ack-first it does not recover. Recovery would bring back every job whose claim
// had been committed, and with them nearly all that the broken rule loses.
func Config(c consumer.Config) consumer.Config {
	c.NoRecovery = Sabotage(os.Getenv(breakVariable)) == AckFirst
	return c
}

// ParseSabotage finds a sabotage by its name.
func ParseSabotage(name string) (Sabotage, error) {
	var names []string
	for _, s := range Sabotages() {
		if string(s) == name {
			return s, nil
		}
		names = append(names, string(s))
	}
	return "", fmt.Errorf("unknown sabotage %q: use one of %s", name, strings.Join(names, ", "))
}
