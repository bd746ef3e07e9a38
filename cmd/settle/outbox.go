package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// outboxObject is a row of the outbox as --json prints it.
type outboxObject struct {
	ID        int64     `json:"id"`
	Task      int64     `json:"task,omitempty"` // none: a publisher enqueued it in a transaction of its own
	Subject   string    `json:"subject"`
	Key       string    `json:"key,omitempty"`
	Size      int       `json:"size"` // of the body, in bytes
	CreatedAt time.Time `json:"created_at"`
	Failures  int       `json:"failures"` // publishes that the stream did not confirm
	NextAt    time.Time `json:"next_at"`
	LastError string    `json:"last_error,omitempty"`
}

func outboxCommand() *cli.Command {
	return &cli.Command{
		Name:  "outbox",
		Usage: "list events and follow-up jobs that are committed and not published yet",
		Description: `Workers publish them right after the commit and sweep what is left once a second; the list is empty but for moments.
A row that stays says what the stream answered. What can never be published is kept as a refusal with the reason outbox.`,
		Flags: []cli.Flag{
			databaseFlag(), jsonFlag(),
			&cli.IntFlag{Name: "limit", Usage: "at most `N` rows", Value: 100, Validator: positive[int]},
			&cli.Int64Flag{Name: "after", Usage: "only rows with an id above `ID`: the next page", DefaultText: "all"},
		},
		Action: action(0, 0, withStore(listOutbox)),
	}
}

func listOutbox(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	limit := cmd.Int("limit")
	rows, err := store.ListOutbox(ctx, cmd.Int64("after"), limit)
	if err != nil {
		return err
	}
	if cmd.Bool("json") {
		return printOutboxJSON(cmd.Root().Writer, rows)
	}
	state, err := store.OutboxState(ctx)
	if err != nil {
		return err
	}
	if err := printOutbox(cmd.Root().Writer, rows, state); err != nil {
		return err
	}
	if len(rows) == limit {
		fmt.Fprintf(cmd.Root().ErrWriter, "There may be more: --after %d\n", rows[limit-1].ID)
	}
	return nil
}

func printOutboxJSON(w io.Writer, rows []idemstore.OutboxEntry) error {
	encoder := json.NewEncoder(w)
	for _, r := range rows {
		err := encoder.Encode(outboxObject{ID: r.ID, Task: r.TaskID, Subject: r.Subject, Key: r.Key, Size: r.Size,
			CreatedAt: r.CreatedAt, Failures: r.Failures, NextAt: r.NextAt, LastError: r.LastError})
		if err != nil {
			return err
		}
	}
	return nil
}

func printOutbox(w io.Writer, rows []idemstore.OutboxEntry, state idemstore.OutboxState) error {
	if state.Rows == 0 {
		_, err := fmt.Fprintln(w, "The outbox is empty: everything that was committed is published.")
		return err
	}
	fmt.Fprintf(w, "%d wait, the oldest for %s; %d were tried and not confirmed.\n", state.Rows, state.Oldest.Round(time.Second), state.Failed)
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tTASK\tSUBJECT\tKEY\tSINCE\tFAILURES\tLAST ERROR")
	for _, r := range rows {
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%d\t%s\n", r.ID, r.TaskID, story.Printable(r.Subject), story.Printable(r.Key), clock(r.CreatedAt),
			r.Failures, story.Printable(r.LastError))
	}
	return table.Flush()
}
