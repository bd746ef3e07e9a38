//go:build !nodemo

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/demo"
)

func init() { optional = append(optional, demoCommand, demoWorkerCommand) }

const defaultDemoJobs = 60

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "run the main job on real parts, with crashes, and prove that each effect happened once",
		Description: `Starts a PostgreSQL, a JetStream, the stand-in provider and two worker processes of its own (DATABASE_URL and
NATS_URL are ignored), publishes charges and reports with duplicates, and contact events in any order, kills and freezes
workers in mid-call, lets calls time out after the effect, and then reads the provider's own tables. Exit code 0: one
effect for each key, nothing lost, nothing pending, one event and one receipt for each charge, each contact as its newest event says.
Exit code 3: that does not hold. Ctrl-C stops every process.`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "jobs", Usage: "business keys, at least " + fmt.Sprint(demo.LeastJobs), Value: defaultDemoJobs},
			&cli.Uint64Flag{Name: "seed", Usage: "the same seed gives the same story", DefaultText: "random"},
			&cli.StringFlag{Name: "sabotage", Usage: "break one `RULE`, to see the proof fail: " + sabotageNames()},
			&cli.BoolFlag{Name: "keep", Usage: "leave everything running until Ctrl-C, and print how to use it"},
			&cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object"},
			&cli.StringFlag{Name: "otlp", Usage: "send traces to a Jaeger at this `URL`, such as http://127.0.0.1:4317, and print where to look"},
		},
		Action: action(0, 0, runDemo),
	}
}

func runDemo(ctx context.Context, cmd *cli.Command) error {
	o, err := demoOptions(cmd)
	if err != nil {
		return err
	}
	stopTraces, err := traceDemo(ctx, cmd.String("otlp"), &o)
	if err != nil {
		return err
	}
	defer stopTraces()
	report, err := demo.Run(ctx, o)
	if ctx.Err() != nil && !report.OK {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	if err := printDemo(os.Stdout, report, cmd.Bool("json"), o.Keep); err != nil {
		return err
	}
	if !report.OK {
		return notHeld("the claim does not hold: %s (%d in all)", report.Broken[0], len(report.Broken))
	}
	return nil
}

func demoOptions(cmd *cli.Command) (o demo.Options, err error) {
	o = demo.Options{Jobs: cmd.Int("jobs"), Seed: cmd.Uint64("seed"), Keep: cmd.Bool("keep"),
		Words: os.Stdout, Progress: os.Stderr, Terminal: isTerminal(os.Stderr)}
	if cmd.Bool("json") {
		o.Words = os.Stderr
	}
	if o.Jobs < demo.LeastJobs {
		return o, wrongUse("--jobs is %d; at least %d are needed, one for each misfortune", o.Jobs, demo.LeastJobs)
	}
	if !cmd.IsSet("seed") {
		o.Seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	if name := cmd.String("sabotage"); name != "" {
		if o.Sabotage, err = demo.ParseSabotage(name); err != nil {
			return o, wrongUse("%w", err)
		}
	}
	defs, err := definitions(handlerOptions{})
	if err != nil {
		return o, err
	}
	o.Kinds, err = byName(defs, consumer.Policy{})
	return o, err
}

func printDemo(w io.Writer, r demo.Report, asJSON, printed bool) error {
	switch {
	case asJSON:
		return json.NewEncoder(w).Encode(r)
	case !printed:
		r.Print(w)
	}
	return nil
}

func sabotageNames() string {
	var names []string
	for _, s := range demo.Sabotages() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// demoWorkerCommand is settle work as the demo starts it: the same worker, with kinds that misbehave on cue.
func demoWorkerCommand() *cli.Command {
	cmd := workCommand()
	cmd.Name, cmd.Hidden = "demo-worker", true
	cmd.Action = action(0, 0, func(ctx context.Context, cmd *cli.Command) error {
		return workWith(ctx, cmd, makings{kinds: demoDefinitions, jetStream: demo.JetStream, config: demo.Config})
	})
	return cmd
}

func demoDefinitions(o handlerOptions) ([]consumer.Definition, error) {
	api, err := handlers.NewClient(handlers.ClientOptions{URL: o.url, Timeout: o.timeout})
	if err != nil {
		return nil, err
	}
	return []consumer.Definition{
		demo.Kind(handlers.Charge(api, handlers.ChargeOptions{Provider: o.profile, CreateOrders: o.createOrders, Receipts: true})),
		demo.Kind(handlers.Report(api, handlers.ReportOptions{Provider: o.profile})),
		handlers.Contact(handlers.ContactOptions{}),
		handlers.Receipt(handlers.ReceiptOptions{}),
	}, nil
}
