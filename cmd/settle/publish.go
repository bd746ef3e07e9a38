package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
	"go.opentelemetry.io/otel"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

const publishDeadline = 10 * time.Second // for one job's confirmation, also after Ctrl-C

func publishCommand() *cli.Command {
	flags := append(append(natsFlags(), replicasFlag(), logFlag(), jsonFlag(), maxBodyFlag(), hashKeysFlag(),
		&cli.StringFlag{Name: "kind", Usage: "publish every line as the body of a job of this `KIND`"}), waitFlags()...)
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish jobs, one JSON object per line",
		ArgsUsage: "[FILE...]",
		Description: `Reads the files, or standard input where none or - is named. Each line is
{"kind": "payment.charge", "body": {...}, "headers": {...}}, or with --kind a body alone. Bodies are published
byte for byte. Publishing the same job again is harmless.

Shows its progress on standard error if that is a terminal and --json is not given.

Outcomes: stored; duplicate (the stream had it already); unknown (not confirmed: publish it again); refused.
Exit code 1 if any job was refused or is unknown.

With --wait it also waits for the result of each job and prints it; a job that was done before answers with its stored
result. Exit code 4 if a job failed for good, 5 if one needs a person, 6 if one has no result yet; the smallest that
fits. Ctrl-C ends the waiting: what was published is in the queue and goes on.`,
		Flags:  flags,
		Action: action(0, -1, publish),
	}
}

func publish(ctx context.Context, cmd *cli.Command) error {
	log := newLog(cmd)
	known, err := sizedKinds(cmd)
	if err != nil {
		return err
	}
	if kind := cmd.String("kind"); kind != "" && known[kind] == nil {
		return wrongUse("--kind: this build knows no kind %q%s", kind, hint(cmd))
	}
	inputs, closeInputs, err := openInputs(cmd)
	if err != nil {
		return err
	}
	defer closeInputs()
	tracing, err := telemetry.Setup(ctx, "settle-publisher", log, telemetryOptions(cmd)...)
	if err != nil {
		return wrongUse("%w", err)
	}
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	otel.SetTracerProvider(tracing.TracerProvider())

	conn, err := connectNATS(cmd, "settle-publisher")
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := openJetStream(conn)
	if err != nil {
		return err
	}
	if err := consumer.EnsureStreams(ctx, js, consumer.Config{Replicas: cmd.Int("replicas"), Logger: log}); err != nil {
		return err
	}
	db, err := openAnswers(ctx, cmd)
	if err != nil {
		return err
	}
	if db != nil {
		defer db.Close()
	}
	p := publisher{kinds: known, only: cmd.String("kind"), send: sender(js)}
	out := newReport(cmd.Root().Writer, cmd.Bool("json"))
	if cmd.IsSet("wait") {
		p.send, out.waits = caller(js, answersIn(db), cmd.Duration("wait")), true
	}
	if !cmd.Bool("json") && isTerminal(os.Stderr) {
		out.progress = newProgress(os.Stderr, sizeOf(inputs))
	}
	return p.run(ctx, inputs, out)
}

// knownKinds are the kinds of this build and of the file by name.
func knownKinds(cmd *cli.Command) (map[string]consumer.Definition, error) {
	defs, err := definitions(handlerOptions{kindsFile: cmd.String(kindsFile)})
	if err != nil {
		return nil, err
	}
	return byName(defs, consumer.Policy{})
}

// sizedKinds are the known kinds with the largest body that --max-body gives.
func sizedKinds(cmd *cli.Command) (map[string]consumer.Definition, error) {
	known, err := knownKinds(cmd)
	if cmd.IsSet("max-body") {
		for name, kind := range known {
			known[name] = consumer.WithMaxBody(kind, cmd.Int("max-body"))
		}
	}
	return known, err
}

// input is one source of lines and its name, which is empty where there is only one.
type input struct {
	name string
	from io.Reader
}

func openInputs(cmd *cli.Command) (inputs []input, closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	names := cmd.Args().Slice()
	if len(names) == 0 {
		return []input{{from: cmd.Root().Reader}}, closeAll, nil
	}
	for _, name := range names {
		if name == "-" {
			inputs = append(inputs, input{name, cmd.Root().Reader})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, wrongUse("%w", err)
		}
		files = append(files, f)
		inputs = append(inputs, input{name, f})
	}
	if len(inputs) == 1 {
		inputs[0].name = ""
	}
	return inputs, closeAll, nil
}

// sendFunc publishes one job and says what came of it.
type sendFunc func(context.Context, consumer.Definition, job) answer

// sender publishes. It goes on after ctx has ended, for as long as it takes to know the outcome: a job that was sent must
// not be reported as unknown because somebody pressed Ctrl-C.
func sender(js jetstream.JetStream) sendFunc {
	return func(ctx context.Context, def consumer.Definition, j job) answer {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishDeadline)
		defer cancel()
		return answerOf(consumer.PublishRaw(ctx, js, def, j.Body, j.Headers))
	}
}

// answerOf says what came of a publish.
func answerOf(published consumer.Publication, err error) answer {
	var refused *consumer.InvalidJobError
	switch {
	case errors.As(err, &refused):
		return refusal(refused.Reason, refused.Detail)
	case err != nil:
		return answer{Outcome: consumer.PublishUnknown.String(), Reason: "unconfirmed", Detail: err.Error()}
	case published.Outcome == consumer.PublishUnknown:
		return answer{Outcome: published.Outcome.String(), Reason: "unconfirmed"}
	}
	return answer{Outcome: published.Outcome.String(), Sequence: published.Sequence}
}

func refusal(reason idemstore.Reason, detail string) answer {
	return answer{Outcome: outcomeRefused, Reason: string(reason), Detail: detail}
}

func unknownKind(kind string) answer {
	return refusal(idemstore.UnknownKind, fmt.Sprintf("this build knows no kind %.64q", kind))
}
