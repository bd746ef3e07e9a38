package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/bench"
	"github.com/settlemq/settle/internal/story"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure jobs per second, latency and recovery on this machine, beside a hand-written loop",
		Description: `Measures each contestant once without counting it, and then once a round, each round beginning with the next one. Figures
are for one machine; the ratios of one run are what they are for. The last columns of a table say what a job waits for.

  loop         insert, update and confirmed ack by hand, which the others of its table are compared with
  external     a kind with a provider, whose effect takes no time
  emitting     the same with one event per job
  local        a kind without a provider
  duplicates   messages whose keys are finished
  metrics      external with the metrics of settle work, scraped; traced: with every trace sent to --collector, too;
               sampled: with one trace of a hundred
  latency      one job at a time, from its publish to the confirmed ack, beside the loop
  effect       an effect of 20 ms in 128 slots, and what that is of the 6,400/s that are possible
  growth       external with --rows finished rows in the table, beside an empty table
  search       2,000 jobs/s offered beside 200 searches/s on the support screen, with --rows finished rows in the table
  archive      2,000 jobs/s offered and how long their claims take, beside the archiving of --rows expired rows
  workers      external with one, two and four workers on one consumer, each with --slots
  recovery     --stuck unknown rows with a look-up that answers at once, and what live jobs keep of their rate

A PostgreSQL with its default durability and a JetStream (file store, one replica) are started for the run and removed
afterwards. With DATABASE_URL and NATS_URL those servers are used instead: databases, kinds and consumers whose names hold
bench_ and a random number are made there (the role needs CREATEDB) and removed at the end, and nothing else is touched. The
streams JOBS and EVENTS are made if they are missing, and then removed too. A run that is killed leaves what it has made.`,
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "jobs", Usage: "jobs per measurement", Value: 20000, Validator: positive[int]},
			&cli.IntFlag{Name: "rounds", Usage: "rounds; each measures every contestant once", Value: 3, Validator: positive[int]},
			&cli.IntFlag{Name: "slots", Usage: "jobs performed at once", Value: 512, Validator: positive[int]},
			&cli.IntFlag{Name: "rows", Usage: "finished rows in the tables of growth, search and archive", Value: 200_000, Validator: positive[int]},
			&cli.IntFlag{Name: "stuck", Usage: "unknown rows of recovery", Value: 20_000, Validator: positive[int]},
			&cli.StringSliceFlag{Name: "only", Usage: "measure these `CONTESTANTS`, the first of a table being what others are compared with: " +
				strings.Join(bench.Names(), ", "), DefaultText: "all but metrics, traced, sampled, search, workers and archive"},
			&cli.StringFlag{Name: "collector", Usage: "where traced and sampled send traces: the `URL` of an OTLP collector (gRPC); make jaeger runs one"},
			&cli.StringFlag{Name: "cpuprofile", Usage: "write a CPU profile of the run to this `FILE`"},
			&cli.StringFlag{Name: "plot", Usage: "draw the medians to this `FILE`, an SVG"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object instead"},
			secretFlag("database-url", "DATABASE_URL", "a server to use, a `URL` or keyword=value pairs; unset: one of its own"),
			secretFlag("nats-url", "NATS_URL", "servers to use, one `URL` or several, separated by commas; unset: one of its own"),
		}, natsFlags()[1:]...),
		Action: action(0, 0, runBench),
	}
}

func runBench(ctx context.Context, cmd *cli.Command) (err error) {
	o := bench.Options{
		Jobs: cmd.Int("jobs"), Rounds: cmd.Int("rounds"), Slots: cmd.Int("slots"), Rows: cmd.Int("rows"), Stuck: cmd.Int("stuck"),
		Only: cmd.StringSlice("only"), Collector: cmd.String("collector"), DatabaseURL: cmd.String("database-url"), Live: liveBench(os.Stderr),
	}
	if err := o.Check(); err != nil {
		return wrongUse("%w", err)
	}
	if o.DatabaseURL != "" {
		if _, err := postgresConfig(cmd, ""); err != nil {
			return err
		}
	}
	if cmd.String("nats-url") != "" {
		if o.Conn, err = connectNATS(cmd, "settle-bench"); err != nil {
			return err
		}
		defer o.Conn.Close()
	}
	plot, err := createNamed(cmd, "plot")
	if err != nil {
		return err
	}
	defer plot.Close()
	report, err := profiled(cmd, func() (*bench.Report, error) { return bench.Run(ctx, o) })
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	if plot != nil {
		if err := report.Plot(plot); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if cmd.Bool("json") {
		return json.NewEncoder(os.Stdout).Encode(report)
	}
	return report.Print(os.Stdout)
}

// createNamed creates the file that a flag names; nil, which may be closed all the same, if it names none.
func createNamed(cmd *cli.Command, flag string) (*os.File, error) {
	name := cmd.String(flag)
	if name == "" {
		return nil, nil //nolint:nilnil // no file is no error
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, wrongUse("--%s: %w", flag, err)
	}
	return file, nil
}

// profiled runs f, with a CPU profile if there is a file for it.
func profiled(cmd *cli.Command, f func() (*bench.Report, error)) (r *bench.Report, err error) {
	out, err := createNamed(cmd, "cpuprofile")
	if err != nil || out == nil {
		if err != nil {
			return nil, err
		}
		return f()
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, fmt.Errorf("--cpuprofile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return f()
}

// liveBench shows how far a run is: on a terminal in one line, elsewhere a line for each measurement.
func liveBench(w *os.File) func(bench.State) {
	terminal := isTerminal(w)
	return func(s bench.State) {
		round := fmt.Sprintf("round %d of %d", s.Round, s.Rounds)
		if s.Round == 0 {
			round = "warm-up"
		}
		switch {
		case s.Over:
			if terminal {
				fmt.Fprint(w, "\r\033[K")
			}
			fmt.Fprintf(w, "%s: %s: %s\n", round, s.Contestant, figuresOf(s))
		case !terminal:
		case s.Of == 0:
			fmt.Fprintf(w, "\r\033[K%s: %s: getting ready", round, s.Contestant)
		default:
			fmt.Fprintf(w, "\r\033[K%s: %s: %s of %s, %.0f/s", round, s.Contestant, story.Grouped(s.Done), story.Grouped(s.Of),
				float64(s.Done)/max(s.For, time.Millisecond).Seconds())
		}
	}
}

func figuresOf(s bench.State) string {
	texts := make([]string, len(s.Figures))
	for i, v := range s.Figures {
		texts[i] = bench.Number(v) + " " + s.Units[i]
	}
	return strings.Join(texts, ", ")
}
