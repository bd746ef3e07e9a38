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

// maxReason is what the history keeps of a reason, with room for what it says by itself.
const maxReason = 1800

// by reads byFlags.
func by(cmd *cli.Command) (idemstore.By, error) {
	reason := strings.TrimSpace(cmd.String("reason"))
	if reason == "" && !cmd.Bool("dry-run") {
		return idemstore.By{}, wrongUse("--reason is not set%s", hint(cmd))
	}
	if len(reason) > maxReason {
		return idemstore.By{}, wrongUse("--reason has %d bytes; at most %d are kept", len(reason), maxReason)
	}
	return idemstore.By{Actor: cmp.Or(strings.TrimSpace(cmd.String("actor")), osUser()), Reason: reason}, nil
}
