package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/build"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:   "version",
		Usage:  "print which build this is and which database schema it needs",
		Flags:  []cli.Flag{jsonFlag()},
		Action: action(0, 0, printVersion),
	}
}

func printVersion(_ context.Context, cmd *cli.Command) error {
	info := build.Read()
	if cmd.Bool("json") {
		return json.NewEncoder(cmd.Root().Writer).Encode(struct {
			build.Info
			Schema int `json:"schema"`
		}{info, settle.SchemaVersion})
	}
	_, err := fmt.Fprintf(cmd.Root().Writer, "settle %s%s, %s, database schema %d\n",
		info.Version, commit(info), info.Go, settle.SchemaVersion)
	return err
}

func commit(info build.Info) string {
	switch {
	case info.Revision == "":
		return ""
	case info.Modified:
		return " (" + info.Revision + ", modified)"
	}
	return " (" + info.Revision + ")"
}
