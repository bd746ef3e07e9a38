package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/doctor"
	"github.com/settlemq/settle/internal/story"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "find what is dangerous in settings, servers, stream and tables",
		Description: `Takes the flags and variables of settle work, and looks at what a worker with them would meet: timers against each other,
the stream, the consumers and the database against what the promise needs, messages against tasks. Each finding says why it
hurts, the two values that were compared, and what to do. Then it states what it cannot check. Reads only.
Exits with 3 if there are errors; those stop a worker that starts, too, but for a server that does not answer, which it waits for.`,
		Flags:  append(workFlags(), jsonFlag()),
		Action: action(0, 0, runDoctor),
	}
}

func runDoctor(ctx context.Context, cmd *cli.Command) error {
	kinds, err := callingKinds(cmd, definitions)
	if err != nil {
		return err
	}
	if err := checkOrder(cmd); err != nil {
		return err
	}
	workers, err := postgresConfig(cmd, "settle-doctor")
	if err != nil {
		return err
	}
	if _, _, err := natsOptions(cmd, ""); err != nil {
		return err
	}
	config := engineConfig(cmd)
	facts, err := factsOf(cmd, config, kinds, int(workers.MaxConns))
	if err != nil {
		return err
	}
	s := doctor.Source{Kinds: kinds, Monitor: cmd.String("nats-monitor")}
	closeDatabase := findDatabase(ctx, cmd, workers, &s, &facts)
	defer closeDatabase()
	conn, err := connectNATS(cmd, "settle-doctor")
	if err != nil {
		facts.BrokerError = err.Error()
	} else {
		defer conn.Close()
		if s.JetStream, err = openJetStream(conn); err != nil {
			return err
		}
	}
	return reportHealth(cmd, doctor.Examine(doctor.Collect(ctx, s, facts)))
}

// findDatabase opens the pools of a doctor: one to read with, and one as a worker would have it.
func findDatabase(ctx context.Context, cmd *cli.Command, workers *pgxpool.Config, s *doctor.Source, facts *doctor.Facts) (closeAll func()) {
	pool, err := openPool(ctx, cmd, "settle-doctor", false, slog.New(slog.DiscardHandler))
	if err != nil {
		facts.DatabaseError = err.Error()
		return func() {}
	}
	s.Store = idemstore.New(pool, 0)
	s.Drift = func(ctx context.Context) ([]consumer.Drift, error) {
		late := consumer.DriftCheck{Late: facts.Config.RecoverAfter}
		return consumer.FindDrift(ctx, pool, s.JetStream, facts.Config, late, s.Kinds...)
	}
	asWorker, err := pgxpool.NewWithConfig(ctx, workers)
	if err != nil {
		return pool.Close
	}
	s.Worker = idemstore.New(asWorker, 0)
	return func() { asWorker.Close(); pool.Close() }
}

// factsOf are those of the configuration.
func factsOf(cmd *cli.Command, config consumer.Config, kinds []consumer.Definition, poolSize int) (doctor.Facts, error) {
	f := doctor.Facts{Config: config, ProviderTimeout: cmd.Duration("provider-timeout"), PoolSize: poolSize}
	for _, k := range kinds {
		d, err := consumer.Describe(config, k)
		if err != nil {
			return f, wrongUse("%w", err)
		}
		f.Kinds = append(f.Kinds, d)
	}
	return f, nil
}

// startLimit bounds the look of a worker that starts; both servers are asked at once. What does not answer by then is
// waited for by its engine.
const startLimit = 5 * time.Second

// examineStart is the look of a worker: errors end it, warnings are logged once. Checks that cannot be made never end it.
func examineStart(ctx context.Context, cmd *cli.Command, pool *pgxpool.Pool, js jetstream.JetStream, config consumer.Config, kinds []consumer.Definition) error {
	facts, err := factsOf(cmd, config, kinds, int(pool.Config().MaxConns))
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	facts = doctor.Collect(limited, doctor.Source{Store: idemstore.New(pool, config.Lease), JetStream: js, Kinds: kinds, Monitor: cmd.String("nats-monitor")}, facts)
	report := doctor.ExamineStart(facts)
	logLeft(ctx, config.Logger, report.Left, facts)
	for _, f := range report.Findings {
		if f.Severity == doctor.Error {
			return wrongUse("%s%s: %s; %s. To do: %s", f.ID, about(f.Kind), f.What, f.Why, f.Fix)
		}
		level := slog.LevelWarn
		if f.Severity == doctor.Note {
			level = slog.LevelInfo
		}
		config.Logger.Log(ctx, level, "not as it should be; see settle doctor", "check", f.ID, "kind", f.Kind, "what", f.What, "why", f.Why,
			"found", f.Found.Name+" "+f.Found.Value, "wanted", f.Wanted.Name+" "+f.Wanted.Value, "fix", f.Fix)
	}
	return nil
}

// logLeft says how many checks a start did without, and why. That there is no stream yet is no reason to warn.
func logLeft(ctx context.Context, log *slog.Logger, left int, f doctor.Facts) {
	if left == 0 {
		return
	}
	level, why := slog.LevelWarn, []string(nil)
	if f.Database == nil {
		why = append(why, "Postgres: "+f.DatabaseError)
	}
	if f.Broker == nil {
		why = append(why, "NATS: "+f.BrokerError)
	}
	if len(why) == 0 {
		level, why = slog.LevelInfo, []string{"there is no stream of jobs yet"}
	}
	log.Log(ctx, level, "some checks are left out; settle doctor makes them", "checks", left, "why", strings.Join(why, "; "))
}

func about(kind string) string {
	if kind == "" {
		return ""
	}
	return " (" + kind + ")"
}

// findingObject is a finding as --json prints it.
type findingObject struct {
	Finding  string          `json:"finding"`
	Severity doctor.Severity `json:"severity"` // error, warning or note
	Kind     string          `json:"kind,omitempty"`
	What     string          `json:"what"`
	Why      string          `json:"why"`
	Found    valueObject     `json:"found"`
	Wanted   valueObject     `json:"wanted"`
	Fix      string          `json:"fix"`
}

type valueObject struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type assumptionObject struct {
	Assumption string `json:"assumption"`
	What       string `json:"what"`
	Ensure     string `json:"ensure"`
}

// checksObject is the last line.
type checksObject struct {
	Checks   int `json:"checks"` // that were made
	Left     int `json:"left"`   // that were not, because what they look at does not answer
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
}

func reportHealth(cmd *cli.Command, r doctor.Report) error {
	show := printReport
	if cmd.Bool("json") {
		show = encodeReport
	}
	if err := show(cmd.Root().Writer, r); err != nil {
		return err
	}
	if n := r.Count(doctor.Error); n > 0 {
		return notHeld("%s", count(n, "error"))
	}
	return nil
}

func encodeReport(w io.Writer, r doctor.Report) error {
	encoder := json.NewEncoder(w)
	for _, f := range r.Findings {
		o := findingObject{f.ID, f.Severity, f.Kind, f.What, f.Why, valueObject(f.Found), valueObject(f.Wanted), f.Fix}
		if err := encoder.Encode(o); err != nil {
			return err
		}
	}
	for _, a := range r.Assumptions {
		if err := encoder.Encode(assumptionObject{a.ID, a.What, a.Ensure}); err != nil {
			return err
		}
	}
	return encoder.Encode(checksObject{r.Made, r.Left, r.Count(doctor.Error), r.Count(doctor.Warning), r.Count(doctor.Note)})
}

func printReport(w io.Writer, r doctor.Report) error {
	last := doctor.Severity("")
	for _, f := range r.Findings {
		if f.Severity != last {
			last = f.Severity
			fmt.Fprintf(w, "%s\n\n", map[doctor.Severity]string{doctor.Error: "Errors", doctor.Warning: "Warnings", doctor.Note: "Notes"}[last])
		}
		fmt.Fprintf(w, "  %s%s: %s\n", f.ID, about(f.Kind), story.Printable(f.What))
		fmt.Fprintf(w, "    hurts: %s\n", f.Why)
		fmt.Fprintf(w, "    found: %s; wanted: %s\n", story.Printable(f.Found.Name+" "+f.Found.Value), story.Printable(f.Wanted.Name+" "+f.Wanted.Value))
		fmt.Fprintf(w, "    fix:   %s\n\n", story.Printable(f.Fix))
	}
	fmt.Fprint(w, "Assumed, because nothing can check it from here\n\n")
	for _, a := range r.Assumptions {
		fmt.Fprintf(w, "  %s: %s\n    see to it: %s\n", a.ID, story.Printable(a.What), a.Ensure)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdictOf(r))
	return err
}

// verdictOf is the last line for people.
func verdictOf(r doctor.Report) string {
	made := count(r.Made, "check") + " made"
	if r.Left > 0 {
		made += fmt.Sprintf(", %d not: what they look at does not answer", r.Left)
	}
	if len(r.Findings) == 0 {
		return "Nothing wrong: " + made + "."
	}
	return fmt.Sprintf("%s, %s, %s; %s.", count(r.Count(doctor.Error), "error"), count(r.Count(doctor.Warning), "warning"),
		count(r.Count(doctor.Note), "note"), made)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
