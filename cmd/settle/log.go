package main

import (
	"log/slog"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/telemetry"
)

func logFlag() cli.Flag {
	return choiceFlag("log-level", "`LEVEL` from which on lines are logged: debug, info, warn or error",
		"info", "debug", "info", "warn", "error")
}

// newLog logs to standard error: text on a terminal, JSON otherwise.
func newLog(cmd *cli.Command) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cmd.String("log-level"))) // the flag knows only valid ones
	return telemetry.Logger(os.Stderr, isTerminal(os.Stderr), level)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
