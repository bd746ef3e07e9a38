package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// DriftSort says in what stream, consumers and table differ.
type DriftSort string

// The sorts of drift.
const (
	DriftSettings DriftSort = "settings"        // a stream or a consumer is not set up as it has to be
	DriftGivenUp  DriftSort = "given_up"        // messages that the broker delivers to nobody any more
	DriftUnrouted DriftSort = "unrouted"        // messages that no consumer is given
	DriftSettled  DriftSort = "settled_message" // messages whose task is final already
	DriftGone     DriftSort = "message_gone"    // open tasks whose message is gone
)

// Drift is one difference between stream, consumers and table.
type Drift struct {
	Sort        DriftSort
	Kind        string
	Subject     string
	Count       uint64
	Oldest      time.Duration // age of the oldest message or task; 0 if not known
	Sequences   []uint64      // of messages; the first few
	Tasks       []int64       // the first few
	NeedsPerson bool          // nothing ends it by itself
	What, Do    string        // in plain words: what is the matter, and what to do
}

// DriftCheck bounds a comparison. Zero fields take the defaults.
type DriftCheck struct {
	Grace time.Duration // what is younger is under way; 1 minute
	Late  time.Duration // an open task that nobody takes up for so long needs a person; 15 minutes
	Limit int           // messages of each kind, and open tasks, that are looked at; 10000
}

// shownOf is how many sequences and tasks of a difference are named.
const shownOf = 10

// drifting is a comparison while it runs.
type drifting struct {
	DriftCheck
	config Config
	store  *idemstore.Store
	stream jetstream.Stream
	now    time.Time // by the broker's clock
	kinds  map[string]*definition
	atWork map[string]bool
	found  []Drift
}

// FindDrift compares stream, consumers and table both ways, for the given kinds and what else is in the stream. It only
// reads, in many small requests, so what changes meanwhile may be seen half. It blocks until it is through or ctx ends; an
// error means that nothing is known, and names kinds that are wrong.
func FindDrift(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, c Config, check DriftCheck, kinds ...Definition) ([]Drift, error) {
	c = c.withDefaults()
	defs, err := defineAll(c, kinds)
	if err != nil {
		return nil, err
	}
	d := &drifting{DriftCheck: check.withDefaults(), config: c, store: idemstore.New(pool, c.Lease), kinds: map[string]*definition{}}
	for _, def := range defs {
		d.kinds[def.name] = def
	}
	if err := d.compare(ctx, js); err != nil {
		return nil, fmt.Errorf("compare stream and table: %w", err)
	}
	return d.found, nil
}

func (c DriftCheck) withDefaults() DriftCheck {
	c.Grace, c.Late, c.Limit = or(c.Grace, time.Minute), or(c.Late, 15*time.Minute), or(c.Limit, 10_000)
	return c
}

func (d *drifting) compare(ctx context.Context, js jetstream.JetStream) (err error) {
	d.stream, err = js.Stream(ctx, jobStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		d.add(Drift{Sort: DriftSettings, NeedsPerson: true, What: "there is no stream " + jobStream,
			Do: "start a worker or publish a job: both make it. If it was there before, its messages are lost; recovery settles the tasks that had begun"})
		return d.openTasks(ctx)
	}
	if err != nil {
		return err
	}
	d.now = d.stream.CachedInfo().TimeStamp
	if d.atWork, err = d.store.KindsAtWork(ctx); err != nil {
		return err
	}
	d.streamSettings(d.stream.CachedInfo().Config)
	for _, step := range []func(context.Context) error{d.consumers, d.unrouted, d.openTasks} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *drifting) add(x Drift) { d.found = append(d.found, x) }

// consumers looks at every consumer of the stream: its settings, what it gave up, and what it still holds.
func (d *drifting) consumers(ctx context.Context) error {
	list := d.stream.ListConsumers(ctx)
	for info := range list.Info() {
		filters := consumerFilters(info.Config)
		name := kindOf(filters, info.Name)
		d.consumerSettings(name, info.Config)
		if len(filters) > 1 {
			continue // none of ours; its counts say nothing about one subject
		}
		s, err := standingOf(ctx, d.stream, info.Name, filters[0])
		if err == nil {
			err = d.givenUp(ctx, name, s)
		}
		if err == nil && d.kinds[name] != nil {
			err = d.settledMessages(ctx, d.kinds[name], s)
		}
		if err != nil {
			return err
		}
	}
	return list.Err()
}

// kindOf is the kind that a consumer is for: by its filter, or by its name where the filter is not one of a kind.
func kindOf(filters []string, consumer string) string {
	kind, ok := strings.CutPrefix(filters[0], subjectPrefix)
	if ok && len(filters) == 1 && checkKindName(kind) == nil {
		return kind
	}
	return consumer
}

// givenUp reports what the broker delivers to nobody any more.
func (d *drifting) givenUp(ctx context.Context, kind string, s standing) error {
	if s.givenUp() == 0 {
		return nil
	}
	x := Drift{Sort: DriftGivenUp, Kind: kind, Subject: s.subject, Count: s.givenUp(), NeedsPerson: true,
		What: fmt.Sprintf("the broker gave up on %d messages: they are stored and delivered to nobody", s.givenUp()),
		Do:   fmt.Sprintf("see that a worker serves the kind: it takes them up when it starts and every %s", givenUpEvery)}
	err := s.walk(ctx, d.stream, 0, s.sureThrough(), func(m *jetstream.RawStreamMsg) bool {
		x.message(m, d.now)
		return len(x.Sequences) < shownOf
	})
	d.add(x)
	return err
}

// message adds a message to what is shown.
func (x *Drift) message(m *jetstream.RawStreamMsg, now time.Time) {
	x.Oldest = max(x.Oldest, now.Sub(m.Time))
	if len(x.Sequences) < shownOf {
		x.Sequences = append(x.Sequences, m.Sequence)
	}
}

// settledMessages reports delivered messages that should be gone, because their task is final.
func (d *drifting) settledMessages(ctx context.Context, def *definition, s standing) error {
	x := Drift{Sort: DriftSettled, Kind: def.name, Subject: s.subject}
	page, seen := map[string][]*jetstream.RawStreamMsg{}, 0
	var failed error
	flush := func() bool {
		failed = d.compareKeys(ctx, def.name, page, &x)
		clear(page)
		return failed == nil
	}
	err := s.walk(ctx, d.stream, 0, s.info.Delivered.Stream, func(m *jetstream.RawStreamMsg) bool {
		seen++
		if j, err := def.readMessage(m.Header, m.Data, d.config.MaxBody); err == nil && d.now.Sub(m.Time) >= d.Grace {
			page[j.key] = append(page[j.key], m)
		}
		return seen < d.Limit && (len(page) < groupLimit || flush())
	})
	if err == nil && failed == nil {
		flush()
	}
	if x.Count > 0 {
		d.settled(x, s)
	}
	return errors.Join(err, failed)
}

// compareKeys counts the messages of a page whose task has been final for a while.
func (d *drifting) compareKeys(ctx context.Context, kind string, page map[string][]*jetstream.RawStreamMsg, x *Drift) error {
	if len(page) == 0 {
		return nil
	}
	keys := make([]string, 0, len(page))
	for key := range page {
		keys = append(keys, key)
	}
	tasks, err := d.store.Standings(ctx, kind, keys...)
	for _, t := range tasks {
		if !t.Status.Final() || t.FinalFor < d.Grace {
			continue
		}
		if len(x.Tasks) < shownOf {
			x.Tasks = append(x.Tasks, t.TaskID)
		}
		for _, m := range page[t.Key] {
			x.Count++
			x.message(m, d.now)
		}
	}
	return err
}

// settled says what becomes of messages whose task is final.
func (d *drifting) settled(x Drift, s standing) {
	x.What = fmt.Sprintf("%d delivered messages are still stored although their tasks are final", x.Count)
	x.Do = "nothing: they are delivered again and answered from the row"
	if s.info.NumWaiting == 0 && !d.atWork[x.Kind] {
		x.NeedsPerson = true
		x.Do = "start a worker that serves the kind: nobody asks for its messages. They are answered from the row; nothing is sent"
	}
	d.add(x)
}

// unrouted reports messages that no consumer is given.
func (d *drifting) unrouted(ctx context.Context) error {
	left, err := unroutedOf(ctx, d.stream, shownOf)
	for _, u := range left {
		x := Drift{Sort: DriftUnrouted, Subject: u.Subject, Kind: strings.TrimPrefix(u.Subject, subjectPrefix), Count: u.Count, NeedsPerson: true,
			What: fmt.Sprintf("%d messages are stored that no consumer is given", u.Count),
			Do:   "start a worker that serves this kind; it makes the consumer"}
		if d.kinds[x.Kind] == nil {
			x.Do = "this build knows no such kind: start a worker that does, or publish them to the right subject and delete them"
		}
		for _, m := range u.Messages {
			x.Oldest = max(x.Oldest, d.now.Sub(m.StoredAt))
			x.Sequences = append(x.Sequences, m.Sequence)
		}
		d.add(x)
	}
	return err
}

// openTasks reports tasks that no message will bring to an end. Recovery does.
func (d *drifting) openTasks(ctx context.Context) error {
	open, err := d.store.OpenTasks(ctx, d.Grace, d.Limit)
	if err != nil {
		return err
	}
	byKind, order, late := map[string]*Drift{}, []string{}, map[string]int{}
	for _, t := range open {
		there, err := d.hasMessage(ctx, t.Origin)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		x := byKind[t.Kind]
		if x == nil {
			x = &Drift{Sort: DriftGone, Kind: t.Kind}
			byKind[t.Kind], order = x, append(order, t.Kind)
		}
		x.Count++
		x.Oldest = max(x.Oldest, t.Age)
		if len(x.Tasks) < shownOf {
			x.Tasks = append(x.Tasks, t.TaskID)
		}
		if t.Overdue >= d.Late {
			late[t.Kind]++
		}
	}
	for _, kind := range order {
		x := byKind[kind]
		x.What = fmt.Sprintf("%d open tasks have no message any more", x.Count)
		x.Do = "nothing: a worker that serves the kind takes them up when they are due"
		if n := late[kind]; n > 0 {
			x.NeedsPerson = true
			x.Do = fmt.Sprintf("see that a worker serves the kind: %d of them have been due for more than %s and nobody took them up; settle tasks show tells why", n, d.Late)
		}
		d.add(*x)
	}
	return nil
}

// hasMessage reports whether the stream still has the message that a task came with.
func (d *drifting) hasMessage(ctx context.Context, o idemstore.Origin) (bool, error) {
	if d.stream == nil || o.Stream != jobStream || o.Sequence == 0 {
		return false, nil
	}
	m, err := d.stream.GetMsg(ctx, o.Sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read message %d of %s: %w", o.Sequence, jobStream, err)
	}
	return m.Time.Truncate(time.Microsecond).Equal(o.Stored), nil // else a stream that was made anew
}
