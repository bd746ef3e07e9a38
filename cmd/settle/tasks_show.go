package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func tasksShowCommand() *cli.Command {
	return &cli.Command{
		Name:        "show",
		Usage:       "tell what happened to one task",
		ArgsUsage:   "TASK",
		Description: "Of a batch that is done record by record it also tells how far that is, and why records were set aside.",
		Flags: []cli.Flag{
			databaseFlag(), jsonFlag(), setAsideFlag(),
			&cli.BoolFlag{Name: "content", Usage: "also print the job, its result and the provider's last answer"},
		},
		Action: action(1, 1, withOperator(consumer.Config{}, showTask)),
	}
}

func showTask(ctx context.Context, cmd *cli.Command, store *idemstore.Store, o *consumer.Operator) error {
	task, err := findTask(ctx, store, cmd.Args().First())
	if err != nil {
		return err
	}
	events, err := store.Events(ctx, task.TaskID)
	if err != nil {
		return err
	}
	b, err := besideOf(ctx, cmd, store, task, asideLimit(cmd))
	if err != nil {
		return err
	}
	next := nextOf(task, o.AllowedActs(task), b.refusals)
	w := cmd.Root().Writer
	if cmd.Bool("json") {
		story := taskStory(task, events, cmd.Bool("content"))
		story.Next = next
		story.add(b)
		return json.NewEncoder(w).Encode(story)
	}
	if err := printStory(w, task, b, events, cmd.Bool("content")); err != nil {
		return err
	}
	if err := b.printRefusals(w); err != nil {
		return err
	}
	return printNext(w, next, b.stranger)
}

func printStory(w io.Writer, t idemstore.Task, b beside, events []idemstore.Event, content bool) error {
	fmt.Fprintf(w, "%s\n\n", summary(t))
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, story.Printable(value))
		}
	}
	row("task", fmt.Sprint(t.TaskID))
	row("kind", t.Kind)
	row("key", t.Key)
	row("status", story.Status(t.Status))
	row("its kind is", b.paused(t))
	row("attempts", fmt.Sprintf("%d, of which %d failed", t.Attempt, t.Failures))
	row("progress", b.progress.line(t.Status.Final()))
	row("duplicates", fmt.Sprintf("%d answered from the stored outcome", t.Duplicates))
	row("event id", t.Event.ID)
	row("event source", t.Event.Source)
	row("external id", t.ExternalID)
	row("other external id", t.EvidenceID)
	row("provider", maskURL(t.Provider))
	row("provider key", t.ProviderKey)
	row("last error", t.LastError)
	row("created", clock(t.CreatedAt))
	row("updated", clock(t.UpdatedAt))
	row("finished", clockOf(t.FinishedAt))
	row("archived", clockOf(t.ArchivedAt))
	switch {
	case t.Cause == idemstore.CauseBudget || t.Cause == idemstore.CauseAge:
		row("asked again", "about once an hour, not before "+clock(t.NextAttemptAt))
	case !t.Status.Final() && t.Status != idemstore.NeedsReview:
		row("next attempt", "not before "+clock(t.NextAttemptAt))
	}
	if t.ResendOnce {
		row("one more request", "is permitted, once the provider surely does not know it")
	}
	if !t.Status.Final() {
		row("age limit", clock(t.GiveUpAt))
	}
	if content {
		row("job", string(t.Payload))
		row("result", string(t.Result))
		row("answer", t.Answer)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := b.progress.printAside(w); err != nil {
		return err
	}
	return printHistory(w, events)
}

// summary is the one sentence that support needs.
func summary(t idemstore.Task) string {
	name := story.Printable(t.Kind + " " + t.Key)
	switch t.Status {
	case idemstore.Finished:
		return fmt.Sprintf("%s is done: attempt %d finished it at %s%s.%s", name, t.Attempt, clockOf(t.FinishedAt), asExternal(t), belied(t))
	case idemstore.Failed:
		return fmt.Sprintf("%s failed for good at %s%s%s.%s", name, clockOf(t.FinishedAt), asExternal(t), because(t), belied(t))
	case idemstore.NeedsReview:
		return fmt.Sprintf("%s needs review: %s; a person decides%s.", name, cmp.Or(story.Cause(t.Cause), "nothing more is sent"), because(t))
	case idemstore.Unknown:
		return fmt.Sprintf("%s is being checked with the provider: a request may have left and its outcome is not known; "+
			"it is asked not before %s.", name, clock(t.NextAttemptAt))
	case idemstore.Started:
		return fmt.Sprintf("%s is pending: %s.", name, pending(t))
	}
	return fmt.Sprintf("%s has the status %s, which this build does not know.", name, story.Printable(string(t.Status)))
}

func pending(t idemstore.Task) string {
	switch {
	case t.LeaseUntil == nil:
		return "nothing was sent yet; the next attempt starts not before " + clock(t.NextAttemptAt)
	case !t.LeaseLive:
		return fmt.Sprintf("attempt %d held it until %s and has not come back; another worker takes it up", t.Attempt, clockOf(t.LeaseUntil))
	}
	return fmt.Sprintf("attempt %d is at work and holds it until %s", t.Attempt, clockOf(t.LeaseUntil))
}

func asExternal(t idemstore.Task) string {
	if t.ExternalID == "" {
		return ""
	}
	return " as " + story.Printable(t.ExternalID)
}

// belied says that a task did not end as it says, or not only so.
func belied(t idemstore.Task) string {
	if t.EvidenceID == "" || t.EvidenceID == t.ExternalID {
		return ""
	}
	return " But an attempt that had lost it brought proof of another effect, " + story.Printable(t.EvidenceID) + ": look at it at the provider."
}

func because(t idemstore.Task) string {
	if t.LastError == "" {
		return ""
	}
	return " (" + story.Printable(t.LastError) + ")"
}
