package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func driftCommand() *cli.Command {
	return &cli.Command{
		Name:  "drift",
		Usage: "compare stream, consumers and table both ways",
		Description: `Finds messages whose task is final, open tasks whose message is gone, messages that no consumer is given or that the broker
gave up on, and settings that are not as they have to be. Says what to do about each. Reads only. Exits with 3 if something
needs a person; what workers put right by themselves is listed and is no reason to.`,
		Flags: append([]cli.Flag{
			databaseFlag(), jsonFlag(),
			&cli.DurationFlag{Name: "grace", Usage: "what is younger is under way", Value: time.Minute, DefaultText: "1m", Validator: positiveDuration},
			durationFlag("recover-after", "age at which an open task that nobody takes up counts as stuck", 15*time.Minute, time.Second),
			&cli.IntFlag{Name: "limit", Usage: "look at most at `N` messages of each kind, and as many open tasks", Value: 10_000, Validator: positive[int]},
		}, natsFlags()...),
		Action: action(0, 0, drift),
	}
}

func positiveDuration(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("must be positive")
	}
	return nil
}

// driftObject is a difference as --json prints it.
type driftObject struct {
	Finding     string   `json:"finding"` // settings, given_up, unrouted, settled_message, message_gone
	Kind        string   `json:"kind,omitempty"`
	Subject     string   `json:"subject,omitempty"`
	Count       uint64   `json:"count"`
	OldestSecs  int64    `json:"oldest_seconds,omitempty"`
	Sequences   []uint64 `json:"sequences,omitempty"` // of messages; the first few
	Tasks       []int64  `json:"tasks,omitempty"`     // the first few
	NeedsPerson bool     `json:"needs_person"`
	What        string   `json:"what"`
	Do          string   `json:"do"`
}

func drift(ctx context.Context, cmd *cli.Command) error {
	defs, err := definitions(handlerOptions{kindsFile: cmd.String(kindsFile)})
	if err != nil {
		return err
	}
	conn, err := connectNATS(cmd, "settle-drift")
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	return withPool(func(ctx context.Context, cmd *cli.Command, pool *pgxpool.Pool, _ *idemstore.Store) error {
		check := consumer.DriftCheck{Grace: cmd.Duration("grace"), Late: cmd.Duration("recover-after"), Limit: cmd.Int("limit")}
		found, err := consumer.FindDrift(ctx, pool, js, consumer.Config{}, check, defs...)
		if err != nil {
			return err
		}
		return reportDrift(cmd, found)
	})(ctx, cmd)
}

func reportDrift(cmd *cli.Command, found []consumer.Drift) error {
	w, people := cmd.Root().Writer, 0
	for _, d := range found {
		if d.NeedsPerson {
			people++
		}
		if err := printDrift(w, d, cmd.Bool("json")); err != nil {
			return err
		}
	}
	if len(found) == 0 && !cmd.Bool("json") {
		fmt.Fprintln(w, "Stream, consumers and table agree.")
	}
	if people > 0 {
		return notHeld("%d of %d findings need a person", people, len(found))
	}
	return nil
}

func printDrift(w io.Writer, d consumer.Drift, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(driftObject{Finding: string(d.Sort), Kind: d.Kind, Subject: d.Subject, Count: d.Count,
			OldestSecs: int64(d.Oldest.Seconds()), Sequences: d.Sequences, Tasks: d.Tasks, NeedsPerson: d.NeedsPerson, What: d.What, Do: d.Do})
	}
	about := d.Kind
	if about != "" {
		about += ": "
	}
	fmt.Fprintf(w, "%s%s", story.Printable(about), story.Printable(d.What))
	if d.Oldest > 0 {
		fmt.Fprintf(w, "; the oldest is %s old", d.Oldest.Round(time.Second))
	}
	if len(d.Sequences) > 0 {
		fmt.Fprintf(w, "; messages %s", firstOf(d.Sequences, d.Count))
	}
	if len(d.Tasks) > 0 {
		fmt.Fprintf(w, "; tasks %s", firstOf(d.Tasks, d.Count))
	}
	_, err := fmt.Fprintf(w, "\n  %s%s\n", map[bool]string{true: "a person has to: ", false: "to do: "}[d.NeedsPerson], story.Printable(d.Do))
	return err
}

// firstOf lists numbers, and says that there are more.
func firstOf[N uint64 | int64](numbers []N, of uint64) string {
	text := ""
	for i, n := range numbers {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(n)
	}
	if of > uint64(len(numbers)) {
		text += ", …"
	}
	return text
}
