package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// actCommands are the verbs that change a task by hand.
func actCommands() []*cli.Command {
	return []*cli.Command{askCommand(), retryCommand(), sendAgainCommand(), resolveCommand(), supersedeCommand(), cancelCommand(), noteCommand()}
}

func askCommand() *cli.Command {
	return actCommand(consumer.ActAsk, "ask the provider now what became of a task", `For a task that is being checked, needs review, or whose attempt has died. If the provider knows the outcome the task is closed
with it, local rows included. Anything else changes nothing; the answer is kept in the task's history.`,
		(*consumer.Operator).Ask)
}

func retryCommand() *cli.Command {
	return actCommand(consumer.ActRetry, "let a task that needs review or has failed be attempted once more", `Workers start the attempt within SETTLE_RECOVER_EVERY, under the same provider key, with a fresh budget and age limit; no message is
needed. If the task may have been sent the provider is asked before anything is sent. A task that is done at the provider and only
lacks its local rows gets them at once: nothing is sent.`, (*consumer.Operator).Retry)
}

func sendAgainCommand() *cli.Command {
	return actCommand(consumer.ActSendAgain, "retry a task, and permit one more request if the provider does not know it", `For a task that may have been sent, where the provider's key no longer protects a second request. The provider is asked first; the
request is sent only after it said twice, long enough after the last one, that it does not know the effect.`, (*consumer.Operator).SendAgain)
}

func cancelCommand() *cli.Command {
	return actCommand(consumer.ActCancel, "give up a task of which nothing can have left",
		"The task becomes failed, and its kind's local rows say so.", (*consumer.Operator).Cancel)
}

func noteCommand() *cli.Command {
	return actCommand(consumer.ActNote, "add a line to the history of a task",
		"The text is --reason. It changes nothing else and is possible for every task.", (*consumer.Operator).Note)
}

func supersedeCommand() *cli.Command {
	cmd := actCommand(consumer.ActSupersede, "give a task the content of a refused message with the same key", `For a task that needs review and of which nothing can have left: somebody published a corrected message, which was refused as a
conflict. The task takes its content, and one more attempt is due.`, nil)
	cmd.Flags = append(cmd.Flags, &cli.Int64Flag{Name: "refusal", Usage: "the `ID` of the refused message; required", Validator: positive[int64]})
	cmd.Action = act(consumer.ActSupersede, func(cmd *cli.Command) (press, error) {
		id := cmd.Int64("refusal")
		if id == 0 {
			return nil, wrongUse("--refusal is not set%s", hint(cmd))
		}
		return func(o *consumer.Operator, ctx context.Context, t idemstore.Task, p consumer.ActOptions) (consumer.Acted, error) {
			return o.Supersede(ctx, t, p, id)
		}, nil
	})
	return cmd
}

func resolveCommand() *cli.Command {
	cmd := actCommand(consumer.ActResolve, "decide what became of a task, where nobody else can tell", `For a task that is being checked, needs review, or whose attempt has died. The provider is asked first. What it surely says is taken;
if that contradicts the decision, or if it is still at work, nothing is changed. A kind that has local rows needs --result to finish by decision: its result, as
a JSON object in which no member is missing and none is unknown. --as failed stores the reason as the result.`, nil)
	cmd.Flags = append(cmd.Flags,
		&cli.StringFlag{Name: "as", Usage: "`STATUS` finished or failed; required", Validator: finalStatus},
		&cli.StringFlag{Name: "external-id", Usage: "the provider's `ID` of the effect"},
		&cli.StringFlag{Name: "result", Usage: "`FILE` with the result; - is standard input"},
		&cli.BoolFlag{Name: "force", Usage: "also over an attempt that is at work, or while the provider still is; what was sent stays sent"},
	)
	cmd.Action = act(consumer.ActResolve, func(cmd *cli.Command) (press, error) {
		r, err := rulingOf(cmd)
		return func(o *consumer.Operator, ctx context.Context, t idemstore.Task, p consumer.ActOptions) (consumer.Acted, error) {
			return o.Resolve(ctx, t, p, r)
		}, err
	})
	return cmd
}

func finalStatus(s string) error {
	if !idemstore.Status(s).Final() {
		return fmt.Errorf("must be %s or %s", idemstore.Finished, idemstore.Failed)
	}
	return nil
}

func rulingOf(cmd *cli.Command) (r consumer.Ruling, err error) {
	r = consumer.Ruling{As: idemstore.Status(cmd.String("as")), ExternalID: cmd.String("external-id"), Force: cmd.Bool("force")}
	if r.As == "" {
		return r, wrongUse("--as is not set%s", hint(cmd))
	}
	switch file := cmd.String("result"); file {
	case "":
	case "-":
		r.Result, err = io.ReadAll(cmd.Root().Reader)
	default:
		r.Result, err = os.ReadFile(file)
	}
	if err != nil {
		return r, wrongUse("--result: %w", err)
	}
	return r, nil
}

// actCommand is a verb with the flags that all of them have.
func actCommand(a consumer.Act, usage, description string, do press) *cli.Command {
	reason := "why, for the history; required"
	if a == consumer.ActAsk {
		reason = "why, for the history"
	}
	flags := []cli.Flag{
		databaseFlag(), jsonFlag(), hashKeysFlag(),
		&cli.StringFlag{Name: "reason", Usage: reason},
		&cli.StringFlag{Name: "actor", Usage: "`NAME` for the history", DefaultText: "the operating-system user"},
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would happen and change nothing; the provider may be asked"},
		&cli.IntFlag{Name: "if-attempts", Usage: "only if the task has `N` attempts, as it was shown; for one TASK", DefaultText: "any", Validator: positive[int]},
	}
	if a != consumer.ActNote {
		flags = append(flags, profileFlags()...)
	}
	return &cli.Command{
		Name: string(a), Usage: usage, ArgsUsage: "TASK...", Description: description, Flags: flags,
		Action: act(a, func(*cli.Command) (press, error) { return do, nil }),
	}
}

// profileFlags are those of settle work that shape kinds, except which.
func profileFlags() []cli.Flag {
	return slices.DeleteFunc(kindFlags(), func(f cli.Flag) bool { return f.Names()[0] == "kind" })
}
