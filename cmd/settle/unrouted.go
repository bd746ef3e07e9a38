package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/story"
)

const subjectPrefix = "jobs." // and the kind

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
	known, err := knownKinds(cmd)
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
	left, err := consumer.FindUnrouted(ctx, js, cmd.Int("limit"))
	if err != nil {
		return err
	}
	subjects := unroutedObjects(left)
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

func unroutedObjects(left []consumer.Unrouted) (out []unrouted) {
	for _, u := range left {
		o := unrouted{Subject: u.Subject, Count: u.Count, Messages: []leftMessage{}}
		for _, m := range u.Messages {
			o.Messages = append(o.Messages, leftMessage(m))
		}
		out = append(out, o)
	}
	return out
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
			fmt.Fprintf(table, "%s\t%d\t%s\t%d\n", story.Printable(u.Subject), m.Sequence, clock(m.StoredAt), m.Size)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, u := range subjects {
		fmt.Fprintf(w, "%s: %d in all; %s\n", story.Printable(u.Subject), u.Count, u.Reason)
	}
	return nil
}
