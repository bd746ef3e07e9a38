package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
	"go.opentelemetry.io/otel/trace"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
)

// saveGrace is what an act needs beyond the time of its look-ups.
const saveGrace = 30 * time.Second

// actParts are what acts from the screen are made of.
type actParts struct {
	pool   *pgxpool.Pool
	store  *idemstore.Store
	js     jetstream.JetStream // nil: no NATS
	log    *slog.Logger
	tracer trace.TracerProvider
}

// newActs lets operators act from the screen as the commands do, with the settings of the same flags. Without a provider
// there is nothing to act with: nil.
func newActs(cmd *cli.Command, p actParts) (*admin.Acts, error) {
	f, err := readHandlerOptions(cmd).readKindsFile()
	if err != nil {
		return nil, err
	}
	if cmd.String("provider-url") == "" && len(f.Kinds) == 0 {
		p.log.Warn("the screen only reads: operators can act once --provider-url is set", "variable", variableOf("provider-url").Key())
		return nil, nil //nolint:nilnil // no acts
	}
	defs, err := callingKinds(cmd, definitions)
	if err != nil {
		return nil, err
	}
	config := consumer.Config{Policy: policy(cmd), Logger: p.log, TracerProvider: p.tracer}
	operator, err := consumer.NewOperator(p.pool, config, defs...)
	if err != nil {
		return nil, wrongUse("%w", err)
	}
	known, err := byName(defs, config.Policy)
	if err != nil {
		return nil, err
	}
	c := admin.ActsConfig{Store: p.store, Operator: operator, Logger: p.log, Limit: 2*cmd.Duration("deadline") + saveGrace,
		Recover: func(ctx context.Context, kind string, o consumer.RecoverOptions, report func(consumer.Recovered)) error {
			return recoverOnce(ctx, p.pool, config, known, kind, o, report)
		}}
	if p.js != nil {
		c.Republish = func(ctx context.Context, refusal int64, by consumer.ActOptions) (consumer.Republication, error) {
			return consumer.Republish(ctx, p.pool, p.js, refusal, by)
		}
	}
	return admin.NewActs(c)
}

// recoverOnce runs one recovery: an engine recovers once.
func recoverOnce(ctx context.Context, pool *pgxpool.Pool, config consumer.Config, known map[string]consumer.Definition, kind string,
	o consumer.RecoverOptions, report func(consumer.Recovered)) error {
	kinds := slices.Collect(maps.Values(known))
	if kind != "" {
		def, ok := known[kind]
		if !ok {
			return fmt.Errorf("recover: %w: this build knows no kind %q", consumer.ErrInput, kind)
		}
		kinds = []consumer.Definition{def}
	}
	engine, err := consumer.New(pool, nil, config, kinds...)
	if err != nil {
		return err
	}
	return engine.Recover(ctx, o, report)
}
