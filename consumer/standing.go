package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// standing is what stream and consumer together say about the messages of one subject, or of those that a filter lets
// through. The server names only those that
// were given up in an advisory, once; but it counts all messages of a subject, those not delivered yet, and those under way.
// What is in none of these counts was given up.
type standing struct {
	subject string
	stored  uint64 // messages of the subject in the stream
	info    *jetstream.ConsumerInfo
}

// readings is how often the counts are read. They come from two requests, and messages are settled in between; what was
// given up is there each time.
const readings = 3

// standingOf reads the counts, several times if they do not agree at once, and returns those with the fewest messages given
// up.
func standingOf(ctx context.Context, stream jetstream.Stream, consumer, subject string) (best standing, err error) {
	cons, err := stream.Consumer(ctx, consumer)
	if err != nil {
		return best, fmt.Errorf("consumer %s: %w", consumer, err)
	}
	for n := range readings {
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return best, fmt.Errorf("stream %s: %w", jobStream, err)
		}
		s := standing{subject: subject}
		for _, n := range info.State.Subjects {
			s.stored += n
		}
		if s.info, err = cons.Info(ctx); err != nil {
			return best, fmt.Errorf("consumer %s: %w", consumer, err)
		}
		if n == 0 || s.givenUp() < best.givenUp() {
			best = s
		}
		if best.givenUp() == 0 {
			break
		}
	}
	return best, nil
}

// givenUp is how many messages the broker delivers to nobody any more.
func (s standing) givenUp() uint64 {
	known := s.info.NumPending + uint64(s.info.NumAckPending)
	if s.stored <= known {
		return 0
	}
	return s.stored - known
}

// sureThrough is the sequence up to which a message that is still there can only have been given up: nothing at or below
// the ack floor is under way, nor anything that was delivered if nothing is under way at all.
func (s standing) sureThrough() uint64 {
	if s.info.NumAckPending == 0 {
		return s.info.Delivered.Stream
	}
	return min(s.info.AckFloor.Stream, s.info.Delivered.Stream)
}

// walk calls f for the messages that are still there, behind one sequence and up to another, until f returns false.
func (s standing) walk(ctx context.Context, stream jetstream.Stream, after, through uint64, f func(*jetstream.RawStreamMsg) bool) error {
	for next := after + 1; next <= through; {
		m, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(s.subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("read message %d of %s: %w", next, jobStream, err)
		case m.Sequence > through || !f(m):
			return nil
		}
		next = m.Sequence + 1
	}
	return nil
}
