package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func refusalsCommand() *cli.Command {
	return &cli.Command{
		Name:  "refusals",
		Usage: "look at messages that were never accepted, and publish them again",
		Description: `A message is refused that is not one clean JSON object, is too large, has no usable key or an unknown kind, or has the key
of another content; and an event that can never be published. As much of it is kept as is needed to look, or to publish it again.`,
		Commands: []*cli.Command{refusalsListCommand(), refusalsShowCommand(), republishCommand()},
		Action:   chooseSubcommand,
	}
}

func refusalsListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list refused messages, the newest first",
		Flags: []cli.Flag{
			databaseFlag(), jsonFlag(),
			&cli.StringFlag{Name: "kind", Usage: "only of this `KIND`"},
			&cli.StringFlag{Name: "reason", Usage: "only for this `REASON`: " + strings.Join(refusalReasons(), ", "), Validator: knownReason},
			&cli.StringFlag{Name: "since", Usage: "only those since `TIME`: an age such as 24h, a date, or an RFC 3339 time", DefaultText: "all",
				Validator: func(s string) error { _, err := since(s, time.Now()); return err }},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`", Value: 100, Validator: positive[int]},
			&cli.Int64Flag{Name: "before", Usage: "only ids below `ID`: the next page", DefaultText: "all", Validator: positive[int64]},
		},
		Action: action(0, 0, withStore(listRefusals)),
	}
}

func refusalReasons() []string {
	return []string{
		string(idemstore.Malformed), string(idemstore.TooLarge), string(idemstore.BadKey), string(idemstore.UnknownKind),
		string(idemstore.Conflict), string(idemstore.Unsendable),
	}
}

func knownReason(given string) error {
	if !slices.Contains(refusalReasons(), given) {
		return fmt.Errorf("must be one of %s", strings.Join(refusalReasons(), ", "))
	}
	return nil
}

// since reads a time, or an age before now. The empty text is the zero time.
func since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("must be an age such as 24h, a date such as 2026-11-29, or a time such as 2026-11-29T10:00:00Z")
}

func listRefusals(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	from, err := since(cmd.String("since"), time.Now())
	if err != nil {
		return wrongUse("--since: %w", err)
	}
	limit := cmd.Int("limit")
	found, err := store.Refusals(ctx, idemstore.RefusalFilter{Kind: cmd.String("kind"), Reason: idemstore.Reason(cmd.String("reason")),
		Since: from, Before: cmd.Int64("before"), Limit: limit})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if err := checkKindOfRefusals(ctx, cmd, store); err != nil {
			return err
		}
	}
	if err := printRefusals(cmd, found); err != nil {
		return err
	}
	if len(found) == limit && !cmd.Bool("json") {
		fmt.Fprintf(cmd.Root().ErrWriter, "There may be more: --before %d\n", found[limit-1].ID)
	}
	return nil
}

// checkKindOfRefusals refuses a kind that nobody has. Messages are refused because nobody has their kind, so it may be known
// from them alone.
func checkKindOfRefusals(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	found, err := store.Refusals(ctx, idemstore.RefusalFilter{Kind: cmd.String("kind"), Limit: 1})
	if err != nil {
		return err
	}
	return checkKindOfNone(ctx, cmd, store, len(found))
}

func printRefusals(cmd *cli.Command, found []idemstore.KeptRefusal) error {
	w := cmd.Root().Writer
	if cmd.Bool("json") {
		encoder := json.NewEncoder(w)
		for _, r := range found {
			if err := encoder.Encode(refusalLine(r)); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "REFUSAL\tREFUSED\tKIND\tREASON\tTASK\tBYTES\tREPUBLISHED\tDETAIL")
	for _, r := range found {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.ID, clock(r.At), story.Printable(r.Kind), r.Reason, unlessZero(r.TaskID), r.Size,
			republishedAs(r.Republished), story.Printable(r.Detail))
	}
	return table.Flush()
}

func unlessZero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func republishedAs(r *idemstore.Republished) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("as %d", r.Sequence)
}

func refusalsShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "print one refused message, body and headers included",
		ArgsUsage: "ID",
		Flags:     []cli.Flag{databaseFlag(), jsonFlag()},
		Action:    action(1, 1, showRefusal),
	}
}

func showRefusal(ctx context.Context, cmd *cli.Command) error {
	id, err := refusalID(cmd.Args().First())
	if err != nil {
		return err
	}
	return withStore(func(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
		r, err := findRefusal(ctx, store, id)
		switch {
		case err != nil:
			return err
		case cmd.Bool("json"):
			return json.NewEncoder(cmd.Root().Writer).Encode(refusalStory(r))
		}
		return printRefusal(cmd.Root().Writer, r)
	})(ctx, cmd)
}

func refusalID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, wrongUse("%q is not the id of a refusal", text)
	}
	return id, nil
}

func findRefusal(ctx context.Context, store *idemstore.Store, id int64) (idemstore.KeptRefusal, error) {
	r, err := store.FindRefusal(ctx, id)
	if errors.Is(err, idemstore.ErrNotFound) {
		return r, fmt.Errorf("there is no refusal %d", id)
	}
	return r, err
}
