package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func republishCommand() *cli.Command {
	return &cli.Command{
		Name:      "republish",
		Usage:     "publish the body of refused messages again, unchanged",
		ArgsUsage: "ID...",
		Description: `For messages that were refused for a reason that is gone: the kind is known now, the limit is larger, the task that was in
conflict was superseded or is gone. The new message has an id of its own. Pressed twice, it is published once: the stream drops
the repeat, and that is said. A body of which only the beginning was kept, and a subject that no consumer filters, are refused.`,
		Flags:  append(append([]cli.Flag{databaseFlag(), jsonFlag(), dryRunFlag()}, byFlags()...), natsFlags()...),
		Action: action(1, -1, republish),
	}
}

// republishedLine is what republish --json prints for each refusal.
type republishedLine struct {
	Refusal  int64  `json:"refusal"`
	Kind     string `json:"kind"`
	Key      string `json:"key"`
	Subject  string `json:"subject"`
	Outcome  string `json:"outcome"` // done, dropped, refused, dry_run, failed
	Message  string `json:"message"`
	Sequence uint64 `json:"sequence,omitempty"`
}

func republish(ctx context.Context, cmd *cli.Command) error {
	who, err := by(cmd)
	if err != nil {
		return err
	}
	var ids []int64
	for _, text := range cmd.Args().Slice() {
		id, err := refusalID(text)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	conn, err := connectNATS(cmd, "settle-refusals")
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	return withPool(func(ctx context.Context, cmd *cli.Command, pool *pgxpool.Pool, _ *idemstore.Store) error {
		var failed error
		by := consumer.ActOptions{Actor: who.Actor, Reason: who.Reason, DryRun: cmd.Bool("dry-run")}
		for _, id := range ids {
			failed = errors.Join(failed, republishOne(ctx, cmd, pool, js, id, by))
		}
		return failed
	})(ctx, cmd)
}

// republishOne prints what came of it. The error says why it was not done.
func republishOne(ctx context.Context, cmd *cli.Command, pool *pgxpool.Pool, js jetstream.JetStream, id int64, by consumer.ActOptions) error {
	out, err := consumer.Republish(ctx, pool, js, id, by)
	if errors.Is(err, idemstore.ErrNotFound) {
		err = fmt.Errorf("there is no refusal %d", id)
	}
	r := out.Refusal
	line := republishedLine{id, r.Kind, r.Key, r.Subject, string(out.Outcome), out.Message, out.Sequence}
	if err != nil {
		line.Outcome, line.Message = "failed", err.Error()
	}
	done := err == nil && (out.Outcome == consumer.OutcomeDone || out.Outcome == consumer.OutcomeWouldDo)
	if err == nil && !done {
		err = fmt.Errorf("refusal %d: %s", id, story.Printable(out.Message))
	}
	if cmd.Bool("json") {
		return errors.Join(json.NewEncoder(cmd.Root().Writer).Encode(line), err)
	}
	if done {
		dry := ""
		if by.DryRun {
			dry = "dry run, nothing is changed: "
		}
		fmt.Fprintf(cmd.Root().Writer, "refusal %d: %s%s\n", id, dry, story.Printable(out.Message))
	}
	return err
}
