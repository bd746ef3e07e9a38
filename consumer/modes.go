package consumer

import (
	"context"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// Modes: a person may stop a kind, or let it only ask, while workers run. What was asked for is in settle.controls;
// every worker reads it with each heartbeat, so it survives restarts and reaches all of them within one beat.
//
//	running   takes messages, performs, sends again, asks
//	asking    asks
//	paused    none of it
//
// What has been sent is not recalled: an attempt that has passed the gate goes on to its save. One that has not gives
// its task back.

// mayPerform reports whether a task of this kind may be performed, or sent again.
func (k *kind) mayPerform() bool { return k.modeNow() == idemstore.ModeRunning }

// mayAsk reports whether the provider may be asked about tasks of this kind.
func (k *kind) mayAsk() bool { return k.modeNow() != idemstore.ModePaused }

// mayRecover reports whether tasks are taken up without their message. While a kind only asks, those that are to be sent
// are given back again; a local job has nothing to ask.
func (k *kind) mayRecover() bool { return k.mayAsk() && (k.apply == nil || k.mayPerform()) }

func (k *kind) modeNow() idemstore.Mode {
	if c := k.control.Load(); c != nil {
		return c.Mode
	}
	return idemstore.ModeRunning
}

// readControlsLimit bounds the first reading; later ones are bounded by the heartbeat.
const readControlsLimit = 5 * time.Second

// attend reads the controls with each heartbeat until ctx ends. It has a loop of its own, so that a slow answer holds
// up no renewal.
func (e *Engine) attend(ctx context.Context) {
	for {
		every := e.beatEvery()
		select {
		case <-ctx.Done():
			return
		case <-e.after(every):
		}
		if err := e.readControls(ctx, every); err != nil && ctx.Err() == nil {
			e.database.failed(err) // also where no message comes and nothing is due: else nobody would notice
			e.log.WarnContext(ctx, "modes of kinds not read; they stay as they were", "error", err)
		}
	}
}

// readModes is the first reading.
func (e *Engine) readModes(ctx context.Context) error { return e.readControls(ctx, readControlsLimit) }

// readControls obeys what was asked of each kind.
func (e *Engine) readControls(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	names := make([]string, len(e.kinds))
	for i, k := range e.kinds {
		names[i] = k.name
	}
	controls, err := e.store.Controls(ctx, names...)
	if err != nil {
		return err
	}
	for _, c := range controls {
		for _, k := range e.kinds {
			if k.name == c.Kind {
				e.obey(ctx, k, c)
			}
		}
	}
	return nil
}

// obey puts a kind into the mode of a control. A mode that this build does not know counts as paused: whoever set it
// wanted less than everything.
func (e *Engine) obey(ctx context.Context, k *kind, c idemstore.Control) {
	if c.Mode != idemstore.ModeRunning && c.Mode != idemstore.ModeAsking {
		c.Mode = idemstore.ModePaused
	}
	if k.modeNow() == c.Mode {
		return
	}
	e.log.InfoContext(ctx, "kind is served in another mode", "kind", k.name, "mode", string(c.Mode), "actor", c.Actor, "reason", c.Reason)
	e.held.setMode(k, c)
	k.remote.bell.ring()
}

// setMode changes the mode under the lock under which gates are opened: no attempt slips between the two. Attempts
// that have not sent give back; one that asks goes on, and finds out when it wants to send.
func (h *holdings) setMode(k *kind, c idemstore.Control) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k.control.Store(&c)
	if k.mayPerform() {
		return
	}
	for a := range h.attempts {
		if a.kind != k || a.kind.apply != nil {
			continue // local jobs end in no time
		}
		if g := a.gate.Load(); g != nil && g.shutUnsent(ErrPaused) {
			a.cancel(ErrPaused)
		}
	}
}
