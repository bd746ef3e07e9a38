package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Unrouted is a subject of the job stream whose messages no consumer is given. They stay in the stream, and nothing says
// so by itself.
type Unrouted struct {
	Subject  string
	Count    uint64
	Messages []UnroutedMessage // the oldest ones
}

// UnroutedMessage is a message that stays in the stream.
type UnroutedMessage struct {
	Sequence uint64
	StoredAt time.Time
	Size     int // of the body, in bytes
}

// FindUnrouted gives all subjects of the job stream with messages for no consumer, and of these messages up to limit. It
// only looks, in a round trip for each message. Messages come and go meanwhile, so a count may differ from what is listed.
// Without the stream JOBS the error wraps jetstream.ErrStreamNotFound.
func FindUnrouted(ctx context.Context, js jetstream.JetStream, limit int) ([]Unrouted, error) {
	stream, err := js.Stream(ctx, jobStream)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", jobStream, err)
	}
	found, err := unroutedOf(ctx, stream, limit)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", jobStream, err)
	}
	return found, nil
}

// lookForStrays raises an alert about messages that have been there for long and that no consumer is given: nobody does
// those jobs, and nobody would notice.
func (e *Engine) lookForStrays(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, strayLimit)
	defer cancel()
	found, err := FindUnrouted(ctx, e.js, strayLook)
	if err != nil && ctx.Err() == nil {
		e.log.DebugContext(ctx, "messages that no consumer is given not looked for", "error", err)
	}
	count, subject := 0, ""
	for _, u := range found {
		if len(u.Messages) > 0 && now().Sub(u.Messages[0].StoredAt) > e.config.RecoverAfter {
			count, subject = count+int(u.Count), u.Subject
		}
	}
	if count > 0 {
		e.alarm.raise(strayAlert(count, subject))
	}
}

const (
	strayLimit = 3 * time.Second // for the server's answers
	strayLook  = 100             // messages that one look reads
)

func unroutedOf(ctx context.Context, stream jetstream.Stream, limit int) ([]Unrouted, error) {
	// Subjects first: a consumer that is made in between takes its subject off the list, as it should.
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(jobSubjects+">"))
	if err != nil {
		return nil, err
	}
	filters, err := filtersOf(ctx, stream)
	if err != nil {
		return nil, err
	}
	var found []Unrouted
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		if routed(filters, subject) {
			continue
		}
		u := Unrouted{Subject: subject, Count: info.State.Subjects[subject]}
		if u.Messages, err = messagesOf(ctx, stream, subject, limit); err != nil {
			return nil, err
		}
		limit -= len(u.Messages)
		found = append(found, u)
	}
	return found, nil
}

// filtersOf are the filters of all consumers of a stream.
func filtersOf(ctx context.Context, stream jetstream.Stream) (filters []string, err error) {
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		filters = append(filters, consumerFilters(c.Config)...)
	}
	return filters, list.Err()
}

// consumerFilters are the filters of one consumer. One that filters nothing has the filter ">".
func consumerFilters(c jetstream.ConsumerConfig) []string {
	switch {
	case len(c.FilterSubjects) > 0:
		return c.FilterSubjects
	case c.FilterSubject != "":
		return []string{c.FilterSubject}
	}
	return []string{">"}
}

// routed reports whether one of the filters lets a subject through.
func routed(filters []string, subject string) bool {
	return slices.ContainsFunc(filters, func(filter string) bool { return filterMatches(filter, subject) })
}

// filterMatches says whether a consumer's filter lets a subject through: * stands for one token, > at the end for
// one or more.
func filterMatches(filter, subject string) bool {
	tokens := strings.Split(subject, ".")
	wanted := strings.Split(filter, ".")
	for i, w := range wanted {
		switch {
		case i == len(tokens):
			return false
		case w == ">":
			return true
		case w != "*" && w != tokens[i]:
			return false
		}
	}
	return len(wanted) == len(tokens)
}

// messagesOf reads the oldest messages of a subject.
func messagesOf(ctx context.Context, stream jetstream.Stream, subject string, limit int) ([]UnroutedMessage, error) {
	left := []UnroutedMessage{}
	for next := uint64(1); len(left) < limit; {
		m, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return left, nil
		case err != nil:
			return nil, err
		}
		left = append(left, UnroutedMessage{Sequence: m.Sequence, StoredAt: m.Time, Size: len(m.Data)})
		next = m.Sequence + 1
	}
	return left, nil
}
