package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/rig"
)

const (
	chargeKind = "payment.charge"
	reportKind = "report.create"
)

// settings are what a worker process is told, as JSON in its environment.
type settings struct {
	DatabaseURL, NATSURL, ProviderURL string
	Config                            consumer.Config   // without its logger and tracer
	Provider                          consumer.Provider // what both kinds believe of the provider
	Timeout                           time.Duration     // of one provider call; 0 is the default
	Quiet                             bool              // warnings only, and no spans
}

const settingsVariable = "SETTLE_CASES_WORKER"

func (s settings) environment() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("settings of a worker: " + err.Error()) // all of it is plain data
	}
	return settingsVariable + "=" + string(text)
}

// kindsOf makes the kinds that a worker serves.
type kindsOf func(api *handlers.Client, s settings) []consumer.Definition

func referenceKinds(api *handlers.Client, s settings) []consumer.Definition {
	return []consumer.Definition{chargeOf(api, s), handlers.Report(api, handlers.ReportOptions{Provider: s.Provider})}
}

func chargeOf(api *handlers.Client, s settings) consumer.Kind[handlers.ChargeJob, handlers.ChargeResult] {
	return handlers.Charge(api, handlers.ChargeOptions{Provider: s.Provider, CreateOrders: true})
}

// chainKinds are the reference kinds with what follows a charge: its event, and the job of its receipt.
func chainKinds(api *handlers.Client, s settings) []consumer.Definition {
	charges := handlers.Charge(api, handlers.ChargeOptions{Provider: s.Provider, CreateOrders: true, Receipts: true})
	reports := handlers.Report(api, handlers.ReportOptions{Provider: s.Provider})
	return []consumer.Definition{charges, reports, handlers.Receipt(handlers.ReceiptOptions{})}
}

// worker is the main function of a worker process: it serves its kinds until SIGTERM, and drains.
func worker(kinds kindsOf) func(context.Context) error {
	return func(ctx context.Context) error {
		var s settings
		if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		api, err := handlers.NewClient(handlers.ClientOptions{URL: s.ProviderURL, Timeout: s.Timeout})
		if err != nil {
			return err
		}
		defer api.Close()
		tracing := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithSpanProcessor(spanLog{}), sdktrace.WithSpanProcessor(rig.ChildPoints()))
		defer tracing.Shutdown(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is exported
		level := slog.LevelInfo
		if s.Quiet {
			level = slog.LevelWarn
		} else {
			s.Config.TracerProvider = tracing
		}
		s.Config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
		return serve(ctx, s, kinds(api, s))
	}
}

func serve(ctx context.Context, s settings, kinds []consumer.Definition) error {
	pool, err := pgxpool.New(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := nats.Connect(s.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	engine, err := consumer.New(pool, js, s.Config, kinds...)
	if err != nil {
		return err
	}
	return engine.Run(ctx)
}

// spanLog writes a line for each span of a delivery and of a handler: what a trace shows of it.
type spanLog struct{}

func (spanLog) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (spanLog) OnEnd(span sdktrace.ReadOnlySpan) {
	name, ours := strings.CutPrefix(span.Name(), "settle.")
	if !ours || name != "deliver" && name != "perform" {
		return
	}
	line := fmt.Sprintf("span %s trace=%s", name, span.SpanContext().TraceID())
	for _, a := range span.Attributes() {
		line += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
	}
	for _, l := range span.Links() {
		line += fmt.Sprintf(" link=%s", l.SpanContext.TraceID())
	}
	for _, e := range span.Events() {
		line += " event=" + e.Name
		for _, a := range e.Attributes {
			line += fmt.Sprintf(" %s=%q", a.Key, a.Value.String())
		}
	}
	fmt.Fprintf(os.Stdout, "%s %s %s\n", line, span.Status().Code, span.Status().Description)
}

func (spanLog) Shutdown(context.Context) error   { return nil }
func (spanLog) ForceFlush(context.Context) error { return nil }
