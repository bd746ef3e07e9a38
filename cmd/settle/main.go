// Settle takes jobs from NATS JetStream, makes the external effect of each job happen once per business key, stores
// the result in Postgres, and only then acks.
//
// Exit codes: 0 done, 1 failed, 2 wrong use or configuration, 3 a check did not hold; of publish --wait also 4 a job
// failed, 5 one needs a person, 6 one has no result yet.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/build"
	"github.com/settlemq/settle/internal/devenv"
)

func main() {
	devenv.RunChild() // the servers of demos are this program, started again
	os.Exit(run(os.Args))
}

func run(args []string) int {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	return exitCode(os.Stderr, root().Run(ctx, args))
}

// untilSignal ends the context at the first SIGINT or SIGTERM, which asks for an orderly end. The second one
// ends the process at once: nothing that is lost then is lost for good, another worker takes it up.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ; first = false {
			select {
			case <-over:
				return
			case <-signals:
			}
			if !first {
				os.Exit(exitFailed)
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		<-ended
		cancel()
	}
}

// optional makes the commands of files that a build tag may leave out; those files add to it in init.
var optional []func() *cli.Command

func root() *cli.Command {
	cmd := &cli.Command{
		Name:    "settle",
		Usage:   "one business key, at most one effect at a provider that keeps keys, whatever crashes",
		Version: build.Read().Version,
		Suggest: true,
		Commands: []*cli.Command{
			workCommand(), publishCommand(), cloudEventsCommand(), tasksCommand(), recoverCommand(), driftCommand(), doctorCommand(), refusalsCommand(), archiveCommand(),
			adminCommand(), outboxCommand(), kindsCommand(), pauseCommand(), resumeCommand(), alertsCommand(),
			migrateCommand(), providerCommand(), benchCommand(), healthCommand(), versionCommand(),
		},
		Flags:  []cli.Flag{kindsFileFlag()},
		Action: chooseSubcommand,
		// Errors are printed and turned into an exit code in one place, run.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
	}
	for _, command := range optional {
		cmd.Commands = append(cmd.Commands, command())
	}
	reportWrongUse(cmd)
	readSecretFiles(cmd)
	return cmd
}

// chooseSubcommand is the action of a command that only has subcommands.
func chooseSubcommand(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return wrongUse("unknown command %q%s", cmd.Args().First(), hint(cmd))
	}
	return cli.ShowSubcommandHelp(cmd)
}

// reportWrongUse makes every command answer a bad flag with one line instead of its whole help.
func reportWrongUse(cmd *cli.Command) {
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return wrongUse("%w%s", err, hint(cmd))
	}
	for _, sub := range cmd.Commands {
		reportWrongUse(sub)
	}
}
