package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/notify"
)

// breakerOff is the value of --breaker that disables it.
const breakerOff = "off"

// limitFlags say when a worker leaves a provider alone, and calls a person.
func limitFlags() []cli.Flag {
	breaker := stringFlag("breaker", "failures in a row at one provider, `N`, after which its kinds take no messages and it is only "+
		"tried now and then; off: never", strconv.Itoa(defaults.Breaker))
	breaker.Validator = func(given string) error { _, err := parseBreaker(given); return err }
	return []cli.Flag{
		breaker,
		secretFlag("alert-webhook", variableOf("alert-webhook"), "`URL` that alerts are posted to as JSON; it is a secret and never shown whole"),
		stringFlag("alert-subject", "NATS `SUBJECT` that alerts are published to as JSON", ""),
	}
}

func parseBreaker(given string) (int, error) {
	if given == breakerOff {
		return -1, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("must be a number from 1 on, or %s (%s)", breakerOff, variableOf("breaker").Key())
	}
	return n, nil
}

// breakerOf reads --breaker, which the flag has checked.
func breakerOf(cmd *cli.Command) int {
	n, err := parseBreaker(cmd.String("breaker"))
	if err != nil {
		return defaults.Breaker
	}
	return n
}

// rateFlag is a number of something per second; 0 is no limit.
func rateFlag(name, usage string) *cli.FloatFlag {
	return &cli.FloatFlag{Name: name, Usage: usage, DefaultText: "no cap", Sources: from(variableOf(name)), Validator: func(n float64) error {
		if !(n >= 0 && n <= math.MaxInt32) {
			return errors.New("must be 0 or more (" + variableOf(name).Key() + ")")
		}
		return nil
	}}
}

// alerting is whom the alerts of a worker are told to.
type alerting struct {
	webhook *notify.Webhook // nil: none
	subject string
}

// readAlerting checks the flags. The caller closes it.
func readAlerting(cmd *cli.Command) (a alerting, err error) {
	if address := cmd.String("alert-webhook"); address != "" {
		if a.webhook, err = notify.NewWebhook(address); err != nil {
			return a, wrongUse("--alert-webhook (%s): %w", variableOf("alert-webhook").Key(), err)
		}
	}
	if a.subject = cmd.String("alert-subject"); a.subject != "" {
		if err := notify.CheckSubject(a.subject); err != nil {
			return a, wrongUse("--alert-subject (%s): %w", variableOf("alert-subject").Key(), err)
		}
	}
	return a, nil
}

// notifier tells alerts to all of them; nil if there is nobody but the log.
func (a alerting) notifier(conn *nats.Conn, log *slog.Logger) notify.Func {
	var to []notify.Func
	if a.webhook != nil {
		log.Info("alerts go to a webhook", "url", a.webhook.String())
		to = append(to, a.webhook.Tell)
	}
	if a.subject != "" {
		log.Info("alerts go to a subject", "subject", a.subject)
		to = append(to, notify.Subject(conn, a.subject))
	}
	return notify.All(to...)
}

func (a alerting) close() {
	if a.webhook != nil {
		a.webhook.Close()
	}
}
