package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/admin"
	"github.com/settlemq/settle/internal/story"
)

// ofKinds are commands below kinds of files that a build tag may leave out.
var ofKinds []func() *cli.Command

func kindsCommand() *cli.Command {
	cmd := &cli.Command{
		Name:  "kinds",
		Usage: "print what each kind of job promises, and its limits",
		Description: "Takes the flags and variables of settle work that shape a kind, so that it prints what a worker with " +
			"the same settings does. Where a database is named it also says which kinds are paused.",
		Flags: append(kindFlags(), jsonFlag(),
			secretFlag("database-url", "DATABASE_URL", "where Postgres is: a `URL` or keyword=value pairs; only to say what is paused")),
		Commands: []*cli.Command{kindsCheckCommand()},
		Action:   action(0, 0, printKinds),
	}
	for _, command := range ofKinds {
		cmd.Commands = append(cmd.Commands, command())
	}
	return cmd
}

func printKinds(ctx context.Context, cmd *cli.Command) error {
	defs, err := chosenKinds(cmd, definitions)
	if err != nil {
		return err
	}
	config := consumer.Config{Policy: policy(cmd)}
	modes := kindModes(ctx, cmd, cmd.Root().ErrWriter)
	encoder := json.NewEncoder(cmd.Root().Writer)
	for i, def := range defs {
		d, err := consumer.Describe(config, def)
		if err != nil {
			return wrongUse("%w", err)
		}
		k := describeKind(d)
		if modes != nil {
			k.Control = controlIn(modes, d.Name)
		}
		switch {
		case cmd.Bool("json"):
			err = encoder.Encode(k)
		default:
			if i > 0 {
				fmt.Fprintln(cmd.Root().Writer)
			}
			err = printKind(cmd.Root().Writer, k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kindObject is a kind as --json prints it. Durations are texts such as 30s.
type kindObject struct {
	Kind       string         `json:"kind"`
	Subject    string         `json:"subject"`
	Consumer   string         `json:"consumer"`
	Contract   contractObject `json:"contract"`
	Policy     policyObject   `json:"policy"`
	Provider   *profileObject `json:"provider,omitempty"` // not of kinds that have none
	OrderGuard bool           `json:"order_guard"`
	Steps      bool           `json:"record_by_record"`
	Control    *kindControl   `json:"control,omitempty"` // only where a database is named
}

// kindControl is how a kind is served, and who wanted that.
type kindControl struct {
	Mode   string     `json:"mode"` // running, asking or paused
	Actor  string     `json:"actor,omitempty"`
	Reason string     `json:"reason,omitempty"`
	At     *time.Time `json:"at,omitempty"`
}

type contractObject struct {
	Effect    string   `json:"effect"`
	Rows      string   `json:"rows"`
	Success   string   `json:"success"`
	SecondRun string   `json:"second_run"`
	StopRule  string   `json:"stop_rule"`
	Link      string   `json:"link,omitempty"`
	Hidden    []string `json:"hidden,omitempty"` // members that the screen does not show
}

type policyObject struct {
	Lease              string `json:"lease_policy"`
	Deadline           string `json:"deadline"`
	MaxFailures        int    `json:"max_failures"`
	MaxAge             string `json:"max_age"`
	BackoffMin         string `json:"backoff_min"`
	BackoffMax         string `json:"backoff_max"`
	RetryAfterMax      string `json:"retry_after_max"`
	MisconfiguredDelay string `json:"misconfigured_delay"`
	Retention          string `json:"retention"`
}

type profileObject struct {
	Identity       string `json:"identity"`
	Keyed          bool   `json:"keyed"`
	KeyPrefix      string `json:"key_prefix"`
	KeyLifetime    string `json:"key_lifetime"`
	Lookup         bool   `json:"lookup"`
	Stored         []int  `json:"stored"`
	Status409      string `json:"status_409"`
	Status422      string `json:"status_422"`
	AbsentAfter    string `json:"absent_after"`
	ResendUnkeyed  bool   `json:"resend_unkeyed"`
	AppliedNothing []int  `json:"applied_nothing"`

	MaxPerSecond float64 `json:"max_per_second"` // 0: no cap
	MaxInFlight  int     `json:"max_in_flight"`  // 0: no cap
}

func describeKind(d consumer.Description) kindObject {
	out := kindObject{
		Kind: d.Name, Subject: d.Subject, Consumer: d.Consumer, OrderGuard: d.HasOrderGuard, Steps: d.HasSteps,
		Contract: contractObject{d.Contract.Effect, d.Contract.Rows, d.Contract.Success, d.Contract.SecondRun, d.Contract.StopRule, d.Contract.Link, d.Contract.Hidden},
		Policy: policyObject{
			Lease: leaseName(d.Policy.Lease), Deadline: story.Short(d.Policy.Deadline), MaxFailures: d.Policy.MaxFailures,
			MaxAge: story.Short(d.Policy.MaxAge), BackoffMin: story.Short(d.Policy.BackoffMin), BackoffMax: story.Short(d.Policy.BackoffMax),
			RetryAfterMax: story.Short(d.Policy.RetryAfterMax), MisconfiguredDelay: story.Short(d.Policy.MisconfiguredWait),
			Retention: story.Short(d.Policy.Retention),
		},
	}
	if !d.Local {
		out.Provider = describeProvider(d.Provider, d.HasLookup)
	}
	return out
}

func describeProvider(p consumer.Provider, lookup bool) *profileObject {
	return &profileObject{
		Identity: maskURL(p.Identity), Keyed: !p.Unkeyed, KeyPrefix: p.KeyPrefix, KeyLifetime: story.Short(p.KeyLifetime), Lookup: lookup,
		Stored: p.Stored, Status409: p.Status409.String(), Status422: p.Status422.String(),
		AbsentAfter: story.Short(p.AbsentAfter), ResendUnkeyed: p.ResendUnkeyed, AppliedNothing: p.AppliedNothing,
		MaxPerSecond: p.MaxPerSecond, MaxInFlight: p.MaxInFlight,
	}
}

func leaseName(p consumer.LeasePolicy) string {
	switch p {
	case consumer.Strict:
		return leaseStrict
	case consumer.Lenient:
		return leaseLenient
	case consumer.DefaultLeasePolicy:
	}
	return "lenient with a look-up, else strict"
}

func printKind(w io.Writer, k kindObject) error {
	fmt.Fprintf(w, "%s\n", k.Kind)
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, f := range k.facts() {
		fmt.Fprintf(table, "  %s\t%s\n", f.Name, f.Value)
	}
	return table.Flush()
}

// facts are what is said of a kind, in words.
func (k kindObject) facts() (facts []admin.Fact) {
	add := func(name, value string) { facts = append(facts, admin.Fact{Name: name, Value: value}) }
	add("travels as", k.Subject+", consumer "+k.Consumer)
	add("effect", k.Contract.Effect)
	add("local rows", k.Contract.Rows)
	add("done means", k.Contract.Success)
	add("a second run", k.Contract.SecondRun)
	add("stops when", k.Contract.StopRule)
	add("limits", k.Policy.String())
	if k.Contract.Link != "" {
		add("looked at", k.Contract.Link)
	}
	if len(k.Contract.Hidden) > 0 {
		add("not shown on the screen", strings.Join(k.Contract.Hidden, ", "))
	}
	if k.Provider != nil {
		add("provider", k.Provider.String())
	}
	if k.OrderGuard {
		add("order", "one event of an entity at a time; one that is not newer than what was applied is skipped, unsent")
	}
	if k.Steps {
		add("records", "one after the other, each in one transaction with its progress; the deadline is that of one record; "+
			"tasks show says how far it is")
	}
	if k.Control != nil {
		add("now", k.Control.String())
	}
	return facts
}

// String is the policy in one line.
func (p policyObject) String() string {
	return fmt.Sprintf("deadline %s, %d failures, age %s, back-off %s to %s, lease %s",
		p.Deadline, p.MaxFailures, p.MaxAge, p.BackoffMin, p.BackoffMax, p.Lease)
}

// String is the provider profile in one line.
func (p profileObject) String() string {
	parts := []string{"keeps no keys; absent counts after " + p.AbsentAfter}
	if p.Keyed {
		parts = []string{"keeps keys for " + p.KeyLifetime}
	} else if p.ResendUnkeyed {
		parts = append(parts, "then resends")
	}
	if p.KeyPrefix != "" {
		parts = append(parts, "plain keys "+p.KeyPrefix+"…")
	}
	if !p.Lookup {
		parts = append(parts, "cannot be asked")
	}
	if p.Keyed {
		parts = append(parts, "stores the errors "+statuses(p.Stored))
	}
	if usual := consumer.MeansByBody.String(); p.Status409 != usual || p.Status422 != usual {
		parts = append(parts, "409 "+p.Status409, "422 "+p.Status422)
	}
	if p.MaxPerSecond > 0 {
		parts = append(parts, fmt.Sprintf("at most %g calls per second", p.MaxPerSecond))
	}
	if p.MaxInFlight > 0 {
		parts = append(parts, fmt.Sprintf("at most %d calls at once", p.MaxInFlight))
	}
	if p.Identity != "" {
		parts = append(parts, p.Identity)
	}
	return strings.Join(parts, ", ")
}

// statuses is a list of them in words.
func statuses(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	words := make([]string, len(list))
	for i, status := range list {
		words[i] = strconv.Itoa(status)
	}
	return strings.Join(words, " ")
}
