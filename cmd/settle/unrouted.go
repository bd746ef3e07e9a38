package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
)

const (
	jobStream     = "JOBS"
	subjectPrefix = "jobs." // and the kind
)

// unrouted is a subject whose messages no consumer is given. They stay in the stream, and nothing says so by itself.
type unrouted struct {
	Subject  string        `json:"subject"`
	Count    uint64        `json:"count"`
	Reason   string        `json:"reason"`
	Messages []leftMessage `json:"messages"` // the oldest ones, as far as --limit goes
}

type leftMessage struct {
	Sequence uint64    `json:"sequence"`
	StoredAt time.Time `json:"stored_at"`
	Size     int       `json:"size"` // of the body, in bytes
}

// listUnrouted looks only: what a stray message was meant for is for a person to say.
func listUnrouted(ctx context.Context, cmd *cli.Command) error {
	for _, flag := range []string{"kind", "status", "after"} {
		if cmd.IsSet(flag) {
			return wrongUse("--%s and --unrouted do not go together%s", flag, hint(cmd))
		}
	}
	known, err := knownKinds()
	if err != nil {
		return err
	}
	conn, err := connectNATS(cmd, "settle-tasks")
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, jobStream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", jobStream, err)
	}
	subjects, err := findUnrouted(ctx, stream, cmd.Int("limit"))
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", jobStream, err)
	}
	for i := range subjects {
		subjects[i].Reason = "this build knows no such kind"
		if known[strings.TrimPrefix(subjects[i].Subject, subjectPrefix)] != nil {
			subjects[i].Reason = "there is no consumer of this kind; a worker that serves it makes one"
		}
	}
	if cmd.Bool("json") {
		return printUnroutedJSON(cmd.Root().Writer, subjects)
	}
	return printUnrouted(cmd.Root().Writer, subjects)
}

// findUnrouted gives all subjects with messages for no consumer, and of these messages up to limit. Messages come
// and go meanwhile, so a count may differ from what is listed.
func findUnrouted(ctx context.Context, stream jetstream.Stream, limit int) ([]unrouted, error) {
	// Subjects first: a consumer that is made in between takes its subject off the list, as it should.
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subjectPrefix+">"))
	if err != nil {
		return nil, err
	}
	filters, err := consumerFilters(ctx, stream)
	if err != nil {
		return nil, err
	}
	var found []unrouted
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		if slices.ContainsFunc(filters, func(filter string) bool { return filterMatches(filter, subject) }) {
			continue
		}
		u := unrouted{Subject: subject, Count: info.State.Subjects[subject]}
		if u.Messages, err = messagesOf(ctx, stream, subject, limit); err != nil {
			return nil, err
		}
		limit -= len(u.Messages)
		found = append(found, u)
	}
	return found, nil
}

// consumerFilters are the filters of all consumers of a stream. One that filters nothing has the filter ">".
func consumerFilters(ctx context.Context, stream jetstream.Stream) (filters []string, err error) {
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		switch {
		case len(c.Config.FilterSubjects) > 0:
			filters = append(filters, c.Config.FilterSubjects...)
		case c.Config.FilterSubject != "":
			filters = append(filters, c.Config.FilterSubject)
		default:
			filters = append(filters, ">")
		}
	}
	return filters, list.Err()
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
func messagesOf(ctx context.Context, stream jetstream.Stream, subject string, limit int) ([]leftMessage, error) {
	left := []leftMessage{}
	for next := uint64(1); len(left) < limit; {
		m, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return left, nil
		case err != nil:
			return nil, err
		}
		left = append(left, leftMessage{Sequence: m.Sequence, StoredAt: m.Time, Size: len(m.Data)})
		next = m.Sequence + 1
	}
	return left, nil
}

func printUnroutedJSON(w io.Writer, subjects []unrouted) error {
	encoder := json.NewEncoder(w)
	for _, u := range subjects {
		if err := encoder.Encode(u); err != nil {
			return err
		}
	}
	return nil
}

func printUnrouted(w io.Writer, subjects []unrouted) error {
	if len(subjects) == 0 {
		_, err := fmt.Fprintln(w, "Every message has a consumer.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "SUBJECT\tSEQUENCE\tSTORED\tBYTES")
	for _, u := range subjects {
		for _, m := range u.Messages {
			fmt.Fprintf(table, "%s\t%d\t%s\t%d\n", printable(u.Subject), m.Sequence, clock(m.StoredAt), m.Size)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, u := range subjects {
		fmt.Fprintf(w, "%s: %d in all; %s\n", printable(u.Subject), u.Count, u.Reason)
	}
	return nil
}
