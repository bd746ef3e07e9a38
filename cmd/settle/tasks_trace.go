package main

import (
	"context"
	"encoding/json"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func tasksTraceCommand() *cli.Command {
	return &cli.Command{
		Name:      "trace",
		Usage:     "draw what happened to one task as a time line",
		ArgsUsage: "TASK",
		Description: `From the message in the stream over attempts, look-ups, saves and repairs to the end, from the row and its history alone:
no trace collector is needed, and nothing is sampled. Trace ids lead on where there is one. What goes well is told by
the row's own times; an attempt that left no line in the history is not drawn. Long waits are written in words.`,
		Flags:  []cli.Flag{databaseFlag(), jsonFlag()},
		Action: action(1, 1, withStore(traceTask)),
	}
}

func traceTask(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	task, err := findTask(ctx, store, cmd.Args().First())
	if err != nil {
		return err
	}
	events, err := store.Events(ctx, task.TaskID)
	if err != nil {
		return err
	}
	refusals, err := store.RefusalsOf(ctx, task.TaskID, refusalsShown)
	if err != nil {
		return err
	}
	line := story.Timeline(task, events, refusals)
	w := cmd.Root().Writer
	if cmd.Bool("json") {
		return json.NewEncoder(w).Encode(tracedObject{taskLine(task), line})
	}
	return drawTimeline(w, task, line)
}

// tracedObject is a task as tasks list prints it, and its time line.
type tracedObject struct {
	taskObject
	Timeline []story.Moment `json:"timeline"`
}
