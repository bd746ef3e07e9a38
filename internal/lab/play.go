package lab

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
)

// play is one lab while it runs: its own JetStream and provider, the task at hand, and what was seen last.
type play struct {
	*stage
	story story

	natsURL     string
	js          jetstream.JetStream
	job         consumer.Kind[handlers.ReportJob, handlers.ReportResult]
	provider    *provider.Server
	providerURL string
	calls       calls

	task    int64   // the task id at hand
	next    int64   // the next one
	work    []int64 // the tasks that stand for the same piece of work: the provider's reports of all of them count
	workers []*worker
	person  []string // what a person sees
	notes   []string // about how the story had to be told
	view    View

	completion string   // what became of the last completion by hand
	waited     bool     // the second of two requests waited in the database for the first
	holds      []func() // lets what was held for the next look go on

	undo // of this lab; the stage has its own
}

// setUp starts the parts of a lab. tearDown stops them, also after an error.
func (p *play) setUp(ctx context.Context) error {
	p.newTask()
	if err := p.startProvider(); err != nil || p.story.byHand {
		return err
	}
	return p.startStream(ctx)
}

// newTask goes on with the next task id. Everybody starts anew.
func (p *play) newTask() {
	p.task, p.next = p.next, p.next+1
	p.work = []int64{p.task}
	p.workers, p.person = nil, nil
}

// key is the business key of the task at hand.
func (p *play) key() string { return "report-task-" + strconv.FormatInt(p.task, 10) }

func (p *play) startProvider() (err error) {
	p.provider = provider.New(p.pool, provider.Options{Logger: p.logger(), OnPoint: p.calls.onPoint})
	if err := p.misbehaves(); err != nil {
		return err
	}
	if p.providerURL, err = p.provider.Listen("127.0.0.1:0"); err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.provider.Run(serving) }()
	p.later(func() error {
		p.letGo()
		stop()
		p.provider.Close()
		return <-ended
	})
	return nil
}

// misbehaves replaces the provider's faults, on top of the sabotage of the run.
func (p *play) misbehaves(faults ...provider.Fault) error {
	return p.provider.SetFaults(append(faults, p.options.faults()...))
}

func (p *play) startStream(ctx context.Context) error {
	server, err := devenv.StartNATS(devenv.NATSOptions{})
	if err != nil {
		return err
	}
	p.later(server.Stop)
	p.natsURL = server.URL()
	conn, err := nats.Connect(p.natsURL, nats.Name("settle-lab"))
	if err != nil {
		return err
	}
	p.later(func() error { conn.Close(); return nil })
	if p.js, err = jetstream.New(conn); err != nil {
		return err
	}
	if p.job, err = kindOf(p.settings(rules{})); err != nil {
		return err
	}
	return consumer.EnsureStreams(ctx, p.js, consumer.Config{})
}

// logger is for parts that run in this process.
func (p *play) logger() *slog.Logger {
	if p.options.Logs == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(p.options.Logs, nil))
}

// logs is where the logs of workers go.
func (p *play) logs() io.Writer {
	if p.options.Logs == nil {
		return io.Discard
	}
	return p.options.Logs
}

// letGo ends all holds.
func (p *play) letGo() {
	for _, release := range p.holds {
		release()
	}
	p.holds = nil
}

// neverSeen says that what a step waits for did not come.
type neverSeen struct{ what string }

func (e *neverSeen) Error() string { return "never seen: " + e.what }

// What a step may wait for.
const (
	theEffect   = "the effect at the provider"
	theRequest  = "the request at the provider"
	theAnswer   = "the answer of the provider"
	theOutcome  = "the outcome of the task, and the end of its message"
	theEnd      = "the end of the worker"
	theLeaseEnd = "the end of the lease"
)

// waitLimit bounds every wait for something that has to come. It is long, for a machine may be busy.
const waitLimit = 30 * time.Second

// await looks again and again until what it waits for is there.
func (p *play) await(ctx context.Context, what string, there func(context.Context) (bool, error)) error {
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := there(ctx); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return &neverSeen{what}
		case <-ctx.Done():
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
	}
}

// receive waits for c to be closed.
func (p *play) receive(ctx context.Context, what string, c <-chan struct{}) error {
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	select {
	case <-c:
		return nil
	case <-limit.C:
		return &neverSeen{what}
	case <-ctx.Done():
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
}
