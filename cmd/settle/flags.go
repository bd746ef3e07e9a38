package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/story"
)

// variable is the environment variable behind a flag. Unlike the library's own source it takes an empty
// variable for an unset one: compose files and charts leave such behind.
type variable string

func (v variable) Lookup() (string, bool) {
	value := os.Getenv(string(v))
	return value, value != ""
}

func (v variable) Key() string      { return string(v) }
func (v variable) IsFromEnv() bool  { return true }
func (v variable) String() string   { return fmt.Sprintf("environment variable %q", string(v)) }
func (v variable) GoString() string { return fmt.Sprintf("variable(%q)", string(v)) }

// variableOf is the variable of a flag: --ack-wait is SETTLE_ACK_WAIT.
func variableOf(flag string) variable {
	return variable("SETTLE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
}

func from(v variable) cli.ValueSourceChain { return cli.NewValueSourceChain(v) }

// atLeast refuses smaller values. The error names the variable; the library adds the flag.
func atLeast[T cmp.Ordered](v variable, least T, show func(T) string) func(T) error {
	return func(value T) error {
		if value < least {
			return fmt.Errorf("must be at least %s (%s)", show(least), v.Key())
		}
		return nil
	}
}

// upTo refuses longer durations, and none at all.
func upTo(most time.Duration) func(time.Duration) error {
	return func(value time.Duration) error {
		if value <= 0 || value > most {
			return fmt.Errorf("must be more than 0 and at most %s", story.Short(most))
		}
		return nil
	}
}

// within refuses values out of a range.
func within(least, most int) func(int) error {
	return func(value int) error {
		if value < least || value > most {
			return fmt.Errorf("must be %d to %d", least, most)
		}
		return nil
	}
}

func durationFlag(name, usage string, value, least time.Duration) *cli.DurationFlag {
	v := variableOf(name)
	return &cli.DurationFlag{
		Name: name, Usage: usage, Value: value, DefaultText: story.Short(value), Sources: from(v),
		Validator: atLeast(v, least, story.Short),
	}
}

func countFlag(name, usage string, value, least int) *cli.IntFlag {
	v := variableOf(name)
	return &cli.IntFlag{
		Name: name, Usage: usage, Value: value, Sources: from(v),
		Validator: atLeast(v, least, func(n int) string { return fmt.Sprint(n) }),
	}
}

func boolFlag(name, usage string, value bool) *cli.BoolFlag {
	return &cli.BoolFlag{
		Name: name, Usage: usage, Value: value, DefaultText: fmt.Sprint(value), Sources: from(variableOf(name)),
	}
}

func stringFlag(name, usage, value string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Usage: usage, Value: value, Sources: from(variableOf(name))}
}

// choiceFlag accepts one of the choices, or nothing where the default is empty.
func choiceFlag(name, usage, value string, choices ...string) *cli.StringFlag {
	f := stringFlag(name, usage, value)
	f.Validator = func(given string) error {
		for _, c := range choices {
			if given == c {
				return nil
			}
		}
		return fmt.Errorf("must be one of %s (%s)", strings.Join(choices, ", "), variableOf(name).Key())
	}
	return f
}

// plainFlag is a string flag whose variable has a name of its own.
func plainFlag(name string, v variable, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Usage: usage, Sources: from(v)}
}

func databaseFlag() cli.Flag {
	return secretFlag("database-url", "DATABASE_URL", "where Postgres is: a `URL` or keyword=value pairs; required")
}

func natsFlags() []cli.Flag {
	return []cli.Flag{
		secretFlag("nats-url", "NATS_URL", "where NATS is: one `URL` or several, separated by commas; required"),
		plainFlag("nats-creds", "NATS_CREDS", "credentials `FILE`"),
		plainFlag("nats-ca", "NATS_CA", "`FILE` with the certificate authorities to trust"),
		plainFlag("nats-cert", "NATS_CERT", "client certificate `FILE`; needs --nats-key"),
		plainFlag("nats-key", "NATS_KEY", "client key `FILE`; needs --nats-cert"),
		plainFlag("nats-inbox", "NATS_INBOX", "subjects below `PREFIX` are the ones on which answers come, _INBOX.worker: so that a server can keep its users apart"),
	}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object per line"}
}

// needed is the value of a string flag that must not be empty.
func needed(cmd *cli.Command, flag string, v variable) (string, error) {
	if value := cmd.String(flag); value != "" {
		return value, nil
	}
	return "", wrongUse("--%s (%s) is not set%s", flag, v.Key(), hint(cmd))
}
