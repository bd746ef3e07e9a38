package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
)

// beside is what the row of a task does not say, and whoever decides about it has to know.
type beside struct {
	stranger bool                    // this build has no such kind
	control  idemstore.Control       // whether the kind is paused
	refusals []idemstore.KeptRefusal // messages with its key and other content, the newest first
	progress *progressObject         // nil: no record of a batch
}

// refusalsShown is how many of a task's refused messages are listed.
const refusalsShown = 20

// besideOf looks it up, and at most so many records that were set aside; 0: all.
func besideOf(ctx context.Context, cmd *cli.Command, store *idemstore.Store, t idemstore.Task, aside int) (b beside, err error) {
	kinds, err := knownKinds(cmd)
	if err != nil {
		return b, err
	}
	b.stranger = kinds[t.Kind] == nil
	if b.control, err = controlOf(ctx, store, t.Kind); err != nil {
		return b, err
	}
	if b.progress, err = progressOf(ctx, store, t.TaskID, aside); err != nil {
		return b, err
	}
	b.refusals, err = store.RefusalsOf(ctx, t.TaskID, refusalsShown)
	return b, err
}

// paused says that nothing goes on for a task because its kind is paused; empty if it is not, or if nothing is to go on.
func (b beside) paused(t idemstore.Task) string {
	if b.control.Mode == idemstore.ModeRunning || t.Status.Final() {
		return ""
	}
	return modeWords(string(b.control.Mode)) + sinceWhen(&b.control.At, b.control.Actor, b.control.Reason)
}

// printRefusals lists the messages that a task's key has refused.
func (b beside) printRefusals(w io.Writer) error {
	if len(b.refusals) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nRefused messages with its key and other content (settle refusals show ID)\n")
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range b.refusals {
		again := ""
		if r.Republished != nil {
			again = "published again, as message " + fmt.Sprint(r.Republished.Sequence)
		}
		fmt.Fprintf(table, "refusal %d\t%s\t%d bytes\t%s\n", r.ID, clock(r.At), r.Size, again)
	}
	return table.Flush()
}
