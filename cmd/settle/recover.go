package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
	"github.com/settlemq/settle/internal/telemetry"
)

// The widest values of a recovery by hand. A limit that lets everything through is none.
const (
	longestWindow = 10 * 365 * 24 * time.Hour
	largestLimit  = 100_000
)

func recoverCommand() *cli.Command {
	return &cli.Command{
		Name:  "recover",
		Usage: "settle tasks that are stuck: started and left, or unknown, with or without their message",
		Description: `Workers do this by themselves every --recover-every; this command does it now, for the tasks of a window of time,
and says what came of each. The provider is asked before anything is sent again; what another worker holds, or what
is not due, is skipped; tasks that were parked because budget or age was used up are asked about, at most once an hour,
and never sent. It is safe beside workers and other recoveries. It needs no NATS.

Takes the flags and variables of settle work that shape a kind. --dry-run says what would happen to each task now, and
reads only. Outcomes: settled, parked (needs a person now), open (tried, becomes due again), still_parked, skipped; in a
dry run would_ask, would_perform, would_park, skipped. Exit code 1 if a task is not settled; 2, and nothing is done, if
more tasks match than --limit.`,
		Flags:  recoverFlags(),
		Action: action(0, 0, recoverTasks),
	}
}

func recoverFlags() []cli.Flag {
	after := variableOf("recover-after")
	flags := append([]cli.Flag{databaseFlag()}, kindFlags()...)
	flags = append(flags, traceFlags()...)
	return append(flags,
		&cli.DurationFlag{Name: "older-than", Usage: "only tasks created at least this long ago", Value: defaults.RecoverAfter,
			DefaultText: story.Short(defaults.RecoverAfter), Sources: from(after), Validator: atLeast(after, 0, story.Short)},
		&cli.DurationFlag{Name: "window", Usage: "only tasks created at most this long ago; more than --older-than", Value: 24 * time.Hour,
			DefaultText: "24h", Validator: upTo(longestWindow)},
		&cli.IntFlag{Name: "limit", Usage: "do nothing if more than `N` tasks match; 1 to 100000", Value: 100, Validator: within(1, largestLimit)},
		&cli.BoolFlag{Name: "dry-run", Usage: "only say what would happen"},
		&cli.StringFlag{Name: "reason", Usage: "why, for the history; required unless --dry-run"},
		&cli.StringFlag{Name: "actor", Usage: "`NAME` for the history", DefaultText: "the operating-system user"},
		countFlag("slots", "tasks taken up at once, per kind", defaults.Slots, 1),
		durationFlag("lease", "how long an attempt owns its task without a heartbeat; 1s to 1h", 30*time.Second, time.Second),
		durationFlag("drain-timeout", "grace for what is under way after Ctrl-C", defaults.DrainTimeout, anyPositive),
		logFlagFrom("error"), jsonFlag(),
	)
}

func recoverTasks(ctx context.Context, cmd *cli.Command) error {
	options, err := recoverOptions(cmd)
	if err != nil {
		return err
	}
	kinds, err := callingKinds(cmd, definitions)
	if err != nil {
		return err
	}
	out := newRecoverReport(cmd, options)
	options.Matched = out.begin
	log := telemetry.Logger(out.beside(os.Stderr), isTerminal(os.Stderr), logLevel(cmd), telemetryOptions(cmd)...)
	tracing, err := telemetry.Setup(ctx, "settle-recover", log, telemetryOptions(cmd)...)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	pool, err := openPool(ctx, cmd, "settle-recover", false, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine, err := consumer.New(pool, nil, consumer.Config{Slots: cmd.Int("slots"), Lease: cmd.Duration("lease"), Policy: policy(cmd),
		DrainTimeout: cmd.Duration("drain-timeout"), LinkTraces: linksTraces(cmd), Logger: log, TracerProvider: tracing.TracerProvider()}, kinds...)
	if err != nil {
		return wrongUse("%w", err)
	}
	return errors.Join(recoverError(engine.Recover(ctx, options, out.add)), out.end())
}

// recoverError tells refusals, after which nothing was done, from failures.
func recoverError(err error) error {
	switch {
	case errors.Is(err, consumer.ErrTooMany):
		return wrongUse("%w; nothing was done: narrow --kind, --window or --older-than, or raise --limit", err)
	case errors.Is(err, idemstore.ErrExecMode), errors.Is(err, idemstore.ErrPrefixTaken):
		return wrongUse("%w", err)
	}
	return err
}

// recoverOptions reads and checks the flags that say which tasks, who and why.
func recoverOptions(cmd *cli.Command) (o consumer.RecoverOptions, err error) {
	o = consumer.RecoverOptions{OlderThan: cmd.Duration("older-than"), NewerThan: cmd.Duration("window"), Limit: cmd.Int("limit"),
		DryRun: cmd.Bool("dry-run"), Actor: cmd.String("actor"), Reason: strings.TrimSpace(cmd.String("reason"))}
	if o.OlderThan >= o.NewerThan {
		return o, wrongUse("--older-than is %s, which is not less than --window, %s%s", story.Short(o.OlderThan), story.Short(o.NewerThan), hint(cmd))
	}
	if err := checkOrder(cmd); err != nil {
		return o, err
	}
	if o.DryRun {
		return o, nil
	}
	if o.Reason == "" {
		return o, wrongUse("--reason is missing: the audit keeps why somebody stepped in%s", hint(cmd))
	}
	if o.Actor == "" {
		o.Actor = osUser()
	}
	err = needProvider(cmd)
	return o, err
}

// recoverReport prints what came of each task, and counts.
type recoverReport struct {
	w        io.Writer
	json     *json.Encoder // nil: plain text
	dry      bool
	from, to time.Duration // ages of the tasks that are looked at
	shows    bool
	progress *progress // nil: none is shown
	counts   map[consumer.RecoverOutcome]int
	total    int
	failed   error // to print
}

func newRecoverReport(cmd *cli.Command, o consumer.RecoverOptions) *recoverReport {
	r := &recoverReport{w: cmd.Root().Writer, dry: o.DryRun, from: o.OlderThan, to: o.NewerThan, counts: map[consumer.RecoverOutcome]int{}}
	r.shows = !o.DryRun && !cmd.Bool("json") && isTerminal(os.Stderr)
	if cmd.Bool("json") {
		r.json = json.NewEncoder(r.w)
	}
	return r
}

// begin learns how many tasks there are.
func (r *recoverReport) begin(n int) {
	r.total = n
	if n == 0 && r.json == nil {
		_, r.failed = fmt.Fprintf(r.w, "No task that was created %s to %s ago is open. Older ones: --window.\n", story.Short(r.from), story.Short(r.to))
	}
	if r.shows && n > 0 {
		r.progress = drawProgress(os.Stderr, int64(n), "recovering", "tasks")
	}
}

// beside is w for other text than the progress.
func (r *recoverReport) beside(w io.Writer) io.Writer { return besideProgress{r, w} }

type besideProgress struct {
	*recoverReport
	w io.Writer
}

// Write makes room first.
func (b besideProgress) Write(text []byte) (int, error) {
	b.progress.clear()
	return b.w.Write(text)
}

func (r *recoverReport) add(t consumer.Recovered) {
	r.counts[t.Outcome]++
	defer r.progress.done(1)
	var err error
	if r.json != nil {
		line := taskLine(t.Task)
		line.Outcome, line.Message = string(t.Outcome), t.Message
		err = r.json.Encode(line)
	} else {
		r.progress.clear()
		_, err = fmt.Fprintf(r.w, "%s (task %d), %s: %s: %s\n", story.Printable(t.Task.Kind+"/"+t.Task.Key), t.Task.TaskID,
			story.Status(t.Task.Status), strings.ReplaceAll(string(t.Outcome), "_", " "), story.Printable(t.Message))
	}
	if r.failed == nil {
		r.failed = err
	}
}

// end prints the totals and makes tasks that are not settled an error.
func (r *recoverReport) end() error {
	r.progress.end()
	if r.json == nil && r.total > 0 {
		fmt.Fprintln(r.w, r.summary())
	}
	if left := r.total - r.counts[consumer.RecoverSettled]; !r.dry && left > 0 {
		return errors.Join(r.failed, fmt.Errorf("recover: %d of %d tasks are not settled", left, r.total))
	}
	return r.failed
}

func (r *recoverReport) summary() string {
	all := []consumer.RecoverOutcome{consumer.RecoverSettled, consumer.RecoverOpen, consumer.RecoverParked, consumer.RecoverStillParked, consumer.RecoverSkipped}
	if r.dry {
		all = []consumer.RecoverOutcome{consumer.RecoverWouldAsk, consumer.RecoverWouldPerform, consumer.RecoverWouldPark, consumer.RecoverSkipped}
	}
	parts := make([]string, len(all))
	for i, o := range all {
		parts[i] = fmt.Sprintf("%d %s", r.counts[o], strings.ReplaceAll(string(o), "_", " "))
	}
	text := strings.Join(parts, ", ")
	if r.dry {
		text += "; nothing was changed"
	}
	return text
}
