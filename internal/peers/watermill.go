package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/bench"
)

const subscribers = 64

var watermillPeer = peer{name: "watermill", make: watermillContestant, settings: []string{
	fmt.Sprintf("v1.5.1 with watermill-nats v2.1.3 (pkg/nats, which it recommends for production): a router, %d subscribers in a queue group, each with one message at a time", subscribers),
	"its handler runs the two statements of the hand-written loop, on a pool of 64 connections; acks are confirmed (AckAsync off)",
	"the durable consumer is the one that it makes itself; no middleware, no logger",
	fmt.Sprintf("one %dth of the jobs; only those are counted that are left when its last subscriber is there", fewerBy),
}}

func watermillContestant(o bench.Options) bench.Contestant {
	c := bench.Loop("watermill", 64) // the same rows, and so the same check
	c.Label, c.Jobs = fmt.Sprintf("Watermill, %d subscribers", subscribers), fewer(o)
	c.Prepare = watermillQueue
	c.Race = watermillWork
	return c
}

// watermillQueue queues the jobs and removes their consumer: Watermill makes one of its own, and a work queue allows but one.
func watermillQueue(ctx context.Context, s *bench.Stage) error {
	if err := s.Queue(ctx); err != nil {
		return err
	}
	stream, err := s.JS.StreamNameBySubject(ctx, s.Subject())
	if err != nil {
		return err
	}
	return s.JS.DeleteConsumer(ctx, stream, s.Durable())
}

// watermillWork does not count the time in which the subscribers come one after the other, nor what they do meanwhile.
func watermillWork(ctx context.Context, s *bench.Stage) (figures []float64, err error) {
	conn, err := nats.Connect(s.JS.Conn().ConnectedUrl())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	router, err := watermillRouter(conn, s, func(m *message.Message) error {
		err := s.ByHand(m.Context(), m.Payload)
		if err != nil && working.Err() == nil {
			stop(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := router.Run(working)
		stop(errors.Join(errors.New("the router does not run any more"), err))
		ended <- err
	}()
	figures, err = watermillRate(working, s, router.Running())
	return figures, errors.Join(err, router.Close(), <-ended)
}

func watermillRouter(conn *nats.Conn, s *bench.Stage, handle message.NoPublishHandlerFunc) (*message.Router, error) {
	subscriber, err := watermillnats.NewSubscriberWithNatsConn(conn, watermillnats.SubscriberSubscriptionConfig{
		SubscribersCount: subscribers, QueueGroupPrefix: "workers", SubjectCalculator: watermillnats.DefaultSubjectCalculator,
		JetStream: watermillnats.JetStreamConfig{DurablePrefix: s.Durable(),
			SubscribeOptions: []nats.SubOpt{nats.ManualAck(), nats.AckExplicit(), nats.DeliverAll()}},
	}, nil)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err == nil {
		router.AddConsumerHandler("job", s.Subject(), subscriber, handle)
	}
	return router, err
}

// watermillRate waits until all jobs are acked: an ack removes a message of a work queue. The consumer that Watermill makes
// is not one that Stage.AwaitAcked knows.
func watermillRate(ctx context.Context, s *bench.Stage, running <-chan struct{}) ([]float64, error) {
	name, err := s.JS.StreamNameBySubject(ctx, s.Subject())
	if err != nil {
		return nil, err
	}
	stream, err := s.JS.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	stored := func(ctx context.Context) (int, error) {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(s.Subject()))
		if err != nil {
			return 0, err
		}
		return int(info.State.Subjects[s.Subject()]), nil //nolint:gosec // not so many
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-running:
	}
	began := time.Now()
	left, err := stored(ctx)
	if err != nil {
		return nil, err
	}
	if left == 0 {
		return nil, fmt.Errorf("all %d jobs were done before the last subscriber was there: take more", s.Jobs)
	}
	err = s.Await(ctx, s.Jobs, stored)
	return []float64{float64(left) / time.Since(began).Seconds()}, err
}
