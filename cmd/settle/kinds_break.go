//go:build !nodemo

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/kindbreak"
	"github.com/settlemq/settle/internal/kindfile"
)

func init() {
	ofKinds = append(ofKinds, kindsBreakCommand)
	optional = append(optional, breakWorkerCommand)
}

func kindsBreakCommand() *cli.Command {
	return &cli.Command{
		Name:      "break",
		Usage:     "run a kind of a file against a sandbox of its provider while everything goes wrong, and count the effects",
		ArgsUsage: "FILE",
		Description: `Starts servers of its own and a worker (DATABASE_URL and NATS_URL are ignored), and stands between it and the provider at --url.
Each story takes one of --jobs, which are to be new to the provider: nothing goes wrong, the job comes twice at once, the worker is killed
before and after the effect, the answer is lost or a server error, look-ups fail for a while. Each job is published once more when it
is over. EFFECTS ARE REAL at whatever --url names: name a sandbox. Exit code 0: one effect for each job, counted by the ids that the
provider answers with, and nobody needed. Exit code 3: that does not hold, and the story says what would have happened.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "the `URL` of the sandbox, in place of the file's provider.url", Required: true},
			&cli.StringFlag{Name: "jobs", Usage: "a `FILE` with one JSON job per line, -: standard input", Required: true},
			&cli.StringFlag{Name: "kind", Usage: "which `KIND` of the file", DefaultText: "the only one"},
			&cli.DurationFlag{Name: "limit", Usage: "how long one story may take", Value: 2 * time.Minute, Validator: positive[time.Duration]},
			&cli.StringFlag{Name: "worker-log", Usage: "add the worker's log to this `FILE`", DefaultText: "none"},
			jsonFlag(),
		},
		Action: action(1, 1, breakKind),
	}
}

func breakKind(ctx context.Context, cmd *cli.Command) error {
	path := cmd.Args().First()
	kind, err := kindToBreak(path, cmd.String("kind"))
	if err != nil {
		return err
	}
	at, err := url.Parse(cmd.String("url"))
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return wrongUse("--url: want an http or https URL")
	}
	jobs, err := readJobs(cmd.String("jobs"))
	if err != nil {
		return wrongUse("--jobs: %w", err)
	}
	logs, err := createNamed(cmd, "worker-log")
	if err != nil {
		return err
	}
	defer logs.Close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o := kindbreak.Options{Kind: kind, URL: at, Jobs: jobs, Limit: cmd.Duration("limit"), Live: tellStory(cmd), Logs: io.Discard,
		Worker: func() *exec.Cmd {
			return exec.Command(program, "--"+kindsFile, path, "break-worker", "--kind", kind.Name) //nolint:gosec,noctx // our own program; it is stopped at the end
		}}
	if logs != nil {
		o.Logs = logs
	}
	told, err := kindbreak.Run(ctx, o)
	switch {
	case errors.Is(err, kindbreak.ErrJobs):
		return wrongUse("--jobs: %w", err)
	case err != nil:
		return err
	}
	if broken := len(told) - countHeld(told); broken > 0 {
		return notHeld("%d of %d stories do not hold", broken, len(told))
	}
	return nil
}

// kindToBreak reads a file and chooses one of its kinds. What it takes from variables and files has to be there.
func kindToBreak(path, name string) (*kindfile.Kind, error) {
	f, err := kindfile.Read(path)
	if err != nil {
		return nil, wrongUse("%w", err)
	}
	var names []string
	for _, k := range f.Kinds {
		names = append(names, k.Name)
	}
	i := slices.Index(names, name)
	if name == "" && len(names) == 1 {
		i = 0
	}
	if i < 0 {
		return nil, wrongUse("--kind: the file has %s", strings.Join(names, ", "))
	}
	return f.Kinds[i], nil
}

// readJobs reads one job a line; empty lines are none.
func readJobs(name string) (jobs [][]byte, err error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			jobs = append(jobs, bytes.Clone(line))
		}
	}
	return jobs, lines.Err()
}

func tellStory(cmd *cli.Command) func(kindbreak.Told) {
	w := cmd.Root().Writer
	return func(t kindbreak.Told) {
		if cmd.Bool("json") {
			_ = json.NewEncoder(w).Encode(t) // a full pipe shows in the exit code of whoever reads
			return
		}
		mark := "holds "
		if !t.Holds {
			mark = "BROKEN"
		}
		fmt.Fprintf(w, "%s  %s: %s (%.1f s)\n", mark, t.Story, t.Says, t.Seconds)
	}
}

func countHeld(told []kindbreak.Told) (n int) {
	for _, t := range told {
		if t.Holds {
			n++
		}
	}
	return n
}

// breakWorkerCommand is settle work with the kinds of the file alone, whose provider is at --provider-url.
func breakWorkerCommand() *cli.Command {
	cmd := workCommand()
	cmd.Name, cmd.Hidden = "break-worker", true
	m := ordinary
	m.kinds = func(o handlerOptions) (defs []consumer.Definition, err error) {
		f, err := o.readKindsFile()
		if err != nil {
			return nil, err
		}
		for _, k := range f.Kinds {
			def, err := k.Definition(kindfile.Options{URL: o.url, Policy: o.policy})
			if err != nil {
				return nil, unusableKinds(err)
			}
			defs = append(defs, def)
		}
		return defs, nil
	}
	cmd.Action = action(0, 0, func(ctx context.Context, cmd *cli.Command) error { return workWith(ctx, cmd, m) })
	return cmd
}
