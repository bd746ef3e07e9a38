package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/settlemq/settle/internal/admin/access"
)

func adminUserCommand() *cli.Command {
	return &cli.Command{
		Name:     "user",
		Usage:    "say who may sign in to the support screen",
		Commands: []*cli.Command{addUserCommand(), listUsersCommand(), removeUserCommand()},
		Action:   chooseSubcommand,
	}
}

func addUserCommand() *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "add a person, with a password, or a script, with a token",
		ArgsUsage: "NAME",
		Description: `The password is asked for twice, without showing it; where standard input is no terminal, it is its first line. It is never
an argument: those are visible to everybody on the host. The file keeps a hash and is made if it is missing. A running
settle admin reads it again by itself.`,
		Flags: []cli.Flag{
			usersFlag(),
			&cli.StringFlag{Name: "role", Usage: "what the user may do: viewer (look) or operator (act, too)", Value: string(access.Viewer)},
			&cli.BoolFlag{Name: "generate", Usage: "make a password, and print it, once"},
			&cli.BoolFlag{Name: "token", Usage: "make a token for Authorization: Bearer instead of a password, and print it, once"},
			&cli.BoolFlag{Name: "replace", Usage: "give a user who is there already the new role and secret"},
		},
		Action: action(1, 1, addUser),
	}
}

func addUser(_ context.Context, cmd *cli.Command) error {
	path, err := needed(cmd, "admin-users", variableOf("admin-users"))
	if err != nil {
		return err
	}
	name, role, replace := cmd.Args().First(), access.Role(cmd.String("role")), cmd.Bool("replace")
	if cmd.Bool("token") && cmd.Bool("generate") {
		return wrongUse("--token and --generate exclude each other%s", hint(cmd))
	}
	if err := access.CheckUser(name, role); err != nil {
		return wrongUse("%w", err)
	}
	secret := ""
	switch {
	case cmd.Bool("token"):
		secret, err = access.AddToken(path, name, role, replace)
	case cmd.Bool("generate"):
		secret = access.GeneratePassword()
		err = access.AddUser(path, name, role, secret, replace)
	default:
		err = addWithPassword(cmd, path, name, role, replace)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.Root().ErrWriter, "%s is %s %s.\n", name, article(role), role)
	if secret != "" {
		fmt.Fprintln(cmd.Root().ErrWriter, "Keep what follows: it is shown once and stored nowhere.")
		fmt.Fprintln(cmd.Root().Writer, secret)
	}
	return nil
}

func addWithPassword(cmd *cli.Command, path, name string, role access.Role, replace bool) error {
	password, err := readPassword(cmd.Root().Reader, cmd.Root().ErrWriter)
	if err != nil {
		return err
	}
	if err := access.CheckPassword(name, password); err != nil {
		return wrongUse("%w", err)
	}
	return access.AddUser(path, name, role, password, replace)
}

func article(role access.Role) string {
	if role == access.Operator {
		return "an"
	}
	return "a"
}

// readPassword asks a person twice; anything else sends it as a line.
func readPassword(in io.Reader, ask io.Writer) (string, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	var typed [2]string
	for i, prompt := range []string{"Password: ", "Once more: "} {
		fmt.Fprint(ask, prompt)
		text, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(ask)
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		typed[i] = string(text)
	}
	if typed[0] != typed[1] {
		return "", wrongUse("the two passwords differ")
	}
	return typed[0], nil
}

func listUsersCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list who may sign in, and as what",
		Flags: []cli.Flag{usersFlag(), jsonFlag()},
		Action: action(0, 0, func(_ context.Context, cmd *cli.Command) error {
			path, err := needed(cmd, "admin-users", variableOf("admin-users"))
			if err != nil {
				return err
			}
			users, err := access.Users(path)
			if err != nil {
				return err
			}
			return printUsers(cmd.Root().Writer, users, cmd.Bool("json"))
		}),
	}
}

func printUsers(w io.Writer, users []access.User, asJSON bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, u := range users {
		if asJSON {
			line := struct {
				Name string      `json:"name"`
				Role access.Role `json:"role"`
				Via  access.Via  `json:"via"`
			}{u.Name, u.Role, u.Via()}
			if err := json.NewEncoder(w).Encode(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", u.Name, u.Role, u.Via())
	}
	return table.Flush()
}

func removeUserCommand() *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "remove a user: sessions and token end at once",
		ArgsUsage: "NAME",
		Flags:     []cli.Flag{usersFlag()},
		Action: action(1, 1, func(_ context.Context, cmd *cli.Command) error {
			path, err := needed(cmd, "admin-users", variableOf("admin-users"))
			if err != nil {
				return err
			}
			if err := access.RemoveUser(path, cmd.Args().First()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.Root().ErrWriter, "%s is removed.\n", cmd.Args().First())
			return nil
		}),
	}
}
