package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
	"github.com/settlemq/settle/internal/telemetry"
)

// press is an act on one task.
type press func(*consumer.Operator, context.Context, idemstore.Task, consumer.ActOptions) (consumer.Acted, error)

// acting is one run of a verb, over one task or several.
type acting struct {
	cmd   *cli.Command
	names []taskName
	do    press
	by    consumer.ActOptions
	only  int // attempts that the task must have, or 0
}

// act is the action of a verb. prepare reads the flags that only this verb has. Nothing is done before all of the command is
// known to be right.
func act(a consumer.Act, prepare func(*cli.Command) (press, error)) cli.ActionFunc {
	return action(1, -1, func(ctx context.Context, cmd *cli.Command) error {
		r, err := readActing(cmd, a)
		if err != nil {
			return err
		}
		if r.do, err = prepare(cmd); err != nil {
			return err
		}
		return r.run(ctx)
	})
}

func readActing(cmd *cli.Command, a consumer.Act) (*acting, error) {
	r := &acting{cmd: cmd, only: cmd.Int("if-attempts")}
	r.by = consumer.ActOptions{Actor: cmd.String("actor"), Reason: cmd.String("reason"), DryRun: cmd.Bool("dry-run")}
	if r.by.Actor == "" {
		r.by.Actor = osUser()
	}
	if strings.TrimSpace(r.by.Reason) == "" && a != consumer.ActAsk && !r.by.DryRun {
		return nil, wrongUse("--reason is not set%s", hint(cmd))
	}
	for _, name := range cmd.Args().Slice() {
		n, err := parseTaskName(name)
		if err != nil {
			return nil, err
		}
		r.names = append(r.names, n)
	}
	if r.only != 0 && len(r.names) > 1 {
		return nil, wrongUse("--if-attempts is for one TASK%s", hint(cmd))
	}
	if a == consumer.ActAsk || a == consumer.ActResolve {
		if err := errors.Join(needProvider(cmd), checkKindsFile(cmd)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// osUser is the name of whoever runs the program.
func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// run acts on the tasks in the order of the command, on each as it is found then. One that does not allow it does not stop
// the others.
func (r *acting) run(ctx context.Context) error {
	log := telemetry.Logger(os.Stderr, isTerminal(os.Stderr), slog.LevelWarn, telemetryOptions(r.cmd)...)
	tracing, err := telemetry.Setup(ctx, "settle-operator", log, telemetryOptions(r.cmd)...)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	config := consumer.Config{Policy: policy(r.cmd), Logger: log, TracerProvider: tracing.TracerProvider()}
	return withOperator(config, func(ctx context.Context, _ *cli.Command, store *idemstore.Store, o *consumer.Operator) error {
		failed := 0
		var last error
		for _, name := range r.names {
			err := r.one(ctx, store, o, name)
			var exit *exitError
			if errors.As(err, &exit) { // of no use for the others either
				return err
			}
			if err != nil {
				failed, last = failed+1, err
				if len(r.names) > 1 {
					fmt.Fprintln(r.cmd.Root().ErrWriter, "settle:", err)
				}
			}
		}
		if failed > 0 && len(r.names) > 1 {
			return fmt.Errorf("not done: %d of %d tasks", failed, len(r.names))
		}
		return last
	})(ctx, r.cmd)
}

// one acts on a task and prints what came of it. The error says why it was not done.
func (r *acting) one(ctx context.Context, store *idemstore.Store, o *consumer.Operator, name taskName) error {
	task, err := name.find(ctx, store)
	if err != nil {
		return errors.Join(r.print(taskObject{Task: name.id, Kind: name.kind, Key: name.key, Outcome: "failed", Message: err.Error()}), err)
	}
	acted := consumer.Acted{Task: task, Outcome: consumer.OutcomeOvertaken,
		Message: fmt.Sprintf("it has %d attempts by now, not %d; look again", task.Attempt, r.only)}
	if r.only == 0 || r.only == task.Attempt {
		acted, err = r.do(o, ctx, task, r.by)
	}
	switch {
	case errors.Is(err, consumer.ErrInput):
		return wrongUse("%w", err)
	case err != nil:
		acted = consumer.Acted{Task: task, Outcome: "failed", Message: err.Error()}
	}
	line := taskLine(acted.Task)
	line.Outcome, line.Message = string(acted.Outcome), acted.Message
	if err := r.print(line); err != nil {
		return err
	}
	switch acted.Outcome {
	case consumer.OutcomeDone, consumer.OutcomeAsked, consumer.OutcomeWouldDo:
		return nil
	case consumer.OutcomeRefused, consumer.OutcomeOvertaken, consumer.OutcomeDropped:
	}
	return fmt.Errorf("%s: not done: %s", nameOf(line), story.Printable(acted.Message))
}

// print writes what was done to standard output; with --json also what was not.
func (r *acting) print(line taskObject) error {
	w := r.cmd.Root().Writer
	if r.cmd.Bool("json") {
		return json.NewEncoder(w).Encode(line)
	}
	var err error
	switch consumer.ActOutcome(line.Outcome) {
	case consumer.OutcomeDone, consumer.OutcomeAsked:
		_, err = fmt.Fprintf(w, "%s: %s\n", nameOf(line), story.Printable(line.Message))
	case consumer.OutcomeWouldDo:
		_, err = fmt.Fprintf(w, "%s: dry run, nothing is changed: %s\n", nameOf(line), story.Printable(line.Message))
	case consumer.OutcomeRefused, consumer.OutcomeOvertaken, consumer.OutcomeDropped:
	}
	return err
}

func nameOf(o taskObject) string {
	return fmt.Sprintf("task %d (%s)", o.Task, story.Printable(o.Kind+" "+o.Key))
}

// withOperator gives a command the table and an operator for the kinds of this build, with the settings of its flags.
func withOperator(config consumer.Config, do func(context.Context, *cli.Command, *idemstore.Store, *consumer.Operator) error) cli.ActionFunc {
	return withPool(func(ctx context.Context, cmd *cli.Command, pool *pgxpool.Pool, store *idemstore.Store) error {
		defs, err := definitions(readHandlerOptions(cmd))
		if err != nil {
			return err
		}
		o, err := consumer.NewOperator(pool, config, defs...)
		if err != nil {
			return wrongUse("%w", err)
		}
		return do(ctx, cmd, store, o)
	})
}
