package consumer

import "sync"

// bell wakes all who wait for a change. Listen first, then look, then wait: a ring in between is not missed.
type bell struct {
	mu   sync.Mutex
	next chan struct{}
}

// listen returns a channel that the next ring closes.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
