package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func tasksCommand() *cli.Command {
	return &cli.Command{
		Name:  "tasks",
		Usage: "look at tasks, and decide where nobody else can: what became of each business key",
		Description: "TASK is the id of a task or KIND/KEY, such as payment.charge/order_18452. Verbs that act take the flags and\n" +
			"variables of settle work that shape a kind, and have to be given the same.",
		Commands: append([]*cli.Command{tasksListCommand(), tasksFindCommand(), tasksShowCommand(), tasksTraceCommand()}, actCommands()...),
		Action:   chooseSubcommand,
	}
}

func tasksListCommand() *cli.Command {
	flags := []cli.Flag{
		databaseFlag(), jsonFlag(),
		&cli.StringFlag{Name: "kind", Usage: "only tasks of this `KIND`"},
		&cli.StringFlag{Name: "status", Usage: "only tasks in this `STATUS`: " + strings.Join(statusNames(), ", "), Validator: knownStatus},
		&cli.IntFlag{Name: "limit", Usage: "at most `N` tasks or messages", Value: 100, Validator: positive[int]},
		&cli.Int64Flag{Name: "after", Usage: "only tasks with an id above `ID`: the next page", DefaultText: "all"},
		&cli.BoolFlag{Name: "unrouted", Usage: "instead, list the messages that no consumer is given; needs NATS, not Postgres"},
	}
	return &cli.Command{
		Name:  "list",
		Usage: "list tasks by ascending id, or the messages that none will come of",
		Description: `A message whose subject no consumer filters stays in the stream and is never delivered. --unrouted counts such
messages, says why they are stuck and leaves them alone.`,
		Flags:  append(flags, natsFlags()...),
		Action: action(0, 0, list),
	}
}

func list(ctx context.Context, cmd *cli.Command) error {
	if cmd.Bool("unrouted") {
		return listUnrouted(ctx, cmd)
	}
	return withStore(listTasks)(ctx, cmd)
}

// withStore gives a command the table.
func withStore(do func(context.Context, *cli.Command, *idemstore.Store) error) cli.ActionFunc {
	return withPool(func(ctx context.Context, cmd *cli.Command, _ *pgxpool.Pool, store *idemstore.Store) error {
		return do(ctx, cmd, store)
	})
}

// withPool gives a command the table and the connections to it.
func withPool(do func(context.Context, *cli.Command, *pgxpool.Pool, *idemstore.Store) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		pool, err := openPool(ctx, cmd, "settle-tasks", false, nil)
		if err != nil {
			return err
		}
		defer pool.Close()
		store := idemstore.New(pool, 0)
		if err := store.CheckSchema(ctx); err != nil {
			return err
		}
		return do(ctx, cmd, pool, store)
	}
}

func listTasks(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
	limit := cmd.Int("limit")
	tasks, err := store.List(ctx, idemstore.Filter{
		Kind: cmd.String("kind"), Status: statusOf(cmd.String("status")),
		AfterID: cmd.Int64("after"), Limit: limit,
	})
	if err != nil {
		return err
	}
	if err := checkKindOfNone(ctx, cmd, store, len(tasks)); err != nil {
		return err
	}
	if cmd.Bool("json") {
		return printTasksJSON(cmd.Root().Writer, tasks)
	}
	if err := printTasks(cmd.Root().Writer, tasks); err != nil {
		return err
	}
	if len(tasks) == limit {
		fmt.Fprintf(cmd.Root().ErrWriter, "There may be more: --after %d\n", tasks[limit-1].TaskID)
	}
	return nil
}

func printTasksJSON(w io.Writer, tasks []idemstore.Task) error {
	encoder := json.NewEncoder(w)
	for _, t := range tasks {
		if err := encoder.Encode(taskLine(t)); err != nil {
			return err
		}
	}
	return nil
}

func printTasks(w io.Writer, tasks []idemstore.Task) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "TASK\tKIND\tKEY\tSTATUS\tATTEMPTS\tEXTERNAL ID\tUPDATED")
	for _, t := range tasks {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%s\t%s\n", t.TaskID, story.Printable(t.Kind), story.Printable(t.Key),
			story.Status(t.Status), t.Attempt, story.Printable(t.ExternalID), clock(t.UpdatedAt))
	}
	return table.Flush()
}

// taskName is what TASK names: an id, or a kind and a key. A kind has no slash, a key may.
type taskName struct {
	id        int64
	kind, key string
}

func parseTaskName(name string) (n taskName, err error) {
	var isKey bool
	if n.kind, n.key, isKey = strings.Cut(name, "/"); isKey {
		return n, nil
	}
	if n.id, err = strconv.ParseInt(name, 10, 64); err != nil {
		return n, wrongUse("%q is neither the id of a task nor KIND/KEY", name)
	}
	n.kind = ""
	return n, nil
}

func (n taskName) find(ctx context.Context, store *idemstore.Store) (task idemstore.Task, err error) {
	name := n.kind + "/" + n.key
	if n.kind != "" || n.key != "" {
		task, err = store.Find(ctx, n.kind, n.key)
	} else {
		task, err = store.FindByID(ctx, n.id)
		name = strconv.FormatInt(n.id, 10)
	}
	if errors.Is(err, idemstore.ErrNotFound) {
		return task, fmt.Errorf("there is no task %s", story.Printable(name))
	}
	return task, err
}

// findTask finds what TASK names.
func findTask(ctx context.Context, store *idemstore.Store, name string) (idemstore.Task, error) {
	n, err := parseTaskName(name)
	if err != nil {
		return idemstore.Task{}, err
	}
	return n.find(ctx, store)
}

func statusNames() []string {
	return []string{
		string(idemstore.Started), string(idemstore.Unknown), string(idemstore.Finished),
		string(idemstore.Failed), string(idemstore.NeedsReview),
	}
}

// statusOf is a status by its name, or by the words that lists have for it.
func statusOf(given string) idemstore.Status {
	for _, name := range statusNames() {
		if s := idemstore.Status(name); given == story.Status(s) {
			return s
		}
	}
	return idemstore.Status(given)
}

func knownStatus(given string) error {
	if slices.Contains(statusNames(), string(statusOf(given))) {
		return nil
	}
	return fmt.Errorf("must be one of %s", strings.Join(statusNames(), ", "))
}

func positive[T ~int | ~int64](n T) error {
	if n < 1 {
		return errors.New("must be at least 1")
	}
	return nil
}
