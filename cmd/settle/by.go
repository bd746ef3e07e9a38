package main

import (
	"cmp"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
)

// byFlags say who changes something and why.
func byFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "reason", Usage: "why, for the history; required"},
		&cli.StringFlag{Name: "actor", Usage: "`NAME` for the history", DefaultText: "the operating-system user"},
	}
}

// by reads byFlags.
func by(cmd *cli.Command) (idemstore.By, error) {
	reason := strings.TrimSpace(cmd.String("reason"))
	if reason == "" && !cmd.Bool("dry-run") {
		return idemstore.By{}, wrongUse("--reason is not set%s", hint(cmd))
	}
	return idemstore.By{Actor: cmp.Or(strings.TrimSpace(cmd.String("actor")), osUser()), Reason: reason}, nil
}
