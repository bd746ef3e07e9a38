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

// alertObject is an alert as --json prints it.
type alertObject struct {
	Cause   string     `json:"cause"`
	Kind    string     `json:"kind,omitempty"`
	Text    string     `json:"text"`
	Task    int64      `json:"task,omitempty"`
	Count   int        `json:"count"`
	FirstAt time.Time  `json:"first_at"`
	LastAt  time.Time  `json:"last_at"`
	ToldAt  *time.Time `json:"told_at"` // null: not yet
}

func alertsCommand() *cli.Command {
	return &cli.Command{
		Name:  "alerts",
		Usage: "list what people were called for, the latest first",
		Description: `One line per cause, however many tasks it holds up. A worker tells an alert when it is new, and again when it still goes
on an hour later: to its log, and where SETTLE_ALERT_WEBHOOK and SETTLE_ALERT_SUBJECT say. After a quiet day its count
begins anew.`,
		Flags: []cli.Flag{databaseFlag(), jsonFlag(),
			&cli.IntFlag{Name: "limit", Usage: "at most `N` alerts", Value: 100, Validator: positive[int]}},
		Action: action(0, 0, withStore(listAlerts)),
	}
}

func listAlerts(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	alerts, err := store.Alerts(ctx, cmd.Int("limit"))
	if err != nil {
		return err
	}
	if cmd.Bool("json") {
		return printAlertsJSON(cmd.Root().Writer, alerts)
	}
	return printAlerts(cmd.Root().Writer, alerts)
}

func printAlertsJSON(w io.Writer, alerts []idemstore.Alert) error {
	encoder := json.NewEncoder(w)
	for _, a := range alerts {
		if err := encoder.Encode(alertObject{a.Cause, a.Kind, a.Text, a.TaskID, a.Count, a.FirstAt, a.LastAt, a.ToldAt}); err != nil {
			return err
		}
	}
	return nil
}

func printAlerts(w io.Writer, alerts []idemstore.Alert) error {
	if len(alerts) == 0 {
		_, err := fmt.Fprintln(w, "Nobody was called for anything.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "CAUSE\tCOUNT\tFIRST\tLAST\tTOLD\tEXAMPLE")
	for _, a := range alerts {
		told, example := "not yet", "–"
		if a.ToldAt != nil {
			told = clock(*a.ToldAt)
		}
		if a.TaskID != 0 {
			example = fmt.Sprintf("task %d", a.TaskID)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", story.Printable(a.Cause), a.Count, clock(a.FirstAt), clock(a.LastAt), told, example)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, a := range alerts {
		fmt.Fprintf(w, "%s: %s\n", story.Printable(a.Cause), story.Printable(a.Text))
	}
	return nil
}
