package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

func pauseCommand() *cli.Command {
	return &cli.Command{
		Name:      "pause",
		Usage:     "stop a kind in all workers, now and until it is resumed",
		ArgsUsage: "KIND",
		Description: `Workers obey with their next heartbeat, and new ones from their start on. They take no more messages of the kind and
take up none of its tasks. What has been sent is not recalled; what was about to be sent is given back. Messages wait in
the stream.

With --keep-asking nothing is sent, but tasks whose outcome is unknown are asked about, so that they settle meanwhile.`,
		Flags: append(controlFlags(),
			&cli.BoolFlag{Name: "keep-asking", Usage: "go on asking the provider about tasks whose outcome is unknown"}),
		Action: action(1, 1, func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Bool("keep-asking") {
				return control(ctx, cmd, idemstore.ModeAsking)
			}
			return control(ctx, cmd, idemstore.ModePaused)
		}),
	}
}

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "let a kind run again that was paused",
		ArgsUsage:   "KIND",
		Description: "Workers obey with their next heartbeat.",
		Flags:       controlFlags(),
		Action: action(1, 1, func(ctx context.Context, cmd *cli.Command) error {
			return control(ctx, cmd, idemstore.ModeRunning)
		}),
	}
}

func controlFlags() []cli.Flag {
	return []cli.Flag{
		databaseFlag(), jsonFlag(),
		&cli.StringFlag{Name: "reason", Usage: "why, for the workers' logs and for whoever looks later; required"},
		&cli.StringFlag{Name: "actor", Usage: "`NAME` for the history", DefaultText: "the operating-system user"},
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would happen and change nothing"},
	}
}

// controlObject is what became of a pause or a resume, as --json prints it.
type controlObject struct {
	Kind    string     `json:"kind"`
	Mode    string     `json:"mode"` // that counts now; in a dry run, that would
	Was     string     `json:"was"`
	Actor   string     `json:"actor,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	At      *time.Time `json:"at,omitempty"`
	Outcome string     `json:"outcome"` // done, unchanged or dry_run
}

// control puts a kind into a mode and says so.
func control(ctx context.Context, cmd *cli.Command, mode idemstore.Mode) error {
	want := idemstore.Control{Kind: cmd.Args().First(), Mode: mode, Actor: cmp.Or(cmd.String("actor"), osUser()),
		Reason: strings.TrimSpace(cmd.String("reason"))}
	if want.Reason == "" && !cmd.Bool("dry-run") {
		return wrongUse("--reason is not set%s", hint(cmd))
	}
	return withStore(func(ctx context.Context, cmd *cli.Command, store *idemstore.Store) error {
		if err := checkKind(ctx, cmd, store, want.Kind); err != nil {
			return err
		}
		return setControl(ctx, cmd, store, want)
	})(ctx, cmd)
}

// checkKind refuses a kind that nobody has. A kind is known if this build has it, or if there is a task of it: other
// programs have kinds of their own.
func checkKind(ctx context.Context, cmd *cli.Command, store *idemstore.Store, kind string) error {
	kinds, err := knownKinds(cmd)
	if err != nil || kinds[kind] != nil {
		return err
	}
	known, err := store.KnowsKind(ctx, kind)
	if err == nil && !known {
		return wrongUse("this build knows no kind %q, and there is no task of it (see settle kinds)", kind)
	}
	return err
}

// checkKindOfNone tells --kind with a kind that nobody has from one of which there is nothing: what was found of a kind
// shows that there is one.
func checkKindOfNone(ctx context.Context, cmd *cli.Command, store *idemstore.Store, found int) error {
	if kind := cmd.String("kind"); kind != "" && found == 0 {
		return checkKind(ctx, cmd, store, kind)
	}
	return nil
}

func setControl(ctx context.Context, cmd *cli.Command, store *idemstore.Store, want idemstore.Control) error {
	was, err := controlOf(ctx, store, want.Kind)
	if err != nil {
		return err
	}
	if cmd.Bool("dry-run") {
		return printControl(cmd, controlObject{Kind: want.Kind, Mode: string(want.Mode), Was: string(was.Mode), Outcome: "dry_run"})
	}
	now, changed, err := store.SetControl(ctx, want)
	if err != nil {
		return err
	}
	o := controlObject{Kind: now.Kind, Mode: string(now.Mode), Was: string(was.Mode), Actor: now.Actor, Reason: now.Reason, Outcome: "unchanged"}
	if !now.At.IsZero() {
		o.At = &now.At
	}
	if changed {
		o.Outcome = "done"
	}
	return printControl(cmd, o)
}

// controlOf is the control of a kind that counts.
func controlOf(ctx context.Context, store *idemstore.Store, kind string) (idemstore.Control, error) {
	found, err := store.Controls(ctx, kind)
	if err != nil || len(found) == 0 {
		return idemstore.Control{Kind: kind, Mode: idemstore.ModeRunning}, err
	}
	return found[0], nil
}

func printControl(cmd *cli.Command, o controlObject) error {
	w := cmd.Root().Writer
	if cmd.Bool("json") {
		return json.NewEncoder(w).Encode(o)
	}
	var err error
	switch o.Outcome {
	case "dry_run":
		_, err = fmt.Fprintf(w, "%s: dry run, nothing is changed: it is %s and would be %s\n", story.Printable(o.Kind), modeWords(o.Was), modeWords(o.Mode))
	case "unchanged":
		_, err = fmt.Fprintf(w, "%s is %s already%s\n", story.Printable(o.Kind), modeWords(o.Mode), sinceWhen(o.At, o.Actor, o.Reason))
	default:
		_, err = fmt.Fprintf(w, "%s is %s; workers obey with their next heartbeat\n", story.Printable(o.Kind), modeWords(o.Mode))
	}
	return err
}

// since says who asked for a mode, when and why.
func sinceWhen(at *time.Time, actor, reason string) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf(", since %s by %s: %s", clock(*at), story.Printable(actor), story.Printable(reason))
}

// String is the control in one line.
func (c kindControl) String() string { return modeWords(c.Mode) + sinceWhen(c.At, c.Actor, c.Reason) }

// modeWords are the modes as a person reads them.
func modeWords(mode string) string {
	switch idemstore.Mode(mode) {
	case idemstore.ModeRunning:
		return "running"
	case idemstore.ModeAsking:
		return "paused, and goes on asking"
	case idemstore.ModePaused:
	}
	return "paused"
}

// kindModes reads how kinds are served, where a database is named. Whoever only wants to read about kinds needs none, so one
// that does not answer is no failure.
func kindModes(ctx context.Context, cmd *cli.Command, complain io.Writer) map[string]kindControl {
	if cmd.String("database-url") == "" {
		return nil
	}
	modes := map[string]kindControl{}
	err := withStore(func(ctx context.Context, _ *cli.Command, store *idemstore.Store) error {
		found, err := store.Controls(ctx)
		for _, c := range found {
			modes[c.Kind] = kindControl{Mode: string(c.Mode), Actor: c.Actor, Reason: c.Reason, At: &c.At}
		}
		return err
	})(ctx, cmd)
	if err != nil {
		fmt.Fprintf(complain, "Whether kinds are paused is not known: %v\n", err)
		return nil
	}
	return modes
}

// controlIn is how a kind is served; one that nobody asked anything of is running.
func controlIn(modes map[string]kindControl, kind string) *kindControl {
	if c, ok := modes[kind]; ok {
		return &c
	}
	return &kindControl{Mode: string(idemstore.ModeRunning)}
}
