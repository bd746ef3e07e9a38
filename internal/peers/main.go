package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/settlemq/settle/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, bench.ErrOptions):
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o bench.Options
	var only string
	var all, tune, asJSON bool
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.Jobs, "jobs", 50_000, "jobs of a measurement; slow contestants get fewer, as their settings say")
	flags.IntVar(&o.Rounds, "rounds", 5, "rounds; each measures every contestant once")
	flags.StringVar(&only, "only", "", "measure these, separated by commas; the first is compared with the others: "+
		strings.Join(names(), ", ")+", or a contestant of settle bench")
	flags.BoolVar(&all, "all", false, "measure the slow ones too, and what JetStream and PostgreSQL do alone")
	flags.BoolVar(&tune, "tune", false, "measure each of them at several concurrencies instead")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object instead")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: there are no arguments, only flags: %q", bench.ErrOptions, flags.Arg(0))
	}
	switch {
	case only != "":
		o.Only = strings.Split(only, ",")
	case tune:
		o.Only = tuned()
	case all:
		o.Only = names()
	default:
		o.Only = usual()
	}
	o.Live = said
	t, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		return t.writeJSON(os.Stdout)
	}
	return t.write(os.Stdout)
}

// said tells of each measurement when it is over.
func said(s bench.State) {
	if !s.Over {
		return
	}
	round := "warm-up"
	if s.Round > 0 {
		round = fmt.Sprintf("round %d of %d", s.Round, s.Rounds)
	}
	fmt.Fprintf(os.Stderr, "%s: %s: %.0f jobs/s\n", round, s.Contestant, s.Figures[0])
}
