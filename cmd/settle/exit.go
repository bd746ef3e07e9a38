package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
)

// The exit codes that scripts rely on.
const (
	exitDone    = 0
	exitFailed  = 1 // it did not work
	exitUsage   = 2 // wrong use or configuration: trying again cannot help
	exitNotHeld = 3 // it ran, and what it checked does not hold

	// Of publish --wait. Where several fit, the smallest of all codes counts.
	exitJobFailed = 4 // a job ended as failed
	exitReview    = 5 // a job needs a person
	exitPending   = 6 // a job has no result yet; it goes on
)

// exitError carries the exit code that an error stands for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// wrongUse makes an error of wrong use or configuration.
func wrongUse(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// notHeld makes an error of a check that did not hold.
func notHeld(format string, args ...any) error {
	return &exitError{exitNotHeld, fmt.Errorf(format, args...)}
}

// exitCode prints err, if any, and gives the code it stands for.
func exitCode(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(w, "settle:", err)
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	// Actions type their errors (see action), so this one came from parsing flags and variables.
	return exitUsage
}

// action is a command that takes from least to most arguments (most -1: any number). An error that does not say
// its exit code stands for a failure.
func action(least, most int, do cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		n := cmd.Args().Len()
		if n < least {
			return wrongUse("%s is missing%s", cmd.ArgsUsage, hint(cmd))
		}
		if most >= 0 && n > most {
			return wrongUse("unexpected argument %q%s", cmd.Args().Get(most), hint(cmd))
		}
		err := do(ctx, cmd)
		var e *exitError
		switch {
		case err == nil || errors.As(err, &e):
			return err
		case errors.Is(err, idemstore.ErrSchema):
			return &exitError{exitUsage, err}
		}
		return &exitError{exitFailed, err}
	}
}

// hint tells where the right use is described.
func hint(cmd *cli.Command) string {
	return fmt.Sprintf(" (see %s --help)", cmd.FullName())
}
