package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

const (
	reachLimit = 10 * time.Second // for all answers of one server
	driftLimit = time.Minute      // for a walk through messages and tasks
)

// Source is where facts come from. Store and JetStream are nil where the server does not answer; the texts of the facts then
// say why.
type Source struct {
	Store     *idemstore.Store
	Worker    *idemstore.Store // with the exec mode of a worker, to see whether it gets through; nil: that is not looked into
	JetStream jetstream.JetStream
	Monitor   string // base URL of the NATS monitor; empty: it is not asked
	Kinds     []consumer.Definition
	Drift     *consumer.DriftCheck // nil: messages and tasks are not gone through
}

// Collect adds to f what the servers say. It only reads, and blocks for at most 20 s, and a minute more with Drift. A server
// that does not answer in time is a fact, too.
func Collect(ctx context.Context, s Source, f Facts) Facts {
	if s.Store != nil {
		f.Database, f.DatabaseError = askDatabase(ctx, s)
	}
	if s.JetStream != nil {
		f.Broker, f.BrokerError = askBroker(ctx, s, &f)
	}
	if s.Drift != nil && f.Database != nil && f.Database.Schema == nil && f.Broker != nil && f.Broker.Jobs != nil {
		ctx, cancel := context.WithTimeout(ctx, driftLimit)
		defer cancel()
		found, err := consumer.FindDrift(ctx, s.JetStream, s.Store, f.Config, *s.Drift, s.Kinds...)
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
	return d, ""
}

func askBroker(ctx context.Context, s Source, f *Facts) (*Broker, string) {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	b := &Broker{MaxPayload: s.JetStream.Conn().MaxPayload(), Consumers: map[string]jetstream.ConsumerConfig{}}
	b.Sync = askMonitor(ctx, s.Monitor)
	before := time.Now()
	stream, err := s.JetStream.Stream(ctx, jobStream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return b, ""
	case err != nil:
		return nil, oneLine(err)
	}
	info := stream.CachedInfo()
	b.Jobs, b.Clock = &info.Config, clockOf(info.TimeStamp, before, time.Now())
	for _, k := range f.Kinds {
		c, err := stream.Consumer(ctx, k.Consumer)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
		case err != nil:
			return nil, oneLine(err)
		default:
			b.Consumers[k.Name] = c.CachedInfo().Config
		}
	}
	if err := consumer.CheckProofAge(ctx, s.JetStream, f.Config, s.Kinds...); errors.Is(err, consumer.ErrProofAge) {
		f.ProofAge = err
	}
	return b, ""
}

// askMonitor learns how the server writes to its disk; nil where it is not asked, or does not say.
func askMonitor(ctx context.Context, base string) *Sync {
	if base == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+"/jsz?config=1", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var said struct {
		Config struct {
			SyncInterval time.Duration `json:"sync_interval"`
			SyncAlways   bool          `json:"sync_always"`
		} `json:"config"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&said) != nil || said.Config.SyncInterval <= 0 && !said.Config.SyncAlways {
		return nil
	}
	return &Sync{Always: said.Config.SyncAlways, Every: said.Config.SyncInterval}
}

func oneLine(err error) string { return strings.Join(strings.Fields(fmt.Sprint(err)), " ") }
