package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/kindfile"
)

func kindsCheckCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "find what is wrong or dangerous in a file of kinds",
		ArgsUsage: "FILE",
		Description: `Tells all errors and warnings at once, with their lines. Reads nothing but the file: variables and secrets need not be
there, unless --ready is given. Exits with 3 if there are errors; warnings are for you to judge.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "ready", Usage: "also look whether the variables and files that the kinds take secrets from are there"},
			jsonFlag(),
		},
		Action: action(1, 1, checkKinds),
	}
}

func checkKinds(_ context.Context, cmd *cli.Command) error {
	path := cmd.Args().First()
	text, err := os.ReadFile(path)
	if err != nil {
		return wrongUse("%w", err)
	}
	f, problems := kindfile.Parse(path, text)
	problems = append(problems, builtInProblems(f, handlerOptions{})...)
	bad := badAmong(problems)
	if bad == 0 && cmd.Bool("ready") {
		var invalid *kindfile.InvalidError
		if errors.As(f.Ready(), &invalid) {
			problems = append(problems, invalid.Problems...)
			bad = badAmong(problems)
		}
	}
	if err := printProblems(cmd.Root().Writer, path, problems, cmd.Bool("json")); err != nil {
		return err
	}
	if bad > 0 {
		return notHeld("%s cannot be used: %d errors", path, bad)
	}
	if !cmd.Bool("json") {
		fmt.Fprintf(cmd.Root().Writer, "%s can be used: %d kinds, limits of %d built-in ones, %d warnings\n",
			path, len(f.Kinds), len(f.BuiltIn), len(problems))
	}
	return nil
}

func badAmong(problems []kindfile.Problem) (n int) {
	for _, p := range problems {
		if !p.Warning {
			n++
		}
	}
	return n
}

func printProblems(w io.Writer, path string, problems []kindfile.Problem, asJSON bool) error {
	encoder := json.NewEncoder(w)
	for _, p := range problems {
		if asJSON {
			if err := encoder.Encode(p); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s:%s\n", path, p)
	}
	return nil
}
