package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// listedAside is how many records that were set aside are listed, unless asked for more.
const listedAside = 20

func setAsideFlag() cli.Flag {
	return &cli.IntFlag{
		Name: "set-aside", Value: listedAside, Validator: atLeastNone,
		Usage: "list at most `N` records of a batch that were set aside, 0: all; with --json all unless given",
	}
}

// asideLimit is how many are to be listed; 0: all.
func asideLimit(cmd *cli.Command) int {
	if cmd.Bool("json") && !cmd.IsSet("set-aside") {
		return 0
	}
	return cmd.Int("set-aside")
}

func atLeastNone(n int) error {
	if n < 0 {
		return errors.New("must be 0 (all) or more")
	}
	return nil
}

// progressObject is how far a task has come whose kind works record by record.
type progressObject struct {
	Done         int           `json:"done"`      // records that are done or set aside
	Total        int           `json:"total"`     // of the job
	SetAside     int           `json:"set_aside"` // records that could not be done
	QuietSeconds float64       `json:"quiet_seconds"`
	Aside        []asideObject `json:"set_aside_records,omitempty"`
}

// asideObject is a record that was set aside.
type asideObject struct {
	Index  int    `json:"index"` // in the job, from 0
	Reason string `json:"reason"`
}

// progressOf reads how far a task has come; nil if it has no records, or none yet. limit 0 lists all that were set aside.
func progressOf(ctx context.Context, store *idemstore.Store, task int64, limit int) (*progressObject, error) {
	p, err := store.Progress(ctx, task)
	if err != nil || p.Done == 0 {
		return nil, err
	}
	out := &progressObject{Done: p.Done, Total: p.Total, SetAside: p.SetAside, QuietSeconds: p.Quiet.Seconds()}
	if p.SetAside == 0 {
		return out, nil
	}
	aside, err := store.StepsSetAside(ctx, task, limit)
	for _, s := range aside {
		out.Aside = append(out.Aside, asideObject{s.Index, s.Reason})
	}
	return out, err
}

// line is progress in one line; of a task that is not final also when it last got on.
func (p *progressObject) line(final bool) string {
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("record %s of %s, %s set aside", story.Grouped(p.Done), story.Grouped(p.Total), story.Grouped(p.SetAside))
	if !final {
		text += ", last progress " + story.Ago(time.Duration(p.QuietSeconds*float64(time.Second)))
	}
	return text
}

func (p *progressObject) printAside(w io.Writer) error {
	if p == nil || len(p.Aside) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nSet aside (records count from 0)\n")
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, a := range p.Aside {
		fmt.Fprintf(table, "record %d\t%s\n", a.Index, story.Printable(a.Reason))
	}
	if more := p.SetAside - len(p.Aside); more > 0 {
		fmt.Fprintf(table, "and %s more: --set-aside 0 lists all\n", story.Grouped(more))
	}
	return table.Flush()
}
