package main

import (
	"log/slog"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/telemetry"
)

func logFlag() cli.Flag { return logFlagFrom("info") }

func logFlagFrom(level string) cli.Flag {
	return choiceFlag("log-level", "`LEVEL` from which on lines are logged: debug, info, warn or error",
		level, "debug", "info", "warn", "error")
}

// newLog logs to standard error: text on a terminal, JSON otherwise.
func newLog(cmd *cli.Command) *slog.Logger {
	return telemetry.Logger(os.Stderr, isTerminal(os.Stderr), logLevel(cmd), telemetryOptions(cmd)...)
}

func logLevel(cmd *cli.Command) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cmd.String("log-level"))) // the flag knows only valid ones
	return level
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
