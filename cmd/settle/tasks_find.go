package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// maxSearch is the longest text to look for: no key and no search term is longer, but KIND/KEY is.
const maxSearch = 64 + 1 + 512

func tasksFindCommand() *cli.Command {
	return &cli.Command{
		Name:      "find",
		Usage:     "find tasks by whatever is at hand",
		ArgsUsage: "TEXT",
		Description: `TEXT is the id of a task, a key, KIND/KEY, a provider key, an external id, a customer, an order or another
search term of a kind, a trace id, a traceparent, or the hash that stands for a key in spans and log lines. Tasks that have exactly this come first, the newest at the top. Only
where there is none, keys, provider keys and search terms that begin with it are listed; --prefix asks for those at once.
Large and small letters differ. Exits with 1 if there is no such task.`,
		Flags: []cli.Flag{
			databaseFlag(), jsonFlag(),
			&cli.StringFlag{Name: "kind", Usage: "only tasks of this `KIND`"},
			&cli.BoolFlag{Name: "prefix", Usage: "what begins with TEXT, also where something equals it"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N` tasks", Value: 20, Validator: positive[int]},
		},
		Action: action(1, 1, findTasks),
	}
}

func findTasks(ctx context.Context, cmd *cli.Command) error {
	text := cmd.Args().First()
	switch {
	case text == "":
		return wrongUse("TEXT is empty%s", hint(cmd))
	case len(text) > maxSearch:
		return wrongUse("TEXT has %d bytes; nothing that is searched for has more than %d", len(text), maxSearch)
	case !utf8.ValidString(text):
		return wrongUse("TEXT is not valid UTF-8")
	}
	return withStore(func(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
		q := idemstore.Search{Text: text, Kind: cmd.String("kind"), Prefix: cmd.Bool("prefix"), Limit: cmd.Int("limit")}
		hits, err := store.Search(ctx, q)
		if err == nil {
			err = checkKindOfNone(ctx, cmd, store, len(hits))
		}
		switch {
		case err != nil:
			return err
		case len(hits) == 0:
			return fmt.Errorf("no task has, or begins with, %s", story.Printable(text))
		}
		return printHits(cmd, hits, q.Limit)
	})(ctx, cmd)
}

func printHits(cmd *cli.Command, hits []idemstore.Hit, limit int) error {
	if cmd.Bool("json") {
		return printHitsJSON(cmd.Root().Writer, hits)
	}
	table := tabwriter.NewWriter(cmd.Root().Writer, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "TASK\tKIND\tKEY\tSTATUS\tATTEMPTS\tEXTERNAL ID\tUPDATED\tMATCHED")
	for _, h := range hits {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", h.TaskID, story.Printable(h.Kind), story.Printable(h.Key),
			story.Status(h.Status), h.Attempt, story.Printable(h.ExternalID), clock(h.UpdatedAt), matched(h))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(hits) == limit {
		fmt.Fprintf(cmd.Root().ErrWriter, "There may be more than these %d: --limit, --kind, or more of TEXT\n", limit)
	}
	return nil
}

// matched says what of a task was found, and the whole of it where the table does not show it.
func matched(h idemstore.Hit) string {
	switch h.Matched {
	case "task", "key", "external_id":
		return story.Printable(h.Matched)
	}
	return story.Printable(h.Matched + " " + h.Value)
}

// hitObject is a task as tasks list prints it, and what was found of it.
type hitObject struct {
	taskObject
	Matched string `json:"matched"` // task, key, provider_key, trace_id, or the name of a search term
	Value   string `json:"matched_value"`
}

func printHitsJSON(w io.Writer, hits []idemstore.Hit) error {
	encoder := json.NewEncoder(w)
	for _, h := range hits {
		if err := encoder.Encode(hitObject{taskLine(h.Task), h.Matched, h.Value}); err != nil {
			return err
		}
	}
	return nil
}
