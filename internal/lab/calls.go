package lab

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/settlemq/settle/internal/provider"
)

// calls are the requests that the provider of a lab got, and the traps that wait for some of them.
type calls struct {
	mu       sync.Mutex
	received []provider.Call
	answered []provider.Call
	held     int // how many a hold keeps from going on
	traps    []trap
}

// trap is what happens to the next POST that comes to a point. The request stands still meanwhile.
type trap struct {
	at     provider.Point
	do     func(context.Context, provider.Call)
	sprung chan struct{}
}

// trap waits for the next POST at a point. The channel is closed when do has returned.
func (c *calls) trap(at provider.Point, do func(context.Context, provider.Call)) (sprung <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := trap{at, do, make(chan struct{})}
	c.traps = append(c.traps, t)
	return t.sprung
}

// hold stops the next POST at a point until release is called.
func (c *calls) hold(at provider.Point) (reached <-chan struct{}, release func()) {
	there, gone := make(chan struct{}), make(chan struct{})
	c.trap(at, func(ctx context.Context, _ provider.Call) {
		c.holding(+1)
		defer c.holding(-1)
		close(there)
		select {
		case <-gone:
		case <-ctx.Done():
		}
	})
	return there, sync.OnceFunc(func() { close(gone) })
}

func (c *calls) holding(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held += n
}

// onPoint is the provider's callback.
func (c *calls) onPoint(ctx context.Context, at provider.Point, call provider.Call) {
	if t, ok := c.note(at, call); ok {
		t.do(ctx, call)
		close(t.sprung)
	}
}

// note keeps what a call tells, and returns the trap that it has walked into.
func (c *calls) note(at provider.Point, call provider.Call) (t trap, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at {
	case provider.Received:
		c.received = append(c.received, call)
	case provider.Answered:
		c.answered = append(c.answered, call)
	case provider.BeforeCommit, provider.AfterCommit:
	}
	i := slices.IndexFunc(c.traps, func(t trap) bool { return t.at == at && call.Method == http.MethodPost })
	if i < 0 {
		return t, false
	}
	t = c.traps[i]
	c.traps = slices.Delete(c.traps, i, i+1)
	return t, true
}

// quiet reports whether every request has been answered, but for those that are held. A client has its answer a little
// before the provider notes it.
func (c *calls) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.received)-len(c.answered) == c.held
}

// of are the calls that a test picks: those received, and those answered.
func (c *calls) of(picks func(provider.Call) bool) (received, answered []provider.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return picked(c.received, picks), picked(c.answered, picks)
}

func picked(all []provider.Call, picks func(provider.Call) bool) (out []provider.Call) {
	for _, call := range all {
		if picks(call) {
			out = append(out, call)
		}
	}
	return out
}
