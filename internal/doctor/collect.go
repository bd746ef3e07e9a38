package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

const (
	reachLimit   = 10 * time.Second // for all answers of one server
	monitorLimit = 2 * time.Second  // for that of a monitor
	driftLimit   = time.Minute      // for a walk through messages and tasks
)

// Source is where facts come from. Store and JetStream are nil where the server does not answer; the texts of the facts then
// say why.
type Source struct {
	Store     *idemstore.Store
	Worker    *idemstore.Store // with the exec mode of a worker, to see whether it gets through; nil: that is not looked into
	JetStream jetstream.JetStream
	Monitor   string // base URL of the NATS monitor; empty: it is not asked
	Kinds     []consumer.Definition
	Drift     func(context.Context) ([]consumer.Drift, error) // nil: messages and tasks are not gone through
}

// Collect adds to f what the servers say. It only reads, asks both servers at once, and blocks for at most 12 s, and a minute
// more with Drift. A server that does not answer in time is a fact, too.
func Collect(ctx context.Context, s Source, f Facts) Facts {
	var asking sync.WaitGroup
	if s.Store != nil {
		asking.Go(func() { f.Database, f.DatabaseError = askDatabase(ctx, s) })
	}
	if s.JetStream != nil {
		f.Broker, f.BrokerError = askBroker(ctx, s, &f)
	}
	asking.Wait()
	if s.Drift != nil && f.Database != nil && f.Database.Schema == nil && f.Broker != nil && f.Broker.Jobs != nil {
		ctx, cancel := context.WithTimeout(ctx, driftLimit)
		defer cancel()
		found, err := s.Drift(ctx)
		f.Drift, f.Compared = found, err == nil
	}
	return f
}

func askDatabase(ctx context.Context, s Source) (*Database, string) {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	d := &Database{}
	if s.Worker != nil {
		if err := s.Worker.CheckExecMode(ctx); errors.Is(err, idemstore.ErrExecMode) {
			d.ExecMode = err // any other is met again below
		}
	}
	var err error
	d.Schema = s.Store.CheckSchema(ctx)
	switch {
	case d.Schema == nil:
		d.Lacks, err = s.Store.Lacks(ctx)
	case !errors.Is(d.Schema, idemstore.ErrSchema):
		err = d.Schema
	}
	if err != nil {
		return nil, oneLine(err)
	}
	before := time.Now()
	if d.Server, err = s.Store.Server(ctx); err != nil {
		return nil, oneLine(err)
	}
	d.Clock = clockOf(d.Server.Now, before, time.Now())
	if d.Schema == nil {
		d.HasTasks, _ = s.Store.HasTasks(ctx) // a user who may not look is a finding of its own
	}
	return d, ""
}

// askBroker asks the monitor last, with a limit of its own: the broker is not away because of it.
func askBroker(ctx context.Context, s Source, f *Facts) (*Broker, string) {
	limited, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	b := &Broker{MaxPayload: s.JetStream.Conn().MaxPayload(), Consumers: map[string]jetstream.ConsumerConfig{}}
	err := b.askStream(limited, s.JetStream, f.Kinds)
	if err != nil {
		return nil, oneLine(err)
	}
	if b.Jobs != nil {
		if err := consumer.CheckProofAge(limited, s.JetStream, f.Config, s.Kinds...); errors.Is(err, consumer.ErrProofAge) {
			f.ProofAge = err
		}
	}
	if s.Monitor != "" {
		if b.Sync, err = askMonitor(ctx, s.Monitor); err != nil {
			b.Monitor = oneLine(err)
		}
	}
	return b, ""
}

// askStream learns what the stream and the consumers of the kinds are like, as far as they are there.
func (b *Broker) askStream(ctx context.Context, js jetstream.JetStream, kinds []consumer.Description) error {
	before := time.Now()
	stream, err := js.Stream(ctx, jobStream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return err
	}
	info := stream.CachedInfo()
	b.Jobs, b.Clock = &info.Config, clockOf(info.TimeStamp, before, time.Now())
	for _, k := range kinds {
		c, err := stream.Consumer(ctx, k.Consumer)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
		case err != nil:
			return err
		default:
			b.Consumers[k.Name] = c.CachedInfo().Config
		}
	}
	return nil
}

// askMonitor learns how the server writes to its disk. Its errors do not hold the URL, which may hold a password.
func askMonitor(ctx context.Context, base string) (*Sync, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+"/jsz?config=1", nil)
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	req.Close = true // it is asked once
	resp, err := http.DefaultClient.Do(req)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return nil, wrapped.Err
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	var said struct {
		Config struct {
			SyncInterval time.Duration `json:"sync_interval"`
			SyncAlways   bool          `json:"sync_always"`
		} `json:"config"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return nil, fmt.Errorf("what it says is not that of a NATS server: %w", err)
	}
	if said.Config.SyncInterval <= 0 && !said.Config.SyncAlways {
		return nil, errors.New("it says nothing of a sync_interval")
	}
	return &Sync{Always: said.Config.SyncAlways, Every: said.Config.SyncInterval}, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(fmt.Sprint(err)), " ") }
