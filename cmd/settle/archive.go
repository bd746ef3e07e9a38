package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// archivePause is the least rest between two batches that changed something: workers come first.
const archivePause = 20 * time.Millisecond

func archiveCommand() *cli.Command {
	return &cli.Command{
		Name:  "archive",
		Usage: "move payload and result of old final tasks out of the way",
		Description: `Final tasks whose retention is over (settle kinds prints it) give their payload, result and answer to a
table of the archive. Their rows stay: a repeat is still recognised, and gets the stored result. A task whose events are
not published yet waits. Runs beside workers in small transactions with pauses between them; run it once a day.

With --proof-retention rows that nobody has heard of for that long are deleted, and with them the memory that makes a
repeat harmless. So it also needs NATS, takes the flags and variables of settle work that say how late a job can come again,
and has to be given the same; an age that is too short for them is refused, as a worker refuses it.`,
		Flags:    archiveFlags(),
		Commands: []*cli.Command{restoreCommand()},
		Action:   action(0, 0, archive),
	}
}

func archiveFlags() []cli.Flag {
	flags := []cli.Flag{
		databaseFlag(), jsonFlag(), dryRunFlag(),
		&cli.IntFlag{Name: "limit", Usage: "archive at most `N` tasks in this run", DefaultText: "all", Validator: positive[int]},
		durationFlag("proof-retention", "age at which the rows of final tasks are deleted; 0: never", 0, 0),
		durationFlag("replay-horizon", "how long after its publish a job may be published again by hand", defaults.ReplayHorizon, anyPositive),
	}
	return append(append(flags, natsFlags()...), profileFlags()...)
}

func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "say what would be done, and do nothing"}
}

// archiveReport is what one run did, or would do.
type archiveReport struct {
	DryRun    bool  `json:"dry_run"`
	Archived  int   `json:"archived"`
	Bytes     int64 `json:"bytes"`
	Waiting   int   `json:"waiting"` // due, but their events are not published yet, or somebody is at the row
	Forgotten int   `json:"forgotten"`
	Swept     int   `json:"search_terms_swept"`
}

func archive(ctx context.Context, cmd *cli.Command) error {
	if cmd.Duration("proof-retention") > 0 {
		if err := checkProofAge(ctx, cmd); err != nil {
			return err
		}
	}
	return withStore(archiveTasks)(ctx, cmd)
}

// checkProofAge refuses to delete rows whose jobs can still come again.
func checkProofAge(ctx context.Context, cmd *cli.Command) error {
	defs, err := definitions(readHandlerOptions(cmd))
	if err != nil {
		return err
	}
	conn, err := connectNATS(cmd, "settle-archive")
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	err = consumer.CheckProofAge(ctx, js, consumer.Config{Policy: policy(cmd), ProofRetention: cmd.Duration("proof-retention"),
		ReplayHorizon: cmd.Duration("replay-horizon")}, defs...)
	if errors.Is(err, consumer.ErrProofAge) {
		return wrongUse("--proof-retention (%s): %w", variableOf("proof-retention").Key(), err)
	}
	return err
}

func archiveTasks(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	r := archiveReport{DryRun: cmd.Bool("dry-run")}
	err := r.archive(ctx, store, cmd.Int("limit"))
	if proof := cmd.Duration("proof-retention"); err == nil && proof > 0 {
		err = r.forget(ctx, store, proof)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted; what was done is done, and the next run goes on")
	}
	return errors.Join(r.print(cmd.Root().Writer, cmd.Bool("json")), err)
}

// archive goes through all rows once. limit 0 is no limit.
func (r *archiveReport) archive(ctx context.Context, store *idemstore.Store, limit int) error {
	return inBatches(ctx, func(after int64) (changed int, through int64, done bool, err error) {
		s := idemstore.Slice{After: after, Dry: r.DryRun}
		if limit > 0 {
			s.Limit = limit - r.Archived
		}
		got, err := store.Archive(ctx, s)
		r.Archived, r.Bytes, r.Waiting = r.Archived+got.Tasks, r.Bytes+got.Bytes, r.Waiting+got.Waiting
		return got.Tasks, got.Through, got.Done || limit > 0 && r.Archived >= limit, err
	}, r.DryRun)
}

// forget deletes rows, and then the search terms that they leave behind.
func (r *archiveReport) forget(ctx context.Context, store *idemstore.Store, proof time.Duration) error {
	err := inBatches(ctx, func(after int64) (changed int, through int64, done bool, err error) {
		got, err := store.Forget(ctx, idemstore.Slice{After: after, Dry: r.DryRun}, proof)
		r.Forgotten += got.Tasks
		return got.Tasks, got.Through, got.Done, err
	}, r.DryRun)
	if err != nil || r.DryRun {
		return err
	}
	return inBatches(ctx, func(from idemstore.RefPlace) (changed int, next idemstore.RefPlace, done bool, err error) {
		n, next, done, err := store.SweepRefs(ctx, from)
		r.Swept += n
		return n, next, done, err
	}, false)
}

// inBatches does one batch after the other. Behind those that changed something it rests for as long as they took, so
// that no more than half of the time is theirs.
func inBatches[P any](ctx context.Context, batch func(P) (changed int, next P, done bool, err error), dry bool) error {
	var place P
	for {
		begin := time.Now()
		changed, next, done, err := batch(place)
		if err != nil || done {
			return err
		}
		place = next
		if changed == 0 || dry {
			continue
		}
		select {
		case <-time.After(max(time.Since(begin), archivePause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *archiveReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	would := ""
	if r.DryRun {
		would = "would be "
	}
	fmt.Fprintf(w, "%d tasks %sarchived, %d bytes of payload, result and answer.\n", r.Archived, would, r.Bytes)
	if r.Waiting > 0 {
		fmt.Fprintf(w, "%d more are due and wait: their events are not published yet, or somebody is at their row.\n", r.Waiting)
	}
	if r.Forgotten > 0 {
		fmt.Fprintf(w, "%d tasks %sforgotten: nobody has heard of them for the proof retention.\n", r.Forgotten, would)
	}
	return nil
}

func restoreCommand() *cli.Command {
	return &cli.Command{
		Name:        "restore",
		Usage:       "give archived tasks their payload, result and answer back",
		ArgsUsage:   "TASK...",
		Description: "TASK is the id of a task or KIND/KEY. Needed before a failed task whose retention is over can be tried again.",
		Flags: append([]cli.Flag{
			databaseFlag(), jsonFlag(),
			&cli.DurationFlag{Name: "keep-for", Usage: "how long it stays there at least", Value: 168 * time.Hour, DefaultText: "168h",
				Validator: func(d time.Duration) error {
					if d <= 0 {
						return errors.New("must be positive")
					}
					return nil
				}},
		}, byFlags()...),
		Action: action(1, -1, restoreTasks),
	}
}

func restoreTasks(ctx context.Context, cmd *cli.Command) error {
	who, err := by(cmd)
	if err != nil {
		return err
	}
	var names []taskName
	for _, name := range cmd.Args().Slice() {
		n, err := parseTaskName(name)
		if err != nil {
			return err
		}
		names = append(names, n)
	}
	return withStore(func(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
		var failed error
		for _, name := range names {
			o, err := restoreTask(ctx, store, name, cmd.Duration("keep-for"), who)
			if err == nil {
				err = printOutcome(cmd, o)
			}
			failed = errors.Join(failed, err)
		}
		return failed
	})(ctx, cmd)
}

// restoreTask restores one task. The error says why it was not done.
func restoreTask(ctx context.Context, store *idemstore.Store, name taskName, keep time.Duration, by idemstore.By) (o taskObject, err error) {
	task, err := name.find(ctx, store)
	if err == nil {
		err = store.Restore(ctx, task.TaskID, keep, by)
	}
	if err != nil {
		return o, err
	}
	o = taskLine(task)
	o.Outcome, o.Message, o.ArchivedAt = "done", "payload, result and answer are back, for at least "+story.Short(keep), nil
	return o, nil
}

// printOutcome prints what an operator command did to one task.
func printOutcome(cmd *cli.Command, o taskObject) error {
	if cmd.Bool("json") {
		return json.NewEncoder(cmd.Root().Writer).Encode(o)
	}
	_, err := fmt.Fprintf(cmd.Root().Writer, "%s: %s\n", nameOf(o), story.Printable(o.Message))
	return err
}
