package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
)

// What workers do that are processes of their own, with the engine in them.

// reportType is what every job asks for.
const reportType = "monthly"

// publish puts the job of the task at hand into the stream.
func publish(ctx context.Context, p *play) error {
	_, err := consumer.Publish(ctx, p.js, p.job, handlers.ReportJob{TaskID: handlers.NewIntegerID(fmt.Sprint(p.task)), ReportType: reportType})
	return err
}

// republish puts the same job there once more, as an operator's replay would: with a message id of its own, or the
// stream would drop it as a repeat.
func republish(ctx context.Context, p *play) error {
	id := fmt.Sprintf("replay-%d", time.Now().UnixNano())
	_, err := consumer.PublishRaw(ctx, p.js, p.job, p.body(reportType), map[string][]string{"Nats-Msg-Id": {id}})
	return err
}

// sameWorkAsNewTask asks for the same piece of work under a new task id, and thus under a new key.
func sameWorkAsNewTask(_ context.Context, p *play) error {
	before := p.work
	p.newTask()
	p.work = slices.Concat(before, p.work)
	return nil
}

// process starts a worker.
func (p *play) process(name string, r rules) (*worker, error) {
	told, err := json.Marshal(p.settings(r))
	if err != nil {
		return nil, err
	}
	w := p.worker(name)
	w.said = &output{}
	cmd := exec.Command(p.program, "lab-worker") //nolint:gosec,noctx // our own binary; tearDown ends it
	cmd.Env = append(os.Environ(), settingsVariable+"="+string(told))
	cmd.Stderr = io.MultiWriter(w.said, p.logs())
	if w.process, err = devenv.StartProgram(cmd); err != nil {
		return nil, err
	}
	p.later(func() error { w.kill(); return nil })
	return w, nil
}

// dies starts a worker and kills it with SIGKILL when the provider has committed its effect and not yet answered.
func dies(name string, r rules) act {
	return func(ctx context.Context, p *play) error {
		w, err := p.afterEffect(ctx, name, r, (*worker).kill)
		if err != nil {
			return err
		}
		w.knows("killed")
		return p.quiet(ctx)
	}
}

// learnsNothing starts a worker whose request has its effect and gets no answer in time. It is told to stop in an orderly
// way meanwhile, so that it saves what it knows and does not go on: that moment is to be looked at.
func learnsNothing(name string, r rules) act {
	return func(ctx context.Context, p *play) error {
		w, err := p.afterEffect(ctx, name, r, func(w *worker) { w.process.Signal(syscall.SIGTERM) })
		if err != nil {
			return err
		}
		if err := p.receive(ctx, theEnd, w.process.Exited()); err != nil {
			return err
		}
		w.knows("no_answer")
		return p.quiet(ctx)
	}
}

// afterEffect starts a worker, and does something to it when the provider has committed its effect and not yet answered.
func (p *play) afterEffect(ctx context.Context, name string, r rules, do func(*worker)) (*worker, error) {
	started := make(chan *worker, 1)
	done := p.calls.trap(provider.AfterCommit, func(ctx context.Context, _ provider.Call) {
		select {
		case w := <-started:
			do(w)
		case <-ctx.Done():
		}
	})
	w, err := p.process(name, r)
	if err != nil {
		return nil, err
	}
	started <- w
	return w, p.receive(ctx, theEffect, done)
}

// takesUp starts a worker and holds its request at the provider, before the effect, until the step has been looked at.
func takesUp(name string, r rules) act {
	return func(ctx context.Context, p *play) error {
		reached, release := p.calls.hold(provider.Received)
		p.holds = append(p.holds, release)
		w, err := p.process(name, r)
		if err != nil {
			return err
		}
		w.knows("sending")
		return p.receive(ctx, theRequest, reached)
	}
}

// finishes waits until a worker that is at work has finished the task and told the stream.
func finishes(name string) act {
	return func(ctx context.Context, p *play) error {
		if err := p.await(ctx, theOutcome, p.settled); err != nil {
			return err
		}
		w := p.worker(name)
		w.kill() // its work is done, and a worker may be killed at any time
		t, err := p.row(ctx)
		if err != nil {
			return err
		}
		_, answered := p.calls.of(w.sent)
		w.learnt(t, answered)
		return nil
	}
}

// sent tells the calls of a worker's process by their user agent.
func (w *worker) sent(c provider.Call) bool {
	return strings.Contains(c.UserAgent, fmt.Sprintf("(pid %d)", w.process.PID()))
}

// runs lets a worker do all that is to be done.
func runs(name string, r rules) act {
	return func(ctx context.Context, p *play) error {
		if _, err := p.process(name, r); err != nil {
			return err
		}
		return finishes(name)(ctx, p)
	}
}

// settled reports whether the task has come to rest, and with it its message.
func (p *play) settled(ctx context.Context) (bool, error) {
	m, err := p.messages(ctx)
	if err != nil || m.InStream > 0 || !p.calls.quiet() {
		return false, err
	}
	t, err := p.row(ctx)
	return t != nil && (t.Status.Final() || t.Status == idemstore.NeedsReview), err
}

// quiet waits until the provider has noted all its answers.
func (p *play) quiet(ctx context.Context) error {
	return p.await(ctx, theAnswer, func(context.Context) (bool, error) { return p.calls.quiet(), nil })
}

// refusesToStart starts a worker whose settings it should not accept.
func refusesToStart(name string, r rules) act {
	return func(ctx context.Context, p *play) error {
		w, err := p.process(name, r)
		if err != nil {
			return err
		}
		err = p.receive(ctx, theEnd, w.process.Exited())
		w.knows("refused", "message", strings.TrimSpace(w.said.String()))
		return err
	}
}

// withinAgeLimit does something that has to be over before the task's age limit is. On a machine that is busy elsewhere
// it may not be; then it is done again with a new task.
func withinAgeLimit(do act) act {
	const tries = 8
	return func(ctx context.Context, p *play) error {
		for try := range tries {
			p.newTask()
			if try > 0 {
				p.notes = append(p.notes, p.words.say("note.slow", "task", fmt.Sprint(p.task)))
			}
			if err := do(ctx, p); err != nil {
				return err
			}
			if t, err := p.row(ctx); err != nil || t == nil || t.Status == idemstore.Unknown {
				return err
			}
		}
		return nil // the checks of the step tell
	}
}

// worker is somebody who works on tasks, and what he believes.
type worker struct {
	name    string
	belief  belief
	process *devenv.Program // nil: played by hand
	said    *output         // of its process: standard error
	hand    *hand           // what one that is played by hand has in his hands
}

// kill ends a worker's process with SIGKILL, and returns when it is gone.
func (w *worker) kill() {
	w.process.Signal(syscall.SIGKILL)
	<-w.process.Exited()
}

// belief is a text and what fills it.
type belief struct {
	id   string
	fill []string
}

func (w *worker) knows(id string, fill ...string) { w.belief = belief{"knows." + id, fill} }

// worker finds a worker by its name, or adds it.
func (p *play) worker(name string) *worker {
	for _, w := range p.workers {
		if w.name == name {
			return w
		}
	}
	w := &worker{name: name}
	p.workers = append(p.workers, w)
	return w
}

// learnt is what a worker knows after its work: from the answers that the provider gave it, and from what it saved.
func (w *worker) learnt(t *idemstore.Task, answered []provider.Call) {
	n := len(answered)
	switch {
	case n == 0 && t.Status == idemstore.NeedsReview:
		w.knows("called_person")
		return
	case n == 0:
		w.knows("read_row")
		return
	case t.Status == idemstore.NeedsReview: // one that calls a person has only asked
		w.knows("asked_in_vain", "n", fmt.Sprint(n))
		return
	}
	switch last := answered[n-1]; {
	case last.Method == http.MethodGet:
		w.knows("found", "report", t.ExternalID)
	case last.Replayed:
		w.knows("replayed", "report", last.ExternalID)
	default:
		w.knows("made", "report", last.ExternalID)
	}
}

// output collects what a process says.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
