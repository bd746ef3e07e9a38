package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// Alert is one cause for which a person is called. However many tasks it holds up, and however many workers meet it, it
// is told once, and again when it still goes on an hour later.
type Alert struct {
	Cause   string    `json:"cause"` // what makes it one: "needs_review payment.charge absent"
	Kind    string    `json:"kind,omitempty"`
	Text    string    `json:"text"`           // in plain words: what happened and where to look
	TaskID  int64     `json:"task,omitempty"` // the latest example
	Count   int       `json:"count"`          // since FirstAt, in all workers
	FirstAt time.Time `json:"first_at"`       // after a quiet day it begins anew
	LastAt  time.Time `json:"last_at"`
}

// Times of alerts.
const (
	alertAgain    = time.Hour        // between two tellings of one cause
	notifyTimeout = 10 * time.Second // of one call of Config.Notify
	lastWords     = 3 * time.Second  // that a drain leaves for what is not told yet
	beatsToTell   = 6                // heartbeats after which an alert is told again that did not get through
	stuckEvery    = 6                // heartbeats between two looks for tasks that are stuck, or parked unheard
	unheardAfter  = time.Minute      // after which whoever parked a task must have counted it
	maxCauses     = 256              // that wait to be counted; more are dropped
)

// alarm collects alerts for the one goroutine that counts and tells them. A job never waits for it.
type alarm struct {
	wake chan struct{}
	busy atomic.Bool // the notifier has not returned

	mu      sync.Mutex
	pending map[string]idemstore.Raising
	dropped int
}

func newAlarm() *alarm {
	return &alarm{wake: make(chan struct{}, 1), pending: map[string]idemstore.Raising{}}
}

// raise adds to what is to be counted. It never blocks.
func (a *alarm) raise(r idemstore.Raising) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(r)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *alarm) add(r idemstore.Raising) {
	old, known := a.pending[r.Cause]
	switch {
	case known && !r.Absolute:
		r.Count += old.Count
	case !known && len(a.pending) >= maxCauses:
		a.dropped++
		return
	}
	a.pending[r.Cause] = r
}

// take empties what waits.
func (a *alarm) take() (out []idemstore.Raising, dropped int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.pending {
		out = append(out, r)
	}
	dropped, a.dropped = a.dropped, 0
	clear(a.pending)
	return out, dropped
}

// putBack lets what could not be counted wait again.
func (a *alarm) putBack(raisings []idemstore.Raising) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range raisings {
		if newer, ok := a.pending[r.Cause]; ok && r.Absolute {
			r = newer
		}
		a.add(r)
	}
}

// keepTelling counts and tells alerts until ctx ends, and then what is left.
func (e *Engine) keepTelling(ctx context.Context) {
	for beats := 1; ; {
		select {
		case <-ctx.Done():
			e.tellLast(ctx)
			return
		case <-e.alarm.wake:
		case <-e.after(e.beatEvery()):
			if beats++; beats%stuckEvery == 0 {
				e.lookForStuck(ctx)
				e.lookForStrays(ctx)
			}
		}
		e.tell(ctx)
	}
}

// tellLast tells what is left when ctx has ended.
func (e *Engine) tellLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	e.tell(ctx)
}

// countAtTheEnd counts what was raised until ctx ends, and leaves the telling to workers: they know whom to tell.
func (e *Engine) countAtTheEnd(ctx context.Context) {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	e.count(ctx)
}

// tell counts what was raised, and tells what is due, here or in a worker that could not.
func (e *Engine) tell(ctx context.Context) {
	if e.count(ctx) {
		e.tellDue(ctx)
	}
}

// count writes down what was raised. It reports whether that worked.
func (e *Engine) count(ctx context.Context) bool {
	raisings, dropped := e.alarm.take()
	if dropped > 0 {
		e.log.ErrorContext(ctx, "too many causes at once; alerts are lost", "alerts", dropped)
	}
	if len(raisings) > 0 {
		if err := e.store.Raise(ctx, alertAgain, raisings...); err != nil {
			e.alarm.putBack(raisings)
			e.log.WarnContext(ctx, "alerts not counted yet", "causes", len(raisings), "error", err)
			return false
		}
	}
	return true
}

// tellDue tells what is due and not told by somebody else. It takes one at a time: what waits behind a slow notifier is told
// by other workers, and only by them.
func (e *Engine) tellDue(ctx context.Context) {
	for !e.alarm.busy.Load() {
		alerts, err := e.store.TakeAlerts(ctx, 1, beatsToTell*e.beatEvery())
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "alerts not told yet", "error", err)
		}
		for _, a := range alerts {
			e.tellOne(ctx, Alert{a.Cause, a.Kind, a.Text, a.TaskID, a.Count, a.FirstAt, a.LastAt})
		}
		if len(alerts) == 0 {
			return
		}
	}
}

func (e *Engine) tellOne(ctx context.Context, a Alert) {
	if err := e.notify(ctx, a); err != nil {
		e.log.WarnContext(ctx, "alert not told; it is tried again", "cause", a.Cause, "text", a.Text, "error", err)
		return
	}
	e.log.ErrorContext(ctx, "alert", "cause", a.Cause, "kind", a.Kind, "text", a.Text, "task", a.TaskID, "count", a.Count, "since", a.FirstAt)
	if err := e.store.Told(ctx, a.Cause); err != nil {
		e.log.WarnContext(ctx, "alert may be told twice", "cause", a.Cause, "error", err)
	}
}

// notify calls the notifier, within its time. One that ignores its context is left behind, and nothing is told until it
// has returned.
func (e *Engine) notify(ctx context.Context, a Alert) error {
	if e.config.Notify == nil {
		return nil // the log is told
	}
	if !e.alarm.busy.CompareAndSwap(false, true) {
		return errors.New("the notifier is still busy with another one")
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := contain(func() (any, error) { return nil, e.config.Notify(ctx, a) })
		e.alarm.busy.Store(false)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-e.after(handlerGrace):
		return fmt.Errorf("the notifier ignores its context: %w", context.Cause(ctx))
	}
}

// lookForStuck raises an alert for each kind with tasks that are old and not settled, and for tasks that were parked by a
// worker that died before it could raise one.
func (e *Engine) lookForStuck(ctx context.Context) {
	names := make([]string, len(e.kinds))
	for i, k := range e.kinds {
		names[i] = k.name
	}
	ctx, cancel := context.WithTimeout(ctx, e.beatEvery())
	defer cancel()
	found, err := e.store.Stuck(ctx, e.config.RecoverAfter, names...)
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "stuck tasks not counted", "error", err)
	}
	for _, s := range found {
		e.alarm.raise(stuckAlert(s, e.config.RecoverAfter))
	}
	unheard, err := e.store.Unheard(ctx, unheardAfter, names...)
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "parked tasks not looked through", "error", err)
	}
	for _, u := range unheard {
		alert := reviewAlert(u.Kind, u.Cause, u.TaskID)
		alert.Count = u.Count
		e.alarm.raise(alert)
	}
}
