//go:build !nodemo

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/soak"
)

func init() { optional = append(optional, soakCommand) }

func soakCommand() *cli.Command {
	return &cli.Command{
		Name:  "soak",
		Usage: "run many jobs through worker processes while everything breaks at random, and count the effects",
		Description: `Starts servers and workers of its own (DATABASE_URL and NATS_URL are ignored) and publishes charges and as many
events of contacts, a third of them more than once. Meanwhile workers are killed, frozen for longer than their lease and drained, the provider acts, answers and looks up too
late, wrongly or not at all, connections are cut, and PostgreSQL and the broker are killed and started again. When all has come to
rest it reads the provider's tables. Exit code 0: one charge, one event and one receipt for each order, each contact as its
newest event says, nothing lost, nothing pending, nobody needed. Exit code 3: that does not hold; the log says what had been done. The same seed gives the same schedule of faults.
With --faults ` + soak.Amnesia + ` the provider ignores keys, which no client can make good: a run with it has to fail.`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "jobs", Usage: "orders to charge", Value: 10000, Validator: positive[int]},
			&cli.IntFlag{Name: "workers", Usage: "worker processes", Value: 3, Validator: positive[int]},
			&cli.Uint64Flag{Name: "seed", Usage: "of the schedule", DefaultText: "random"},
			&cli.StringSliceFlag{Name: "faults", Usage: "only these `FAULTS`: " + strings.Join(soak.Names(), ", "), DefaultText: "all",
				Value: soak.Names(), Validator: soak.CheckFaults},
			&cli.DurationFlag{Name: "every", Usage: "mean time between two faults", Value: 400 * time.Millisecond, Validator: positive[time.Duration]},
			&cli.StringFlag{Name: "log", Usage: "write the fault log to this `FILE`", DefaultText: "standard error, if something does not hold"},
			&cli.StringFlag{Name: "worker-log", Usage: "add the workers' logs to this `FILE`", DefaultText: "none"},
			jsonFlag(),
		},
		Action: action(0, 0, runSoak),
	}
}

func runSoak(ctx context.Context, cmd *cli.Command) (err error) {
	var kept strings.Builder
	o := soak.Options{Jobs: cmd.Int("jobs"), Workers: cmd.Int("workers"), Seed: cmd.Uint64("seed"), Faults: cmd.StringSlice("faults"),
		Every: cmd.Duration("every"), WorkLogs: cmd.String("worker-log"), Log: &kept, Live: liveSoak(os.Stderr)}
	if o.Seed == 0 {
		o.Seed = 1 + rand.Uint64N(1_000_000) //nolint:gosec // a name for a schedule
	}
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	defs, err := definitions(handlerOptions{})
	if err != nil {
		return err
	}
	kinds, err := byName(defs, handlerOptions{}.base)
	if err != nil {
		return err
	}
	o.Charge, o.Contact = kinds["payment.charge"], kinds["contact.sync"]
	if name := cmd.String("log"); name != "" {
		file, err := os.Create(name)
		if err != nil {
			return wrongUse("--log: %w", err)
		}
		defer file.Close()
		o.Log = io.MultiWriter(file, &kept)
	}
	fmt.Fprintf(os.Stderr, "soak: %d jobs, %d workers, seed %d\n", o.Jobs, o.Workers, o.Seed)
	report, err := soak.Run(ctx, o)
	if err != nil {
		return err
	}
	if err := printSoak(os.Stdout, report, cmd.Bool("json")); err != nil {
		return err
	}
	if report.OK {
		return nil
	}
	if cmd.String("log") == "" {
		fmt.Fprint(os.Stderr, kept.String())
	}
	return notHeld("the promise was not kept: %s (%d findings, seed %d)", report.Broken[0], len(report.Broken), report.Seed)
}

// liveSoak shows how far a run is: on a terminal in one line, else now and then.
func liveSoak(w *os.File) func(soak.State) {
	every, terminal := 30, isTerminal(w)
	n := 0
	return func(s soak.State) {
		if n++; !terminal && n%every != 0 {
			return
		}
		seconds := max(time.Since(s.Began).Seconds(), 1)
		line := fmt.Sprintf("done %d of %d · effects %d · unknown %d · parked %d · faults %d · kills %d · %.0f/s",
			s.Done, s.Published, s.Effects, s.Unknown, s.Parked, s.Faults, s.Kills, float64(s.Done)/seconds)
		if terminal {
			fmt.Fprintf(w, "\r\033[K%s", line)
			return
		}
		fmt.Fprintln(w, line)
	}
}

func printSoak(w io.Writer, r soak.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	fmt.Fprintf(w, "\n%d jobs in %d messages, %d attempts, %d requests for an effect, %d repeats answered, in %.0f s (%.0f/s)\n",
		r.Jobs, r.Messages, r.Attempts, r.Requests, r.Duplicates, r.Seconds, float64(r.Jobs)/r.Seconds)
	for _, name := range soak.Names() {
		if n := r.Faults[name]; n > 0 {
			fmt.Fprintf(w, "  %-12s %d\n", name, n)
		}
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "NOT KEPT  %s\n", b)
	}
	if r.OK {
		fmt.Fprintf(w, "One charge, one event and one receipt for each of %d orders; as many events of contacts, each recorded once. "+
			"Nothing lost, nothing pending, nobody needed. (seed %d)\n", r.Jobs, r.Seed)
	}
	return nil
}
