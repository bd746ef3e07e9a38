package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

// rules are what a worker is told of its provider and its limits. The zero value is the reference kind for reports.
type rules struct {
	NoLookup      bool          // the kind cannot ask what became of a request
	NoKey         bool          // no Idempotency-Key is sent
	KeyPerAttempt bool          // the number of the attempt is part of the key
	Unkeyed       bool          // the kind says that the provider keeps no keys
	ResendUnkeyed bool          // and that it may be asked for the effect again
	AbsentAfter   time.Duration // once it has not shown it for this long; 15 s
	Patience      time.Duration // how long a client waits for an answer; 10 s

	MaxAge         time.Duration // at which a task needs a person; 24 h
	ProofRetention time.Duration // at which key rows go; 0: never
}

// settings are what a worker process is told, as JSON in its environment.
type settings struct {
	Rules                             rules
	DatabaseURL, NATSURL, ProviderURL string
	Kind, Account                     string
	Logs                              bool
}

const settingsVariable = "SETTLE_LAB_WORKER"

// The tempo of workers in a lab.
const (
	workerLease = 2 * time.Second
	firstDelay  = 100 * time.Millisecond
	lastDelay   = time.Second
	deadline    = 10 * time.Second
)

func (p *play) settings(r rules) settings {
	return settings{Rules: r, DatabaseURL: p.databaseURL, NATSURL: p.natsURL, ProviderURL: p.providerURL,
		Kind: p.kind, Account: p.account, Logs: p.options.Logs != nil}
}

// Work is the whole life of a worker process of a lab: it serves reports by the rules in its environment until ctx ends,
// and drains.
func Work(ctx context.Context) error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s); err != nil {
		return errors.New("this command is run by the labs, which tell it what to do by " + settingsVariable)
	}
	kind, err := kindOf(s)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := nats.Connect(s.NATSURL, nats.Name("settle-lab-worker"))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	engine, err := consumer.New(pool, js, s.config(), kind)
	if err != nil {
		return err
	}
	return engine.Run(ctx)
}

func (s settings) config() consumer.Config {
	log := slog.New(slog.DiscardHandler)
	if s.Logs {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return consumer.Config{
		Slots: 1, AckWait: workerLease, Lease: workerLease, DrainTimeout: deadline, ProofRetention: s.Rules.ProofRetention, Logger: log,
		NoRecovery: true, // what a step shows is done by the message that it publishes
		Policy: consumer.Policy{Deadline: deadline, BackoffMin: firstDelay, BackoffMax: lastDelay, MaxAge: s.Rules.MaxAge,
			MaxFailures: 20},
	}
}

// kindOf is the reference kind for reports, with what the rules change about it.
func kindOf(s settings) (k consumer.Kind[handlers.ReportJob, handlers.ReportResult], err error) {
	api, err := handlers.NewClient(handlers.ClientOptions{URL: s.ProviderURL, Base: patient(s.Rules.Patience)})
	if err != nil {
		return k, err
	}
	k = handlers.Report(api, handlers.ReportOptions{Provider: consumer.Provider{Identity: s.Account, Unkeyed: s.Rules.Unkeyed,
		ResendUnkeyed: s.Rules.ResendUnkeyed, AbsentAfter: s.Rules.AbsentAfter}})
	k.Name = s.Kind
	if s.Rules.NoLookup {
		k.Lookup = nil
	}
	perform := k.Perform
	k.Perform = func(ctx context.Context, a *consumer.Attempt[handlers.ReportJob]) (handlers.ReportResult, error) {
		a.ProviderKey = s.Rules.keyFor(a.ProviderKey, a.Number)
		return perform(ctx, a)
	}
	return k, nil
}

// keyFor is the Idempotency-Key that an attempt sends.
func (r rules) keyFor(key string, attempt int) string {
	switch {
	case r.NoKey:
		return ""
	case r.KeyPerAttempt:
		return fmt.Sprintf("%s-attempt-%d", key, attempt)
	}
	return key
}

// patient is a transport that waits for an answer for as long as d, counted from when the request has been written: how
// long it took to connect is no matter of the story. For 0 it is nil, the client's own.
func patient(d time.Duration) http.RoundTripper {
	if d == 0 {
		return nil
	}
	return limitedPatience{http.DefaultTransport, d}
}

type limitedPatience struct {
	base  http.RoundTripper
	limit time.Duration
}

func (t limitedPatience) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, giveUp := context.WithCancelCause(req.Context())
	var timer atomic.Pointer[time.Timer]
	hooks := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		timer.Store(time.AfterFunc(t.limit, func() { giveUp(context.DeadlineExceeded) }))
	}}
	resp, err := t.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, hooks)))
	if limit := timer.Load(); limit != nil {
		limit.Stop()
	}
	return resp, err
}
