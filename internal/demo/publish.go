package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/consumer"
)

// publisher sends the jobs of a plan, with their repeats.
type publisher struct {
	stage *stage
	kinds map[string]consumer.Definition

	mu      sync.Mutex
	sent    map[string]int // publishes, by kind
	dropped map[string]int // those that the stream dropped as repeats
}

// all publishes the plan, a little at a time so that a person can watch.
func (p *publisher) all(ctx context.Context, jobs []job) error {
	for i, j := range jobs {
		if err := p.awaitTurn(ctx, jobs, i); err != nil {
			return err
		}
		if err := p.one(ctx, j); err != nil {
			return fmt.Errorf("publish %s: %w", j.key, err)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// awaitTurn lets misfortunes come one after the other: an act begins when the one before is over, and a kill when the
// one before has happened, for both might hit the same worker.
func (p *publisher) awaitTurn(ctx context.Context, jobs []job, i int) error {
	switch {
	case i > 0 && jobs[i].act() > jobs[i-1].act():
		return p.await(ctx, func() (bool, error) { return p.over(ctx, jobs, jobs[i-1].act()) })
	case jobs[i].kill:
		return p.await(ctx, func() (bool, error) { return p.killed(jobs[:i]) })
	}
	return nil
}

// await waits until something has happened; a sabotage may prevent that, so not for ever.
func (p *publisher) await(ctx context.Context, happened func() (bool, error)) error {
	for range 100 {
		over, err := happened()
		if err != nil || over {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether all kills of an act have happened, and whether its timeouts have come to rest.
func (p *publisher) over(ctx context.Context, jobs []job, act int) (bool, error) {
	if act == 0 {
		return p.killed(jobs)
	}
	tasks, err := p.stage.allTasks(ctx)
	resting := count(jobs, func(j job) bool { return j.timeout && settled(tasks[j.key]) })
	return resting == count(jobs, func(j job) bool { return j.timeout }), err
}

// killed reports whether the kills that jobs call for have happened.
func (p *publisher) killed(jobs []job) (bool, error) {
	kills, err := p.stage.workers.state()
	return kills >= count(jobs, func(j job) bool { return j.kill }), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (p *publisher) one(ctx context.Context, j job) error {
	switch j.repeat {
	case doubleClick:
		return p.together(ctx, j)
	case webhook:
		first := map[string][]string{"Nats-Msg-Id": {"evt_1_" + j.key}}
		second := map[string][]string{"Nats-Msg-Id": {"evt_2_" + j.key}}
		if err := p.publish(ctx, j, j.body, first); err != nil {
			return err
		}
		return p.publish(ctx, j, reversed(j.body), second)
	case lostPubAck:
		if err := p.unanswered(j); err != nil {
			return err
		}
	case once:
	}
	return p.publish(ctx, j, j.body, nil)
}

// together publishes the same job twice at the same moment.
func (p *publisher) together(ctx context.Context, j job) error {
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() { errs[i] = p.publish(ctx, j, j.body, nil) })
	}
	both.Wait()
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}

// unanswered publishes without waiting for an answer and without a message id: the publisher will do it again.
func (p *publisher) unanswered(j job) error {
	p.note(j.kind, 1, 0)
	return p.stage.conn.PublishMsg(&nats.Msg{Subject: "jobs." + j.kind, Data: []byte(j.body)})
}

func (p *publisher) publish(ctx context.Context, j job, body string, header map[string][]string) error {
	out, err := consumer.PublishRaw(ctx, p.stage.js, p.kinds[j.kind], []byte(body), header)
	if err != nil {
		return err
	}
	dropped := 0
	if out.Outcome == consumer.PublishDuplicate {
		dropped = 1
	}
	p.note(j.kind, 1, dropped)
	return nil
}

func (p *publisher) note(kind string, sent, dropped int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[kind] += sent
	p.dropped[kind] += dropped
}

// totals is how much was published and how much of it the stream dropped, by kind.
func (p *publisher) totals(kind string) (sent, dropped int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[kind], p.dropped[kind]
}

// reversed is the same object with its members in the other order.
func reversed(body string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &members) != nil {
		return body
	}
	var names []string
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Reverse(names)
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%q: %s", name, members[name])
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}
