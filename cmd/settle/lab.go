//go:build !nodemo

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/lab"
)

func init() { optional = append(optional, labCommand, labWorkerCommand) }

// allLabs is the name that stands for all labs.
const allLabs = "all"

func labCommand() *cli.Command {
	return &cli.Command{
		Name:      "lab",
		Usage:     "watch what protects an effect, and what does not: short experiments on the real engine",
		ArgsUsage: "LAB",
		Description: "LAB is one of these, or all:\n\n" + labList(lab.English) + `
Each step says what happens, shows what each side believes then, and checks it. Exit code 0: all checks hold. Exit code 3:
one does not.

A PostgreSQL, a JetStream and a stand-in provider are started for the run and removed afterwards. With DATABASE_URL the
tables are those of that database, which has to be migrated; the labs use task ids and a kind of their own there, print
them first, touch no other row and leave theirs behind (NATS_URL is ignored). Several may run at the same time.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "step", Usage: "wait for Enter after each step"},
			&cli.BoolFlag{Name: "break", Usage: "show the case in which the protection of the lab is not enough"},
			&cli.StringFlag{Name: "lang", Usage: "`LANGUAGE` of the texts: en, ru", DefaultText: "from LC_ALL, LC_MESSAGES or LANG", Validator: knownLanguage},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per lab instead"},
			&cli.StringFlag{Name: "sabotage", Usage: "break one `RULE` of the provider, to see checks fail: " + lab.IgnoreKeys, Validator: knownLabSabotage},
			&cli.BoolFlag{Name: "logs", Usage: "print the workers' logs to standard error"},
			secretFlag("database-url", "DATABASE_URL", "a migrated database to use, a `URL` or keyword=value pairs; unset: a server of its own"),
		},
		Action: action(0, 1, runLab),
	}
}

func runLab(ctx context.Context, cmd *cli.Command) error {
	o, err := labOptions(cmd)
	if err != nil {
		return err
	}
	if len(o.Labs) == 0 {
		_, err := fmt.Fprintf(os.Stdout, "%s\n%s\n", labList(o.Language), lab.Hint(o.Language))
		return err
	}
	broken := []string{}
	o.Done = func(r lab.Result) error {
		for _, b := range r.Broken {
			broken = append(broken, fmt.Sprintf("lab %s, %s", r.Lab, b))
		}
		if cmd.Bool("json") {
			return json.NewEncoder(os.Stdout).Encode(r)
		}
		return nil
	}
	err = lab.Run(ctx, o)
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	case err != nil:
		return err
	case len(broken) > 0:
		return notHeld("it does not hold: %s (%d in all)", broken[0], len(broken))
	}
	return nil
}

func labOptions(cmd *cli.Command) (o lab.Options, err error) {
	o = lab.Options{
		Break: cmd.Bool("break"), Language: lab.Language(cmp.Or(cmd.String("lang"), string(lab.LanguageOf(os.Getenv)))),
		DatabaseURL: cmd.String("database-url"), Sabotage: cmd.String("sabotage"),
		Words: os.Stdout, Color: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "",
	}
	if cmd.Bool("json") {
		if cmd.Bool("step") {
			return o, wrongUse("--step and --json do not go together%s", hint(cmd))
		}
		o.Words, o.IDs = io.Discard, os.Stderr
	}
	if cmd.Bool("logs") {
		o.Logs = os.Stderr
	}
	if o.DatabaseURL != "" {
		if _, err := postgresConfig(cmd, ""); err != nil {
			return o, err
		}
	}
	if cmd.Bool("step") {
		o.Pause = pauses(os.Stdin, o.Language)
	}
	o.Labs, err = chosenLabs(cmd)
	return o, err
}

func chosenLabs(cmd *cli.Command) ([]string, error) {
	switch name := cmd.Args().First(); {
	case !cmd.Args().Present():
		return nil, nil
	case name == allLabs:
		return lab.Names(), nil
	case slices.Contains(lab.Names(), name):
		return []string{name}, nil
	default:
		return nil, wrongUse("unknown lab %q; known are %s, %s", name, strings.Join(lab.Names(), ", "), allLabs)
	}
}

// labList is a line for each lab.
func labList(l lab.Language) string {
	var out strings.Builder
	for _, name := range lab.Names() {
		fmt.Fprintf(&out, "  %-12s %s\n", name, lab.Summary(name, l))
	}
	return out.String()
}

// pauses waits for a line of input each time it is called. After the end of the input it no longer waits.
func pauses(input io.Reader, l lab.Language) func(context.Context) error {
	lines := make(chan struct{})
	go func() { // ends with the program: reading from a terminal cannot be cut short
		defer close(lines)
		for in := bufio.NewScanner(input); in.Scan(); {
			lines <- struct{}{}
		}
	}()
	return func(ctx context.Context) error {
		fmt.Fprint(os.Stderr, lab.PauseText(l))
		select {
		case <-lines:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func knownLanguage(name string) error {
	for _, l := range lab.Languages() {
		if name == string(l) {
			return nil
		}
	}
	return errors.New("must be one of en, ru")
}

func knownLabSabotage(name string) error {
	if name != lab.IgnoreKeys {
		return fmt.Errorf("must be %s", lab.IgnoreKeys)
	}
	return nil
}

// labWorkerCommand is a worker process of a lab.
func labWorkerCommand() *cli.Command {
	return &cli.Command{
		Name: "lab-worker", Hidden: true, Usage: "a worker of settle lab, which starts it",
		Action: action(0, 0, func(ctx context.Context, _ *cli.Command) error {
			err := lab.Work(ctx)
			if errors.Is(err, consumer.ErrProofAge) {
				return wrongUse("%w", err)
			}
			return stopped(ctx, err)
		}),
	}
}
