package rig

import "sync"

// gate holds one direction of a proxy. The zero value is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil while open; closed by the next reopen while shut
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// wait blocks while the gate is shut. It reports false if done was closed first.
func (g *gate) wait(done <-chan struct{}) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return true
	}
	select {
	case <-open:
		return true
	case <-done:
		return false
	}
}
